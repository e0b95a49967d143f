"""A schedule is a function of card and seed alone, and has the rates, bursts and lengths that the card names."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tests.workload.cards import card

from setpoint.errors import UsageError
from setpoint.workload.card import Workload
from setpoint.workload.generate import CLOSED_REQUESTS, MAX_REQUESTS, schedule_for, session_rate
from setpoint.workload.reading import parse_card
from setpoint.workload.schedule import Schedule, TurnKind
from setpoint.workload.templates import USE_CASES, template

SOURCE = Path(__file__).parents[2] / "src"

# Digests of version 1: a change here changes what a seed means, so that old and new runs cannot be compared.
GOLDEN = {
    "chat": "22a6ef39e7696086b567ddb8f4d65284e0119457d982be0cc38c6f425dbf5017",
    "coding-agent": "e0de1ee4be71b96d1bdf75ee45918d8d6c7f3b3c8fe91e22482b5dafd84a07e1",
    "rag": "7a8d4cc141f8f2f6baecd67c5ba44387e936c0f96cea71636245fa297ae3601f",
    "batch-extraction": "25454f3a068cbe55f765ca545edf460ea86dd24c5a9a9146a9dc6b1bea148ed4",
    "embeddings": "e51d8d91317959a08e6f6a3d9a1f569480436902adb769aa943693501cae97c3",
}


def of(use_case: str) -> Workload:
    return parse_card(template(use_case).encode(), use_case)


def starts(schedule: Schedule) -> np.ndarray:
    return np.array([s.start_s for s in schedule.sessions], dtype=np.float64)


@pytest.mark.parametrize("use_case", USE_CASES)
def test_a_schedule_is_the_same_bytes_as_ever(use_case: str) -> None:
    assert schedule_for(of(use_case), 7, max_requests=3000).digest() == GOLDEN[use_case]


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_a_schedule_is_the_same_in_another_process(hash_seed: str) -> None:
    program = (
        "from setpoint.workload.generate import schedule_for\n"
        "from setpoint.workload.reading import parse_card\n"
        "from setpoint.workload.templates import USE_CASES, template\n"
        "for name in USE_CASES:\n"
        "    card = parse_card(template(name).encode(), name)\n"
        "    print(name, schedule_for(card, 7, max_requests=3000).digest(), card.digest())\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONHASHSEED": hash_seed, "TZ": "Asia/Kolkata"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    here = [f"{name} {GOLDEN[name]} {of(name).digest()}" for name in USE_CASES]
    assert done.stdout.splitlines() == here


def test_another_seed_is_another_schedule() -> None:
    assert len({schedule_for(of("chat"), seed).digest() for seed in range(20)}) == 20


def test_a_card_that_differs_in_words_only_has_the_same_schedule() -> None:
    assert schedule_for(card(), 3).digest() == schedule_for(card(rest="description: other"), 3).digest()


def test_the_digest_sees_every_part_of_a_schedule() -> None:
    cards = [
        card(),
        card(prompt="101"),
        card(output="21"),
        card(arrivals="{process: poisson, rate: 2.1/s}"),
        card(traffic="prefix: {tokens: 10}"),
        card(traffic="prefix: {tokens: 10, groups: 2}"),
        card(traffic="conversation: {turns: 2}"),
        card(traffic="conversation: {turns: 2, think_time: 1s}"),
        card(traffic="agent: {tool_turns: 1, result_tokens: 100}"),
        card(arrivals="{process: closed, users: 2}"),
        card(arrivals="{process: closed, users: 3}"),
    ]
    assert len({schedule_for(c, 1).digest() for c in cards}) == len(cards)


arrivals = st.one_of(
    st.builds("{{process: constant, rate: {}}}".format, st.floats(0.05, 50)),
    st.builds("{{process: poisson, rate: {}}}".format, st.floats(0.05, 50)),
    st.builds("{{process: gamma, rate: {}, burstiness: {}}}".format, st.floats(0.05, 50), st.floats(0.02, 50)),
    st.builds("{{process: ramp, start: {}, end: {}}}".format, st.floats(0.05, 50), st.floats(0.05, 50)),
)


@given(arrivals, st.integers(0, 2**63), st.floats(0.5, 60), st.integers(1, 200))
@settings(deadline=None, max_examples=150)
def test_starts_are_ordered_inside_the_window_and_repeatable(
    process: str, seed: int, window_s: float, most: int
) -> None:
    read = card(arrivals=process, traffic="conversation: {turns: {min: 1, max: 4}}")
    schedule = schedule_for(read, seed, duration_s=window_s)
    times = starts(schedule)
    assert schedule == schedule_for(read, seed, duration_s=window_s)
    assert np.all(np.diff(times) >= 0)
    assert np.all((times >= 0) & (times < window_s))
    assert [s.index for s in schedule.sessions] == list(range(len(times)))
    assert schedule.requests == sum(len(s.turns) for s in schedule.sessions)
    cut = schedule_for(read, seed, duration_s=window_s, max_requests=most)
    assert cut.sessions == schedule.sessions[: len(cut.sessions)]
    assert cut.requests <= most or len(cut.sessions) == 1


@given(st.floats(0.05, 50), st.floats(0.5, 100))
@settings(deadline=None)
def test_a_constant_rate_sends_as_many_as_fit(rate: float, window_s: float) -> None:
    schedule = schedule_for(card(arrivals=f"{{process: constant, rate: {rate}}}"), 1, duration_s=window_s)
    assert len(schedule.sessions) == np.ceil(session_rate_of(rate) * window_s - 1e-9)
    assert np.allclose(np.diff(starts(schedule)), 1 / rate, atol=2e-6)


def session_rate_of(rate: float) -> float:
    return session_rate(card(arrivals=f"{{process: constant, rate: {rate}}}").traffic.arrivals)


@given(st.integers(0, 1000))
@settings(deadline=None, max_examples=25)
def test_a_longer_window_begins_like_a_shorter_one(seed: int) -> None:
    for process in ("{process: poisson, rate: 5}", "{process: gamma, rate: 5, burstiness: 4}"):
        read = card(arrivals=process)
        short, long = starts(schedule_for(read, seed, duration_s=20)), starts(schedule_for(read, seed, duration_s=200))
        assert np.allclose(short, long[: len(short)], atol=2e-6)
        assert len(long) == len(short) or long[len(short)] >= 20 - 2e-6


def test_rates_change_no_length_and_lengths_no_arrival() -> None:
    one = schedule_for(card(prompt="{p50: 9, max: 99}"), 5)
    faster = schedule_for(card(prompt="{p50: 9, max: 99}"), 5, rate_per_s=4)
    assert [s.turns for s in one.sessions] == [s.turns for s in faster.sessions[: len(one.sessions)]]
    longer = schedule_for(card(prompt="{p50: 90, max: 990}", output="{p50: 3, max: 7}"), 5)
    assert starts(longer).tolist() == starts(one).tolist()


@pytest.mark.parametrize("seed", range(5))
def test_poisson_gaps_are_exponential_and_independent(seed: int) -> None:
    times = starts(schedule_for(card(arrivals="{process: poisson, rate: 20}"), seed, duration_s=500))
    gaps = np.diff(times)
    assert stats.kstest(gaps, stats.expon(scale=1 / 20).cdf).pvalue > 0.001
    assert stats.kstest(times / 500, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 4 / np.sqrt(len(gaps))
    per_second = np.bincount(times.astype(int), minlength=500)
    assert per_second.var() / per_second.mean() == pytest.approx(1, abs=4 * np.sqrt(2 / 500))


@pytest.mark.parametrize("burstiness", [0.1, 0.5, 1, 3, 10])
def test_gamma_gaps_have_the_burstiness_of_the_card(burstiness: float) -> None:
    process = f"{{process: gamma, rate: 20, burstiness: {burstiness}}}"
    gaps = np.diff(starts(schedule_for(card(arrivals=process), 3, duration_s=2000)))
    shape = 1 / burstiness
    jittered = gaps + np.random.Generator(np.random.PCG64(0)).uniform(0, 1e-6, len(gaps))  # rounded to microseconds
    assert stats.kstest(jittered[gaps > 1e-4], _truncated(shape, burstiness / 20, 1e-4)).pvalue > 0.001
    assert gaps.var() / gaps.mean() ** 2 == pytest.approx(burstiness, rel=0.1)
    assert gaps.mean() == pytest.approx(1 / 20, rel=4 * np.sqrt(burstiness / len(gaps)))


def _truncated(shape: float, scale: float, above: float) -> Callable[[float], float]:
    gamma = stats.gamma(shape, scale=scale)
    return lambda x: (gamma.cdf(x) - gamma.cdf(above)) / gamma.sf(above)


@pytest.mark.parametrize("burstiness", [0.05, 1, 5, 30, 300])
def test_bursts_do_not_change_the_mean_number_of_sessions(burstiness: float) -> None:
    read = card(arrivals=f"{{process: gamma, rate: 2, burstiness: {burstiness}}}")
    counts = np.array([len(schedule_for(read, seed, duration_s=60).sessions) for seed in range(400)])
    assert counts.mean() == pytest.approx(120, abs=4 * counts.std() / 20 + 1e-9)


@pytest.mark.parametrize(
    "process", ["constant, rate: 3", "poisson, rate: 3", "ramp, start: 1, end: 5", "ramp, start: 5, end: 1"]
)
def test_the_mean_number_of_sessions_is_rate_times_window(process: str) -> None:
    read = card(arrivals=f"{{process: {process}}}")
    counts = np.array([len(schedule_for(read, seed, duration_s=40).sessions) for seed in range(200)])
    assert counts.mean() == pytest.approx(120, abs=4 * np.sqrt(120 / 200))
    assert schedule_for(read, 1).offered_per_s == pytest.approx(3)


@pytest.mark.parametrize(("start", "end"), [(1, 39), (39, 1), (20, 20), (20, 20.0000001)])
def test_a_ramp_rises_in_a_straight_line(start: float, end: float) -> None:
    times = starts(schedule_for(card(arrivals=f"{{process: ramp, start: {start}, end: {end}}}"), 2, duration_s=200))
    share = (start * times + (end - start) * times**2 / 400) / (100 * (start + end))
    assert stats.kstest(share, "uniform").pvalue > 0.001


def test_a_rate_scales_a_ramp_and_opens_a_closed_loop() -> None:
    ramp = schedule_for(card(arrivals="{process: ramp, start: 1, end: 3}"), 1, rate_per_s=20)
    assert ramp.offered_per_s == pytest.approx(20)
    closed = schedule_for(card(arrivals="{process: closed, users: 2}"), 1, rate_per_s=20, duration_s=100)
    assert closed.concurrency is None
    assert len(closed.sessions) == pytest.approx(2000, abs=4 * np.sqrt(2000))


def test_a_closed_loop_has_users_and_no_starts() -> None:
    schedule = schedule_for(card(arrivals="{process: closed, users: 3, think_time: {min: 1s, max: 3s}}"), 1)
    assert (schedule.concurrency, schedule.offered_per_s) == (3, None)
    assert {s.start_s for s in schedule.sessions} == {None}
    assert all(1 <= s.turns[0].wait_s <= 3 for s in schedule.sessions)
    assert len(schedule.sessions) > 3 * 60


def test_users_instead_of_the_arrivals_of_the_card() -> None:
    assert schedule_for(card(), 1, concurrency=5).concurrency == 5
    paced = schedule_for(card(arrivals="{process: closed, users: 3, think_time: 2s}"), 1, concurrency=5)
    assert paced.sessions[0].turns[0].wait_s == pytest.approx(2)


def test_a_user_thinks_between_sessions_and_between_turns_independently() -> None:
    traffic = "conversation: {turns: 2, think_time: {min: 0, max: 1s}}"
    read = card(arrivals="{process: closed, users: 3, think_time: {min: 0, max: 1s}}", traffic=traffic)
    pairs = np.array([[t.wait_s for t in s.turns] for s in schedule_for(read, 1).sessions])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 4 / np.sqrt(len(pairs))


def test_a_large_closed_loop_is_bounded_and_gives_each_user_a_session() -> None:
    turns = "agent: {tool_turns: 50, result_tokens: 5}"
    schedule = schedule_for(card(arrivals="{process: closed, users: 100}", traffic=turns), 1, duration_s=3600)
    assert schedule.requests == pytest.approx(CLOSED_REQUESTS, rel=0.01)
    small = schedule_for(card(arrivals="{process: closed, users: 100}"), 1, duration_s=0.001)
    assert len(small.sessions) == 100


@pytest.mark.parametrize(
    "parts",
    [
        {"arrivals": "{process: poisson, rate: 1e6}", "traffic": "duration: 1h"},
        {"arrivals": "{process: constant, rate: 1e200}"},
        {"arrivals": "{process: gamma, rate: 1e6, burstiness: 9}"},
        {"arrivals": "{process: ramp, start: 1, end: 1e7}"},
        {"traffic": "conversation: {turns: 100k}"},
    ],
)
def test_a_plan_too_large_to_keep_is_refused(parts: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=f"at most {MAX_REQUESTS:,}") as caught:
        schedule_for(card(**parts), 1)
    assert caught.value.fix


def test_turns_of_a_conversation_follow_their_distributions() -> None:
    traffic = (
        "conversation: {turns: {values: [1, 2, 5]}, think_time: {min: 1s, max: 9s}, follow_up_tokens: {values: [7, 8]}}"
    )
    schedule = schedule_for(card(arrivals="{process: poisson, rate: 50}", traffic=traffic), 4, duration_s=60)
    counts = np.array([len(s.turns) for s in schedule.sessions])
    seen = np.array([np.sum(counts == n) for n in (1, 2, 5)])
    assert seen.sum() == len(counts)
    assert stats.chisquare(seen).pvalue > 0.001
    assert schedule.offered_per_s == pytest.approx(50 * counts.mean())
    later = [t for s in schedule.sessions for t in s.turns[1:]]
    assert {t.prompt_tokens for t in later} == {7, 8}
    assert {t.kind for t in later} == {TurnKind.USER}
    waits = np.log([t.wait_s for t in later])
    assert stats.kstest(waits, stats.uniform(0, np.log(9)).cdf).pvalue > 0.001
    assert {(s.turns[0].prompt_tokens, s.turns[0].wait_s) for s in schedule.sessions} == {(100, 0.0)}


def test_follow_ups_are_as_long_as_openings_unless_named() -> None:
    schedule = schedule_for(card(traffic="conversation: {turns: 3}"), 4)
    assert {t.prompt_tokens for s in schedule.sessions for t in s.turns} == {100}


def test_tool_turns_of_an_agent() -> None:
    traffic = "agent: {tool_turns: {values: [0, 3]}, tool_time: 2 s, result_tokens: 40}"
    schedule = schedule_for(card(traffic=traffic), 4)
    assert {len(s.turns) for s in schedule.sessions} == {1, 4}
    later = [t for s in schedule.sessions for t in s.turns[1:]]
    assert {(t.kind, t.prompt_tokens) for t in later} == {(TurnKind.TOOL, 40)}
    assert {t.wait_s for t in later} == {2.0}
    assert {s.turns[0].kind for s in schedule.sessions} == {TurnKind.USER}


def test_prefixes_take_part_as_often_as_the_card_says() -> None:
    traffic = "prefix: {tokens: 60, groups: 4, share: 70%}"
    schedule = schedule_for(card(arrivals="{process: poisson, rate: 50}", traffic=traffic), 4)
    groups = [s.turns[0].prefix_group for s in schedule.sessions]
    shared = [g for g in groups if g is not None]
    assert stats.binomtest(len(shared), len(groups), 0.7).pvalue > 0.001
    assert stats.chisquare(np.bincount(shared, minlength=4)).pvalue > 0.001
    assert {(s.turns[0].prefix_group is None, s.turns[0].prefix_tokens) for s in schedule.sessions} == {
        (True, 0),
        (False, 60),
    }


def test_a_prefix_leaves_the_length_of_a_prompt_as_it_is() -> None:
    schedule = schedule_for(card(prompt="{values: [1, 30, 90]}", traffic="prefix: {tokens: 60}"), 4)
    seen = {(t.prompt_tokens, t.prefix_tokens, t.prefix_group) for s in schedule.sessions for t in s.turns}
    assert seen == {(1, 0, None), (30, 29, 0), (90, 60, 0)}


def test_prompt_and_output_lengths_are_drawn_apart() -> None:
    lengths = "{min: 1, max: 1000}"
    schedule = schedule_for(card(arrivals="{process: poisson, rate: 50}", prompt=lengths, output=lengths), 4)
    pairs = np.log([[s.turns[0].prompt_tokens, s.turns[0].output_tokens] for s in schedule.sessions])
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 4 / np.sqrt(len(pairs))


def test_a_closed_loop_has_no_rate() -> None:
    with pytest.raises(ValueError, match="closed arrivals have no rate"):
        session_rate(card(arrivals="{process: closed, users: 2}").traffic.arrivals)
