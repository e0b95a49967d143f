"""The example on the page about sizing runs."""

import re
from pathlib import Path

import pytest
from tests import shared

PAGE = Path(__file__).parents[2] / "docs" / "sizing.md"


def test_the_example_prints_terms_and_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    match = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    (tmp_path / "config.json").write_bytes(shared.config("Qwen--Qwen3-32B"))
    monkeypatch.chdir(tmp_path)
    exec(compile(match.group(1), "sizing.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "weights 30." in printed
    assert "GPU KV cache size: " in printed
