"""Evaluations against a fake engine on real sockets."""

from pathlib import Path

import polars as pl
import pytest
from tests.load.conftest import make_card
from tests.quality.suites import engine_for, evaluated, words_suite

from setpoint.errors import SuiteError, UsageError
from setpoint.metrics.verdict import State
from setpoint.quality.evaluation import EvalSpec, evaluate
from setpoint.quality.questions import Sampling
from setpoint.quality.suite import load_suite, read_suite
from setpoint.records.meta import Status
from setpoint.records.record import QUALITY
from setpoint.records.store import RunStore
from setpoint.records.target import Dialect, Target
from setpoint.report.build import build
from setpoint.report.content import Table
from setpoint.testing.script import Fault, FaultKind

PROMISES = ["quality(words) >= 50%", "p90 ttft <= 1s"]


def test_right_answers_score_full_and_the_promise_is_met(tmp_path: Path) -> None:
    suite = words_suite()
    with engine_for(suite) as target:
        found = evaluated(tmp_path, suite, target, card=make_card(promises=PROMISES))
    (score,) = found.scores
    assert (score.score, score.measured, score.planned) == (1.0, 20, 20)
    assert [(v.promise, v.state) for v in found.verdicts] == [("quality (words) ≥ 50.0%", State.MET)]
    assert found.record.meta.status is Status.COMPLETE
    assert (found.record.path / QUALITY).exists()
    assert found.record.meta.pins["suites"] == {"words": suite.digest}


def test_the_whole_core_suite_through_a_server(tmp_path: Path) -> None:
    """Every reference, tool calls and code included, comes back through the wire and scores full."""
    suite = load_suite("core")
    several = [t.id for t in suite.tasks if len(t.reference.calls) > 1]  # the fake engine makes one call
    with engine_for(suite, decode_s=0.0) as target:
        found = evaluated(tmp_path, suite, target, sampling=Sampling(concurrency=8))
    wrong = found.record.quality().filter(pl.col("score").is_null() | (pl.col("score") < 1))
    assert set(wrong["task"]) == set(several)


def test_five_of_twenty_requests_that_fail_are_not_a_full_score(tmp_path: Path) -> None:
    """The case in which Inspect AI reported 1.000: here it is 15 measured of 20, and no verdict."""
    suite = words_suite()
    with engine_for(suite, faults=(Fault(kind=FaultKind.FAIL, every=4),)) as target:
        found = evaluated(tmp_path, suite, target, card=make_card(promises=PROMISES))
    (score,) = found.scores
    (verdict,) = found.verdicts
    assert (score.measured, score.planned, score.coverage) == (15, 20, 0.75)
    assert score.score == 1.0
    assert score.low is not None
    assert score.low < 0.6
    assert verdict.state is State.UNDECIDED
    assert verdict.reason.startswith("coverage too low: 75.0% measured, 95.0% needed")
    rows = found.record.quality()
    failed = rows.filter(pl.col("score").is_null())
    assert set(failed["blame"]) == {"infrastructure"}
    assert rows.height == 20


@pytest.mark.parametrize(
    ("kind", "score", "blame"),
    [
        (FaultKind.FAIL, None, "infrastructure"),
        (FaultKind.REJECT, None, "infrastructure"),
        (FaultKind.RESET, None, "infrastructure"),
        (FaultKind.TRUNCATE, None, "infrastructure"),
        (FaultKind.ERROR_EVENT, None, "infrastructure"),
        (FaultKind.GARBAGE, None, "infrastructure"),
        (FaultKind.REASONING, 0.0, "model"),
        (FaultKind.BAD_TOOL, 0.0, "parser"),
    ],
)
def test_what_became_of_an_answer_decides_whom_to_look_at(
    tmp_path: Path, kind: FaultKind, score: float | None, blame: str
) -> None:
    suite = words_suite(3)
    with engine_for(suite, faults=(Fault(kind=kind),)) as target:
        rows = evaluated(tmp_path, suite, target).record.quality()
    assert set(rows["score"]) == {score}
    assert set(rows["blame"]) == {blame}


