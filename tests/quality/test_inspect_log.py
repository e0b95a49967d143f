"""Logs that Inspect AI 0.3.285 really wrote against the fake engine, read as graded rows; events are cut out.

``good``: 19 of 20 right. ``failing``: every fourth request failed, samples may fail (``--no-fail-on-error``).
``stopped``: likewise, and the first failure ends the run.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import polars as pl
import pytest
from tests.cli.command import answer, one_message, setpoint
from tests.quality.suites import engine_for, words_suite

from setpoint.errors import UsageError
from setpoint.metrics.quality import score_suite
from setpoint.quality.inspect_log import InspectLog, read_log
from setpoint.records.parquet import QUALITY_SCHEMA
from setpoint.records.quality import Blame
from setpoint.testing.script import Fault, FaultKind

RECORDED = Path(__file__).parents[1] / "recorded" / "inspect"
TASK = Path(__file__).with_name("inspect_task.py")


def log(name: str) -> InspectLog:
    return read_log((RECORDED / f"{name}.json").read_bytes(), f"{name}.json")


def inspects_own(name: str) -> float | None:
    found = msgspec.json.decode((RECORDED / f"{name}.json").read_bytes())
    results = found.get("results")
    return None if not results else float(results["scores"][0]["metrics"]["mean"]["value"])


def test_right_and_wrong_answers_have_their_scores() -> None:
    found = log("good")
    assert (found.task, found.status, found.scorer) == ("words", "success", "exact")
    assert [r.task for r in found.rows if r.score != 1.0] == ["word-1"]
    assert len(found.rows) == 20
    assert {r.score for r in found.rows} == {0.0, 1.0}
    wrong = next(r for r in found.rows if r.score == 0.0)
    assert (wrong.blame, wrong.reason) == (Blame.MODEL, "scored 0 by exact")
    assert all(r.digest is not None for r in found.rows)
    assert inspects_own("good") == pytest.approx(0.95)


def test_failed_requests_are_unmeasured_where_inspect_leaves_them_out() -> None:
    found = log("failing")
    failed = [r for r in found.rows if r.score is None]
    assert len(found.rows) == 20
    assert len(failed) == 5
    assert {r.blame for r in failed} == {Blame.INFRASTRUCTURE}
    assert {r.reason for r in failed} == {"error: InternalServerError"}
    measured = [r.score for r in found.rows if r.score is not None]
    assert inspects_own("failing") == pytest.approx(sum(measured) / 15), "it counts 15 samples and tells no coverage"
    score = score_suite(pl.DataFrame([msgspec.to_builtins(r) for r in found.rows], schema=QUALITY_SCHEMA))
    assert (score.measured, score.planned, score.covered) == (15, 20, False)


def test_a_run_that_stopped_has_a_row_for_every_sample() -> None:
    found = log("stopped")
    assert found.status == "error"
    assert len(found.rows) == 20
    reasons = [str(r.reason) for r in found.rows if r.score is None]
    assert len(reasons) == 20
    assert reasons.count("not asked: the run ended with error") == 18


def test_one_data_set_has_one_digest_whatever_failed() -> None:
    assert log("good").digest == log("failing").digest == log("stopped").digest


def test_epochs_that_are_missing_are_counted() -> None:
    found = msgspec.json.decode((RECORDED / "good.json").read_bytes())
    found["eval"]["config"]["epochs"] = 2
    rows = read_log(msgspec.json.encode(found), "x").rows
    assert len(rows) == 40
    assert sum(r.score is None for r in rows) == 20


@pytest.mark.parametrize("value", [3.5, {"a": 1}, "great", None, True])
def test_a_score_that_is_no_share_is_not_invented(value: object) -> None:
    found = msgspec.json.decode((RECORDED / "good.json").read_bytes())
    found["samples"][0]["scores"]["exact"]["value"] = value
    own = found["samples"][0]["id"]
    row = next(r for r in read_log(msgspec.json.encode(found), "x").rows if r.task == own)
    if value is True:
        assert row.score == 1.0
    else:
        assert (row.score, row.blame) == (None, Blame.GRADER)


@pytest.mark.parametrize("content", [b"{}", b"PK\x03\x04"])
def test_another_file_is_refused(content: bytes) -> None:
    with pytest.raises(UsageError, match="is no log of Inspect"):
        read_log(content, "x.json")


def test_a_log_of_another_version_is_refused() -> None:
    found = msgspec.json.decode((RECORDED / "good.json").read_bytes())
    with pytest.raises(UsageError, match="version 7; version 2 is read"):
        read_log(msgspec.json.encode(found | {"version": 7}), "x.json")


def stand_in(folder: Path, name: str) -> str:
    """A program that is called as Inspect is and leaves the recorded log."""
    program = folder / "inspect"
    program.write_text(
        f"#!{sys.executable}\nimport os, shutil, sys\na = sys.argv\nassert a[1] == 'eval' and a[2] == 'words.py'\n"
        "assert a[a.index('--model') + 1] == 'openai-api/setpoint/fake' and a[a.index('--max-retries') + 1] == '0'\n"
        "assert os.environ['SETPOINT_BASE_URL'].endswith('/v1')\n"
        f"shutil.copy({str(RECORDED / name) + '.json'!r}, a[a.index('--log-dir') + 1])\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    return str(program)


def test_a_task_with_failed_requests_has_no_verdict_and_leaves_a_record(tmp_path: Path) -> None:
    with engine_for(words_suite(1)) as target:
        done = setpoint(
            tmp_path, "eval", target.base_url, "--inspect", "words.py", "--json",
            SETPOINT_INSPECT=stand_in(tmp_path, "failing"),
        )  # fmt: skip
    assert done.returncode == 3, done.stderr
    (score,) = answer(done)["scores"]
    assert (score["suite"], score["measured"], score["planned"]) == ("inspect-words", 15, 20)
    assert answer(done)["blame"]["infrastructure"] == 5
    shown = setpoint(tmp_path, "report", "latest", "-o", "report.md")
    assert shown.returncode in (0, 3), shown.stderr  # nothing was promised
    assert "15 of 20" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_without_inspect_the_message_says_how_to_get_it(tmp_path: Path) -> None:
    with engine_for(words_suite(1)) as target:
        done = setpoint(
            tmp_path, "eval", target.base_url, "--inspect", "words.py", SETPOINT_INSPECT="/nowhere/inspect"
        )  # fmt: skip
        both = setpoint(tmp_path, "eval", target.base_url, "--inspect", "words.py", "--suite", "core")
    assert done.returncode == 4
    assert "there is no such program" in one_message(done)
    assert both.returncode == 2
    assert "--inspect stands alone" in one_message(both)


@pytest.mark.inspect
@pytest.mark.timeout(300)
def test_inspect_itself_asks_a_server_of_which_every_fourth_request_fails(tmp_path: Path) -> None:
    """Opt-in: ``SETPOINT_INSPECT`` names the program of an environment with inspect-ai."""
    suite = words_suite()
    with engine_for(suite, faults=(Fault(kind=FaultKind.FAIL, first=2, every=4),)) as target:
        done = subprocess.run(
            [sys.executable, "-m", "setpoint", "eval", target.base_url, "--inspect", TASK.name, "--runs",
             str(tmp_path / "runs"), "--json"],
            cwd=TASK.parent, capture_output=True, text=True, check=False, timeout=280,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        )  # fmt: skip
    assert done.returncode == 3, done.stderr
    (score,) = answer(done)["scores"]
    assert (score["measured"], score["planned"], score["score"]) == (15, 20, 1.0)
