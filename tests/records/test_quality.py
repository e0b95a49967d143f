"""Graded answers in a record: written, crashed, read."""

import shutil
from pathlib import Path

import pytest

from setpoint.records.exchange import Outcome
from setpoint.records.quality import Blame, DistributionRow, QualityRow
from setpoint.records.record import QUALITY, QUALITY_JOURNAL, RunRecord
from setpoint.records.store import RunStore


def row(task: str, score: float | None) -> QualityRow:
    blame = None if score == 1 else Blame.MODEL if score is not None else Blame.INFRASTRUCTURE
    return QualityRow(
        suite="s", suite_digest="d", required_coverage=0.95, task=task, family="f", epoch=0, grader="exact",
        score=score, blame=blame, outcome=Outcome.COMPLETE, done_s=1.0,
    )  # fmt: skip


def test_rows_come_back_from_parquet_and_from_the_journal_of_a_crash(tmp_path: Path) -> None:
    writer = RunStore(tmp_path / "runs").create("test")
    writer.quality([row("a", 1.0), row("b", None)])
    writer.distributions([DistributionRow(text="t", position=3, repeat=0, rank=0, token="x", logprob=-0.5)])
    shutil.copytree(writer.path, tmp_path / "crashed")
    closed = writer.finish()
    crashed = RunRecord(tmp_path / "crashed")
    for record in (closed, crashed):
        assert record.quality()["task"].to_list() == ["a", "b"]
        assert record.quality()["score"].to_list() == [1.0, None]
        assert record.distributions()["logprob"].to_list() == [-0.5]
    assert (closed.path / QUALITY).exists()
    assert not (closed.path / QUALITY_JOURNAL).exists()


def test_a_run_without_grades_has_no_such_file(tmp_path: Path) -> None:
    record = RunStore(tmp_path / "runs").create("test").finish()
    assert not (record.path / QUALITY).exists()
    assert record.quality().is_empty()
    assert record.distributions().is_empty()


@pytest.mark.parametrize(("score", "blame"), [(1.5, None), (1.0, Blame.MODEL), (0.5, None), (None, None)])
def test_a_row_is_right_or_says_who_to_look_at(score: float | None, blame: Blame | None) -> None:
    with pytest.raises(ValueError, match="task a"):
        QualityRow(
            suite="s", suite_digest="d", required_coverage=0.95, task="a", family="f", epoch=0, grader="exact",
            score=score, blame=blame,
        )  # fmt: skip