def test_a_wrong_model_name_is_our_fault_and_not_the_models(tmp_path: Path) -> None:
    suite = words_suite(3)
    with engine_for(suite) as target:
        rows = evaluated(tmp_path, suite, Target(target.base_url, Dialect.CHAT, "other")).record.quality()
    assert rows["score"].null_count() == 3
    assert set(rows["blame"]) == {"harness"}


def test_markup_in_an_answer_points_to_the_parser(tmp_path: Path) -> None:
    suite = words_suite(3)
    leaked = {"word-0": "amber0<|im_end|>", "word-1": "<think>birch1"}
    with engine_for(suite, leaked) as target:
        rows = evaluated(tmp_path, suite, target).record.quality().sort("task")
    assert rows["blame"].to_list() == ["parser", "parser", None]
    assert rows["score"].to_list() == [0.0, 0.0, 1.0]


def test_epochs_are_answers_to_the_same_task(tmp_path: Path) -> None:
    suite = words_suite(6)
    wrong = {task.id: "no" for task in suite.tasks[:3]}
    with engine_for(suite, wrong) as target:
        (score,) = evaluated(tmp_path, suite, target, sampling=Sampling(epochs=5)).scores
    assert (score.tasks, score.planned, score.score) == (6, 30, 0.5)
    assert score.effective <= 6
    assert score.within_task == 0.0


def test_a_suite_without_good_controls_asks_nothing(tmp_path: Path) -> None:
    suite = read_suite('{"id":"a","prompt":"?","grader":{"name":"exact","expected":"x"},"reference":"y"}', "s.jsonl")
    writer = RunStore(tmp_path / "runs").create("test")
    with pytest.raises(SuiteError, match="refused"):
        evaluate(EvalSpec(target=Target("http://127.0.0.1:9", Dialect.CHAT, "m"), suites=[suite]), writer)
    record = RunStore(tmp_path / "runs").open("latest")
    assert record.meta.status is Status.INCOMPLETE
    assert record.quality().is_empty()


def test_embeddings_cannot_be_asked(tmp_path: Path) -> None:
    suite = words_suite(2)
    with engine_for(suite) as target, pytest.raises(UsageError, match="makes embeddings"):
        evaluated(tmp_path, suite, Target(target.base_url, Dialect.EMBEDDINGS, "fake"))
    assert (
        RunStore(tmp_path / "runs").open("latest").quality()["reason"].unique().to_list()
        == ["not sent: the evaluation was ended"]
        or RunStore(tmp_path / "runs").open("latest").quality().is_empty()
    )


def test_no_record_holds_a_text(tmp_path: Path) -> None:
    suite = words_suite(4)
    with engine_for(suite, {"word-1": "unmistakable"}) as target:
        record = evaluated(tmp_path, suite, target).record
    for file in record.path.iterdir():
        content = file.read_bytes()
        assert b"unmistakable" not in content
        assert b"Say amber0" not in content
    assert "unmistakable" not in str(record.quality().to_dicts())


def test_answers_are_given_to_whoever_keeps_them(tmp_path: Path) -> None:
    suite, kept = words_suite(4), []
    with engine_for(suite) as target:
        evaluated(tmp_path, suite, target, keep=lambda row, response: kept.append((row.task, response.text)))
    assert sorted(kept) == [("word-0", "amber0"), ("word-1", "birch1"), ("word-2", "cedar2"), ("word-3", "delta3")]


def test_the_report_shows_the_verdict_and_the_score(tmp_path: Path) -> None:
    suite = words_suite()
    with engine_for(suite, {"word-0": "no"}) as target:
        found = evaluated(tmp_path, suite, target, card=make_card(promises=PROMISES))
    report = build([found.record])
    assert report.headline == "quality (words) ≥ 50.0% is met."
    assert report.state is State.MET
    tables = {b.title: b for b in report.sections[4].blocks if isinstance(b, Table)}
    assert [c.text for c in tables["Criteria and verdicts"].rows[0]][:2] == ["quality", "quality (words) ≥ 50.0%"]
    row = [c.text for c in tables["Quality of the answers"].rows[0]]
    assert row[:3] == ["words", "idle", "95.0%"]
    assert row[4:7] == ["20 of 20", "1 model", "100.0% and 0.0%"]
