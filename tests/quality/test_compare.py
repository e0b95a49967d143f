"""Base against candidate."""

import math
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.quality.suites import engine_for, evaluated, words_suite

from setpoint.errors import PinsDiffer, UsageError
from setpoint.metrics.verdict import State
from setpoint.quality.compare import compare, paired
from setpoint.quality.distributions import divergence, floor_of, read_logprobs
from setpoint.quality.questions import Sampling
from setpoint.records.parquet import DISTRIBUTION_SCHEMA, QUALITY_SCHEMA
from setpoint.records.store import RunStore
from setpoint.testing.script import Fault, FaultKind

Scores = Sequence[float | None]


def rows(scores: Scores, epochs: int = 1) -> pl.DataFrame:
    made = [
        {
            "suite": "s", "suite_digest": "d", "required_coverage": 0.9, "task": f"t{i // epochs}", "family": "f",
            "epoch": i % epochs, "grader": "exact", "score": score, "blame": None if score == 1 else "model",
            "digest": None if score is None else str(score), "under_load": False,
        }
        for i, score in enumerate(scores)
    ]  # fmt: skip
    return pl.DataFrame(made, schema=QUALITY_SCHEMA)


def both(base: Scores, candidate: Scores, delta: float = 0.05, epochs: int = 1) -> State:
    return paired(rows(base, epochs), rows(candidate, epochs), delta).state


def test_the_same_answers_are_no_worse() -> None:
    found = paired(rows([1, 0] * 75), rows([1, 0] * 75), 0.05)
    assert found.state is State.MET
    assert found.words.startswith("same within 5%")
    assert (found.difference, found.better, found.worse, found.p_value, found.same_answers) == (0, 0, 0, 1, 1)
    assert found.low is not None
    assert found.low < 0, "no change in 150 tasks does not prove that there is none"


def test_a_large_loss_is_missed_and_a_gain_is_better() -> None:
    assert both([1] * 100, [1] * 70 + [0] * 30) is State.MISSED
    found = paired(rows([1] * 70 + [0] * 30), rows([1] * 100), 0.05)
    assert (found.state, found.words[:6]) == (State.MET, "better")
    assert found.p_value is not None
    assert found.p_value < 0.001


def test_a_small_loss_in_few_tasks_is_undecided() -> None:
    assert both([1] * 30, [1] * 28 + [0] * 2) is State.UNDECIDED


def test_unmeasured_answers_never_help() -> None:
    base: Scores = [1] * 100
    lost: Scores = [1] * 94 + [None] * 6
    found = paired(rows(base), rows(lost), 0.05)
    assert found.difference == 0
    assert found.state is State.UNDECIDED
    assert both(base, [1] * 80 + [None] * 20) is State.UNDECIDED  # coverage
    assert both([None] * 6 + [1] * 94, [0] * 6 + [1] * 94) is State.UNDECIDED


def test_epochs_of_a_task_are_one_observation() -> None:
    few = [1.0] * 20
    one = paired(rows(few), rows([1] * 19 + [0]), 0.05)
    many = paired(rows(few * 10, 10), rows([*([1] * 190), *([0] * 10)], 10), 0.05)
    assert many.difference == one.difference == pytest.approx(-0.05)
    assert many.low == pytest.approx(one.low, abs=0.02)


@given(
    st.lists(st.tuples(*[st.sampled_from([0.0, 0.5, 1.0, None])] * 2), min_size=3, max_size=40),
    st.integers(0, 39),
)
@example([(1.0, 0.0)] * 7 + [(0.5, 0.0)] * 2, 8)  # losses that are all alike have less variance than mixed ones
@settings(max_examples=40)
def test_losing_an_answer_of_the_candidate_never_raises_the_lower_bound(
    pairs: list[tuple[float | None, float | None]], place: int
) -> None:
    base, candidate = [p[0] for p in pairs], [p[1] for p in pairs]
    before = paired(rows(base), rows(candidate), 0.05)
    candidate[place % len(pairs)] = None
    after = paired(rows(base), rows(candidate), 0.05)
    if before.low is not None and after.low is not None and after.difference is not None:
        assert after.low <= min(before.low, after.difference) + 1e-9
    assert not (before.state is not State.MET and after.state is State.MET)


def test_two_evaluations_of_one_target_are_an_a_a_run(tmp_path: Path) -> None:
    suite = words_suite()
    with engine_for(suite) as target:
        base, again = (evaluated(tmp_path, suite, target).record for _ in range(2))
    found = compare(base, again)
    assert found.changes == ()
    assert [s.state for s in found.suites] == [State.UNDECIDED]  # twenty tasks are too few for five per cent
    assert [s.state for s in compare(base, again, delta=0.2).suites] == [State.MET]
    assert found.divergence is None


