"""The embedded engine: a real model is measured, and a damaged one is seen."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PICK = ("copy-0", "copy-1", "count-0", "fact-00", "lookup-00")


def evaluated(folder: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "setpoint", "eval", *arguments, "--json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode in (0, 1, 3), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.engine
@pytest.mark.timeout(600)
def test_a_quantized_cache_is_seen_in_the_distributions_and_repetition_is_not(tmp_path: Path) -> None:
    core = (ROOT / "src" / "setpoint" / "quality" / "suites" / "core.jsonl").read_text(encoding="utf-8").splitlines()
    chosen = [line for line in core if json.loads(line).get("id") in PICK]
    (tmp_path / "some.jsonl").write_text("\n".join(chosen), encoding="utf-8")
    suites = ("--suite", "some.jsonl", "--suite", "distributions")
    base = evaluated(tmp_path, *suites)
    (score,) = base["scores"]
    assert (score["measured"], score["planned"]) == (len(PICK), len(PICK))
    assert 0.3 < score["score"] <= 1
    candidate = evaluated(tmp_path, *suites, "--flag", "cache_type_k=q4_0", "--baseline", str(base["run"]))
    comparison = candidate["comparison"]
    assert [c["pin"] for c in comparison["changes"]] == ["engine_flags.cache_type_k"]
    assert comparison["divergence"]["mean_kl"] > 10 * max(comparison["floor"]["mean_kl"], 1e-6)
    assert comparison["divergence"]["same_top"] < comparison["floor"]["same_top"]
