"""What ``setpoint serve`` prints once all is served, on narrow terminals too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import setpoint

from setpoint.fleet import serve
from setpoint.fleet.serve import Address, Served

DEPLOYMENT = """\
apiVersion: setpoint/v1
kind: Deployment
models:
  smollm2-135m-instruct: {}
tenants: {local: {}}
auth: {anonymous: local}
"""
NAME = "smollm2-135m-instruct"
REPLICAS = tuple(
    Served(NAME, f"r{i}", "llamacpp 2026.10.11549", f"http://127.0.0.1:5080{i}", "up", 2.4, "1 of 2 cores", "c0")
    for i in range(2)
)


@pytest.fixture
def printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[str]]:
    """What is printed at a width, in lines."""
    (tmp_path / "deployment.yaml").write_text(DEPLOYMENT)

    def run_fleet(*_: object, serving: Callable[[Address], None], **__: Any) -> None:  # noqa: ANN401 - passed over
        serving(Address("http://127.0.0.1:8080", "d0", REPLICAS))

    monkeypatch.setattr(serve, "run_fleet", run_fleet)

    def at(columns: int) -> list[str]:
        done = setpoint(tmp_path, "serve", "deployment.yaml", COLUMNS=str(columns))
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return at


def test_a_wide_terminal_gets_a_table(printed: Callable[[int], list[str]]) -> None:
    lines = printed(120)
    assert [line.split()[0] for line in lines[-3:]] == ["model", NAME, NAME]
    assert [line.split()[-1] for line in lines[-3:]] == ["address", "127.0.0.1:50800", "127.0.0.1:50801"]


@pytest.mark.parametrize("columns", [80, 40])
def test_no_address_is_cut_on_a_narrow_one(printed: Callable[[int], list[str]], columns: int) -> None:
    lines = printed(columns)
    shown = lines[lines.index(f"{NAME} r0") :]
    assert max(map(len, shown)) <= columns
    assert [line.split()[1] for line in shown if line.startswith("  address")] == [
        "127.0.0.1:50800",
        "127.0.0.1:50801",
    ]
    assert f"{NAME} r1" in shown
    assert "  ready in  2.40 s" in shown
