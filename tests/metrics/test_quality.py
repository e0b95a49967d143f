"""The verdict on a quality promise."""

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.metrics.rows import Promise

from setpoint.metrics.judge import client_bound, incomplete, judge_all
from setpoint.metrics.quality import judge_quality, score_suite
from setpoint.metrics.table import ExchangeTable
from setpoint.metrics.verdict import State
from setpoint.records.parquet import QUALITY_SCHEMA
from setpoint.workload.promise import Promise as CardPromise

RANK = {State.MISSED: 0, State.UNDECIDED: 1, State.MET: 2}


def rows(scores: Sequence[float | None], *, suite: str = "s", epochs: int = 1, coverage: float = 0.9) -> pl.DataFrame:
    made = [
        {"suite": suite, "required_coverage": coverage, "task": f"t{i // epochs}", "epoch": i % epochs, "score": score}
        for i, score in enumerate(scores)
    ]
    return pl.DataFrame(made, schema_overrides=QUALITY_SCHEMA)


def promise(share: float = 0.8, suite: str | None = None) -> CardPromise:
    return CardPromise.model_validate({"metric": "quality", "at_least": share, "suite": suite})


@pytest.mark.parametrize(
    ("scores", "state"),
    [
        ([1.0] * 100, State.MET),
        ([0.0] * 100, State.MISSED),
        ([1.0] * 82 + [0.0] * 18, State.UNDECIDED),
        ([1.0] * 10, State.UNDECIDED),
        ([None] * 100, State.UNDECIDED),
        ([1.0] * 80 + [None] * 20, State.UNDECIDED),
    ],
)
def test_the_interval_and_the_coverage_decide(scores: list[float | None], state: State) -> None:
    verdict = judge_quality(promise(), rows(scores))
    assert verdict.state is state
    assert verdict.samples == sum(score is not None for score in scores)
    if state is State.UNDECIDED and verdict.share == 0.82:
        assert verdict.more_samples is not None


def test_unmeasured_answers_widen_the_interval_and_leave_the_score() -> None:
    whole, part = score_suite(rows([1.0, 0.0] * 50)), score_suite(rows([1.0, 0.0] * 45 + [None] * 10))
    assert whole.score == part.score == 0.5
    assert None not in (whole.low, whole.high, part.low, part.high)
    assert part.low is not None
    assert whole.low is not None
    assert part.low < whole.low
    assert part.high is not None
    assert whole.high is not None
    assert part.high > whole.high


def test_repetitions_of_a_task_are_no_new_tasks() -> None:
    once, often = score_suite(rows([1.0, 0.0] * 10)), score_suite(rows([1.0] * 100 + [0.0] * 100, epochs=10))
    assert (once.tasks, often.tasks) == (20, 20)
    assert often.effective == pytest.approx(once.effective, rel=0.1)
    mixed = score_suite(rows([1.0, 0.0] * 100, epochs=10))
    assert mixed.effective == pytest.approx(20)
    assert mixed.within_task == pytest.approx(0.527, abs=0.01)


def test_the_promise_names_its_suite() -> None:
    two = pl.concat([rows([1.0] * 50, suite="a"), rows([0.0] * 50, suite="b")])
    assert judge_quality(promise(suite="a"), two).state is State.MET
    assert judge_quality(promise(suite="b"), two).state is State.MISSED
    assert "suite c was not measured (a, b was)" in judge_quality(promise(suite="c"), two).reason
    assert "names none of them" in judge_quality(promise(), two).reason
    assert judge_quality(promise(), rows([1.0] * 50)).state is State.MET


def test_doubts_about_times_do_not_touch_grades_and_an_incomplete_run_does() -> None:
    empty = ExchangeTable.from_exchanges([])
    graded = rows([1.0] * 100)
    (busy,) = judge_all([promise()], empty, doubts=[client_bound("slow")], quality=graded)
    (cut,) = judge_all([promise()], empty, doubts=[incomplete("killed")], quality=graded)
    assert busy.state is State.MET
    assert (cut.state, "run is incomplete: killed" in cut.reason) == (State.UNDECIDED, True)


def test_without_grades_it_is_undecided_and_says_what_to_do() -> None:
    for nothing in (None, rows([])):
        verdict = judge_quality(Promise("quality", at_least=0.7, label="quality"), nothing)
        assert verdict.state is State.UNDECIDED
        assert "setpoint eval CARD" in verdict.reason
        assert verdict.required == 0.7


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=1, max_size=120), st.integers(0, 119))
@settings(max_examples=60, deadline=None)
def test_losing_an_answer_never_improves_a_verdict(scores: list[float | None], place: int) -> None:
    before = judge_quality(promise(0.6), rows(scores))
    if before.low is not None and before.high is not None and before.share is not None:
        assert 0 <= before.low <= before.share + 1e-9
        assert before.share <= before.high + 1e-9
    scores[place % len(scores)] = None
    after = judge_quality(promise(0.6), rows(scores))
    assert not (RANK[after.state] > RANK[before.state] and after.state is State.MET)
