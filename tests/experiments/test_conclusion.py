"""Speed and answers decide together."""

from dataclasses import replace

import pytest
from tests.experiments.test_analysis import CARD, blocks

from setpoint.experiments.agreement import agreement
from setpoint.experiments.analysis import analyse
from setpoint.experiments.change import Change
from setpoint.experiments.conclusion import conclude
from setpoint.experiments.verdict import Judgement
from setpoint.metrics.verdict import State
from setpoint.quality.compare import Comparison, Paired

FASTER, AS_FAST = analyse(CARD, blocks(b_ttft_s=0.15)), analyse(CARD, blocks())
PAIRED = Paired("core", 180, 1.0, 0.4, 0.4, 0.0, -0.02, 0.02, 2, 2, 1.0, 0.9, 0.05, State.MET, "same within 5%")


def answers(state: State) -> Comparison:
    suite = replace(PAIRED, state=state, words=f"is {state}")
    return Comparison("a", "b", (), (suite,), None, None, (), None)


def test_faster_with_answers_that_are_no_worse_is_better() -> None:
    found = conclude(FASTER, [answers(State.MET)], "the suite")
    assert found.judgement is Judgement.BETTER
    assert "core is met" in found.reason


def test_faster_with_worse_answers_is_worse_and_not_a_win() -> None:
    assert conclude(FASTER, [answers(State.MISSED)], "the suite").judgement is Judgement.WORSE
    assert conclude(FASTER, [answers(State.MET), answers(State.MISSED)], None).judgement is Judgement.WORSE
    assert conclude(AS_FAST, [answers(State.MISSED)], None).judgement is Judgement.WORSE


def test_faster_with_answers_that_nobody_could_judge_is_undecided() -> None:
    assert conclude(FASTER, [answers(State.UNDECIDED)], None).judgement is Judgement.UNDECIDED
    found = conclude(FASTER, [], "long answers")
    assert found.judgement is Judgement.UNDECIDED
    assert "the answers were not checked: long answers" in found.reason


def test_a_change_that_cannot_touch_answers_is_judged_by_speed_alone() -> None:
    assert conclude(FASTER, [], None).judgement is Judgement.BETTER
    assert conclude(AS_FAST, [], None).judgement is AS_FAST.judgement
    assert conclude(AS_FAST, [], "the suite").judgement is AS_FAST.judgement


@pytest.mark.parametrize(
    ("change", "demanded"),
    [
        (Change("engine.cache_type_k", "q4_0"), True),
        (Change("engine.kv_cache_dtype", "fp8"), True),  # as vLLM spells it, with dashes
        (Change("model", "smaller"), True),
        (Change("card.traffic.prefix.position", "front"), True),
        (Change("engine.n_parallel", "4"), False),
        (Change("engine.n_threads", "1"), False),
    ],
)
def test_the_playbook_says_which_changes_need_a_check(change: Change, *, demanded: bool) -> None:
    assert (change.quality_check is not None) is demanded


def test_agreement_is_told_by_text_and_by_where_two_answers_part() -> None:
    a = {("s", "t1", 0): "abcd", ("s", "t2", 0): "abcd", ("s", "t3", 0): "x", ("s", "only", 0): "a"}
    b = {("s", "t1", 0): "abcd", ("s", "t2", 0): "abXYZZZZ", ("s", "t3", 0): "", ("s", "other", 0): "a"}
    found = agreement(a, b)
    assert found is not None
    assert found.answers == 3
    assert found.same == pytest.approx(1 / 3)
    assert found.until == pytest.approx((1 + 2 / 8 + 0) / 3)
    assert agreement({}, b) is None