def test_a_worse_candidate_is_caught_and_what_changed_is_told(tmp_path: Path) -> None:
    suite = words_suite(40)
    with engine_for(suite) as target:
        base = evaluated(tmp_path, suite, target, engine={"engine_flags": {"kv": "f16"}}).record
    with engine_for(suite, {t.id: "no" for t in suite.tasks[:20]}) as target:
        candidate = evaluated(tmp_path, suite, target, engine={"engine_flags": {"kv": "q4"}}).record
    found = compare(base, candidate)
    assert [str(d) for d in found.changes] == ["engine_flags.kv: f16 against q4"]
    assert found.suites[0].state is State.MISSED


def test_failures_of_the_candidate_are_not_wrong_answers_and_not_a_win(tmp_path: Path) -> None:
    suite = words_suite(40)
    with engine_for(suite) as target:
        base = evaluated(tmp_path, suite, target).record
    with engine_for(suite, faults=(Fault(kind=FaultKind.REJECT, every=4),)) as target:
        candidate = evaluated(tmp_path, suite, target).record
    (one,) = compare(base, candidate, delta=0.3).suites
    assert one.difference == 0.0
    assert one.state is State.UNDECIDED
    assert "coverage too low" in one.words


def test_another_suite_other_sampling_or_two_variables_are_refused(tmp_path: Path) -> None:
    suite = words_suite(4)
    with engine_for(suite) as target:
        base = evaluated(tmp_path, suite, target, engine={"engine": "a", "precision": "f16"}).record
        other = evaluated(tmp_path, suite, target, sampling=Sampling(epochs=2)).record
        two = evaluated(tmp_path, suite, target, engine={"engine": "b", "precision": "q4"}).record
        model = evaluated(tmp_path, suite, target, engine={"engine": "a", "precision": "q4", "model_file": "x"}).record
    with pytest.raises(PinsDiffer, match=r"not measured in the same way: sampling\.epochs: 1 against 2"):
        compare(base, other)
    with pytest.raises(
        PinsDiffer, match="differ in more than one variable: engine: a against b; precision: f16 against q4"
    ):
        compare(base, two)
    assert len(compare(base, model).changes) == 2  # facts about one model are one variable
    with pytest.raises(PinsDiffer, match="more than one"):
        compare(base, model, variable="engine_flags")


def test_a_run_without_grades_cannot_be_compared(tmp_path: Path) -> None:
    empty = RunStore(tmp_path / "runs").create("load").finish()
    with pytest.raises(UsageError, match="holds no graded answers"):
        compare(empty, empty)


def places(logprobs: dict[str, float], text: str = "a", count: int = 4, repeat: int = 0) -> pl.DataFrame:
    made = [
        {"text": text, "position": p, "repeat": repeat, "rank": r, "token": t, "logprob": v}
        for p in range(count)
        for r, (t, v) in enumerate(sorted(logprobs.items(), key=lambda x: -x[1]))
    ]
    return pl.DataFrame(made, schema=DISTRIBUTION_SCHEMA)


def test_equal_distributions_do_not_diverge_and_a_known_pair_does_by_its_kl() -> None:
    half = {"x": math.log(0.5), "y": math.log(0.5)}
    skew = {"x": math.log(0.9), "y": math.log(0.1)}
    same = divergence(places(half), places(half))
    assert same is not None
    assert (same.mean_kl, same.same_top, same.positions) == (0.0, 1.0, 4)
    apart = divergence(places(half), places(skew))
    assert apart is not None
    assert apart.mean_kl == pytest.approx(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1), rel=1e-4)
    assert divergence(places(half), places(half, text="b")) is None
    floor = floor_of(pl.concat([places(half), places(half, repeat=1)]))
    assert floor is not None
    assert floor.mean_kl == 0.0


TOP = b'{"token":" b","bytes":[32,98],"logprob":-2.5},{"token":" a","bytes":[32,97],"logprob":-0.1}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices":[{"logprobs":{"content":[{"top_logprobs":[%b]}]}}]}' % TOP,
        b'{"choices":[{"logprobs":{"top_logprobs":[{" b":-2.5," a":-0.1}]}}]}',
    ],
)
def test_both_shapes_of_log_probabilities_are_read(body: bytes) -> None:
    found = read_logprobs(body)
    assert [v for _, v in found] == [-0.1, -2.5]
    assert found[0][0] != found[1][0]
    assert read_logprobs(b'{"choices":[{"text":"x"}]}') == []
    assert read_logprobs(b"<html>") == []
