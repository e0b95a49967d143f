"""The rules of the search, against targets of known capacity, without any measurement."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.load.ladder import RESOLUTION, SHORT_S, Attempt, Ladder
from setpoint.metrics.capacity import highest_met, lowest_missed, overall_state, undecided_between
from setpoint.metrics.verdict import State

MET, MISSED, UNDECIDED = State.MET, State.MISSED, State.UNDECIDED
OVERHEAD_S = 4.0


def search(
    capacity: float, start: float, budget_s: float, *, blur: float = 0.0, seed: int = 0, whole: bool = False
) -> tuple[list[Attempt], float]:
    """Climbs against a target that keeps its promises up to ``capacity``; within ``blur`` of it nothing is decided."""
    chance = random.Random(seed)
    ladder = Ladder(
        start, whole, needed_s=lambda load: 200 / load, least_s=lambda load: 60 / load, overhead_s=OVERHEAD_S
    )
    tried: list[Attempt] = []
    left = budget_s
    while left > SHORT_S + OVERHEAD_S and len(tried) < 100:
        following = ladder.following(tried, left)
        if following is None:
            break
        load, window = following
        assert window >= SHORT_S
        assert window + OVERHEAD_S <= left
        truth = MET if load <= capacity else MISSED
        near = abs(load / capacity - 1) < blur
        short = window * load < 60
        lean = chance.choice((MET, MISSED)) if near else truth
        tried.append(Attempt(load, UNDECIDED if short or near else truth, lean, ladder.decides(load, window)))
        left -= window + OVERHEAD_S
    return tried, left


@given(st.floats(0.05, 500), st.floats(0.5, 50))
def test_finds_the_capacity_of_a_steady_target(capacity: float, start: float) -> None:
    if not 1 / 500 < capacity / start < 500:
        return
    tried, _ = search(capacity, start, budget_s=1e6)
    met, missed = highest_met(tried), lowest_missed(tried)
    assert met is not None
    assert missed is not None
    assert met.load <= capacity < missed.load
    assert missed.load / met.load <= RESOLUTION * 1.01


@given(st.floats(0.5, 200), st.integers(0, 10_000))
def test_a_met_and_a_missed_load_are_found_around_a_blurred_capacity(capacity: float, seed: int) -> None:
    tried, _ = search(capacity, 2.0, budget_s=1e6, blur=0.3, seed=seed)
    met, missed = highest_met(tried), lowest_missed(tried)
    assert met is not None
    assert missed is not None
    assert met.load < capacity < missed.load
    assert missed.load / met.load < 3


@given(st.floats(0.2, 64), st.integers(0, 10_000), st.floats(100, 400))
def test_a_small_budget_goes_to_a_met_load_first(capacity: float, seed: int, budget_s: float) -> None:
    tried, left = search(capacity, 2.0, budget_s=budget_s, blur=0.2, seed=seed)
    assert left > -SHORT_S
    decided = [t.state for t in tried if t.long and t.state is not UNDECIDED]
    steps_to_bracket = sum(not t.long for t in tried)
    if budget_s > 14 * steps_to_bracket + 2 * 200 / 0.2 and decided:
        assert MET in decided


def test_users_are_whole_numbers() -> None:
    tried, _ = search(11.5, 4, budget_s=1e5, whole=True)
    assert all(t.load == int(t.load) for t in tried)
    met, missed = highest_met(tried), lowest_missed(tried)
    assert met is not None
    assert missed is not None
    assert met.load <= 11 < missed.load <= 13


def test_a_target_that_never_keeps_its_promises_ends_the_search() -> None:
    tried, left = search(1e-9, 2.0, budget_s=1e6)
    assert left >= 0
    assert overall_state(tried) is MISSED


def test_a_load_that_leans_met_but_is_missed_when_looked_at_for_longer_is_stepped_down_from() -> None:
    ladder = Ladder(
        2.0, whole=False, needed_s=lambda load: 200 / load, least_s=lambda load: 60 / load, overhead_s=OVERHEAD_S
    )
    tried = [
        Attempt(2.0, UNDECIDED, MET, long=False),
        Attempt(4.0, MISSED, MISSED, long=False),
        Attempt(2.0, UNDECIDED, MISSED, long=True),
    ]
    following = ladder.following(tried, 500.0)
    assert following is not None
    assert following[0] == pytest.approx(1.4)
    assert following[1] > SHORT_S


def test_a_met_load_above_a_missed_one_is_noise() -> None:
    tried = [Attempt(4.0, MET, MET, long=True), Attempt(2.0, MISSED, MISSED, long=True)]
    assert highest_met(tried) is None
    assert overall_state(tried) is MISSED


def test_a_missed_load_above_an_undecided_one_does_not_say_that_the_target_misses() -> None:
    tried = [Attempt(4.0, MISSED, MISSED, long=True), Attempt(2.0, UNDECIDED, MET, long=True)]
    assert overall_state(tried) is UNDECIDED
    assert [t.load for t in undecided_between(tried)] == [2.0]
