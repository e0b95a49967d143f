"""Verdicts: what is met, missed and undecided, and what can never improve one."""

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.metrics.rows import Promise, answered, e2e, exchange, itl, ttft

from setpoint.metrics.judge import cache_warm, client_bound, judge, judge_all, overall
from setpoint.metrics.table import ExchangeTable
from setpoint.metrics.verdict import State
from setpoint.records.exchange import Exchange, Outcome
from setpoint.workload.promise import Promise as CardPromise

RANK = {State.MISSED: 0, State.UNDECIDED: 1, State.MET: 2}
FAILURES = [o for o in Outcome if not o.answered and o is not Outcome.CANCELLED]


def table(rows: list[Exchange]) -> ExchangeTable:
    return ExchangeTable.from_exchanges(rows)


def test_enough_fast_exchanges_meet_a_promise() -> None:
    verdict = judge(ttft(0.95, 0.8), table([exchange(i) for i in range(80)]))
    assert verdict.state is State.MET
    assert (verdict.share, verdict.samples, verdict.more_samples) == (1.0, 80, None)
    assert verdict.observed == pytest.approx(0.1)


def test_slow_exchanges_miss_it() -> None:
    verdict = judge(ttft(0.95, 0.8), table([exchange(i, ttft_s=0.9 if i % 2 else 0.1) for i in range(80)]))
    assert verdict.state is State.MISSED
    assert verdict.high is not None
    assert verdict.high < 0.95


def test_few_exchanges_decide_nothing_and_the_verdict_says_how_many_would() -> None:
    verdict = judge(ttft(0.95, 0.8), table([exchange(i) for i in range(40)]))
    assert verdict.state is State.UNDECIDED
    assert verdict.reason.startswith("too few samples")
    assert verdict.more_samples == 73 - 40
    assert verdict.observed is None
    assert judge(ttft(0.95, 0.8), table([exchange(i) for i in range(73)])).state is State.MET


def test_no_exchange_is_undecided() -> None:
    verdict = judge(ttft(0.95, 0.8), table([]))
    assert (verdict.state, verdict.share, verdict.low) == (State.UNDECIDED, None, None)
    assert "no exchange" in verdict.reason


@pytest.mark.parametrize("outcome", FAILURES)
@pytest.mark.parametrize("promise", [ttft(0.9, 0.8), itl(0.9, 0.8), e2e(0.9, 3.0), answered(0.9)])
def test_every_kind_of_failure_counts_against_every_promise(outcome: Outcome, promise: Promise) -> None:
    rows = [exchange(i, outcome=outcome if i % 3 == 0 else Outcome.COMPLETE) for i in range(300)]
    verdict = judge(promise, table(rows))
    assert verdict.state is State.MISSED
    assert verdict.share == pytest.approx(2 / 3, abs=0.01)
    assert "100 failed" in verdict.reason


@given(
    fast=st.lists(st.booleans(), max_size=120),
    failures=st.lists(st.tuples(st.integers(0, 120), st.sampled_from(FAILURES)), max_size=40),
    extra=st.tuples(st.floats(0, 121), st.sampled_from(FAILURES)),
    sessions=st.integers(1, 130),
    promise=st.sampled_from([ttft(0.5, 0.8), ttft(0.9, 0.8), itl(0.8, 0.05), e2e(0.9, 0.5), answered(0.9)]),
)
@settings(max_examples=60, deadline=None)
def test_adding_a_failure_never_improves_a_verdict(
    fast: list[bool],
    failures: list[tuple[int, Outcome]],
    extra: tuple[float, Outcome],
    sessions: int,
    promise: Promise,
) -> None:
    rows = [
        exchange(i, ttft_s=0.1 if f else 1.0, gaps_s=(0.01 if f else 0.1,) * (i % 5), session=i % sessions)
        for i, f in enumerate(fast)
    ]
    rows += [
        exchange(200 + i, at=at + 0.5, outcome=outcome, session=at % sessions)
        for i, (at, outcome) in enumerate(failures)
    ]
    before = judge(promise, table(rows))
    after = judge(promise, table([*rows, exchange(999, at=extra[0], outcome=extra[1], session=0)]))
    assert RANK[after.state] <= RANK[before.state]
    if before.low is not None and before.high is not None:
        assert after.low is not None
        assert after.high is not None
        assert after.low <= before.low + 1e-12
        assert after.high <= before.high + 1e-12


@given(st.lists(st.floats(0.01, 2.0), min_size=1, max_size=60), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_the_order_of_the_rows_does_not_matter(latencies: list[float], random: Random) -> None:
    rows = [exchange(i, ttft_s=v) for i, v in enumerate(latencies)]
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert judge(ttft(0.9, 0.8), table(rows)) == judge(ttft(0.9, 0.8), table(shuffled))


@given(st.lists(st.booleans(), min_size=1, max_size=80), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_interval_contains_the_share(fast: list[bool], looks: bool) -> None:
    rows = [exchange(i, ttft_s=0.1 if f else 1.0) for i, f in enumerate(fast)]
    verdict = judge(ttft(0.9, 0.8), table(rows), looks=looks)
    assert verdict.low is not None
    assert verdict.share is not None
    assert verdict.high is not None
    assert 0 <= verdict.low <= verdict.share <= verdict.high <= 1
    assert 1 <= verdict.effective_samples <= verdict.samples


def test_a_client_that_was_the_bottleneck_decides_nothing() -> None:
    for ttft_s in (0.1, 5.0):
        rows = [exchange(i, ttft_s=ttft_s) for i in range(100)]
        verdict = judge(ttft(0.95, 0.8), table(rows), doubts=[client_bound("sends were 400 ms late")])
        assert verdict.state is State.UNDECIDED
        assert "client was the bottleneck: sends were 400 ms late" in verdict.reason


def test_a_warm_cache_spoils_what_is_met_and_not_what_is_missed() -> None:
    doubt = cache_warm("the seed was used before")
    fast, slow = ([exchange(i, ttft_s=s) for i in range(100)] for s in (0.1, 5.0))
    assert judge(ttft(0.95, 0.8), table(fast), doubts=[doubt]).state is State.UNDECIDED
    assert judge(ttft(0.95, 0.8), table(slow), doubts=[doubt]).state is State.MISSED


def test_the_warm_up_is_in_no_verdict() -> None:
    rows = [exchange(i, ttft_s=9.0, warmup=True) for i in range(50)] + [exchange(i) for i in range(50, 150)]
    verdict = judge(ttft(0.95, 0.8), table(rows))
    assert (verdict.state, verdict.samples) == (State.MET, 100)


def test_what_the_client_cut_off_is_neither_met_nor_missed() -> None:
    rows = [exchange(i) for i in range(90)]
    rows += [exchange(90 + i, outcome=Outcome.CANCELLED, kinds="r", gaps_s=(), ttft_s=0.2) for i in range(30)]
    verdict = judge(ttft(0.9, 0.8), table(rows))
    assert verdict.state is State.UNDECIDED
    assert "30 exchanges cut off by the client" in verdict.reason
    late = [exchange(90 + i, outcome=Outcome.CANCELLED, kinds="r", gaps_s=(), ttft_s=2.0) for i in range(30)]
    assert judge(ttft(0.9, 0.8), table(rows[:90] + late)).state is State.MISSED


def test_the_worst_verdict_decides_for_all() -> None:
    rows = table([exchange(i, ttft_s=0.5) for i in range(100)])
    verdicts = judge_all([ttft(0.9, 0.8), ttft(0.9, 0.2), ttft(0.99, 0.8)], rows)
    assert [v.state for v in verdicts] == [State.MET, State.MISSED, State.UNDECIDED]
    assert overall(verdicts) is State.MISSED
    assert overall(verdicts[::2]) is State.UNDECIDED
    assert overall(verdicts[:1]) is State.MET
    assert overall([]) is State.UNDECIDED


def test_a_sample_that_follows_itself_decides_less() -> None:
    """Latencies that creep up and down all within the limit: 90 of them are not 90 observations."""
    latencies = [0.3 + 0.2 * math.sin(i / 8) for i in range(90)]
    wave = [exchange(i, ttft_s=s) for i, s in enumerate(latencies)]
    Random(4).shuffle(latencies)
    scattered = [exchange(i, ttft_s=s) for i, s in enumerate(latencies)]
    assert judge(ttft(0.95, 0.8), table(scattered)).state is State.MET
    verdict = judge(ttft(0.95, 0.8), table(wave))
    assert verdict.state is State.UNDECIDED
    assert verdict.effective_samples < 60


def test_turns_of_one_session_are_not_independent() -> None:
    rows = [exchange(i, session=i // 20, turn=i % 20, ttft_s=0.9 if i // 20 % 10 == 0 else 0.1) for i in range(400)]
    alone = [exchange(i, ttft_s=0.9 if i % 10 == 0 else 0.1) for i in range(400)]
    assert judge(ttft(0.85, 0.8), table(alone)).state is State.MET
    verdict = judge(ttft(0.85, 0.8), table(rows))
    assert verdict.state is State.UNDECIDED
    assert verdict.effective_samples < 60


def test_looking_needs_more_samples_than_waiting() -> None:
    rows = table([exchange(i) for i in range(80)])
    assert judge(ttft(0.95, 0.8), rows).state is State.MET
    verdict = judge(ttft(0.95, 0.8), rows, looks=True)
    assert verdict.state is State.UNDECIDED
    assert verdict.more_samples is not None
    enough = table([exchange(i) for i in range(80 + verdict.more_samples)])
    assert judge(ttft(0.95, 0.8), enough, looks=True).state is State.MET


def test_itl_is_a_share_of_gaps_and_a_failure_weighs_as_an_answer() -> None:
    rows = [exchange(i, gaps_s=(0.01,) * 9, planned_output_tokens=100) for i in range(50)]
    rows += [exchange(50 + i, outcome=Outcome.TRUNCATED, planned_output_tokens=100) for i in range(50)]
    verdict = judge(itl(0.9, 0.05), table(rows))
    assert verdict.samples == 100 * 9
    assert verdict.share == pytest.approx(0.5)
    assert verdict.state is State.MISSED


def test_a_few_failed_exchanges_are_a_few_events_however_many_gaps_they_count() -> None:
    rows = [exchange(i, gaps_s=(0.01,) * 30) for i in range(147)]
    verdict = judge(itl(0.99, 0.05), table(rows))
    assert verdict.state is State.MET
    rows += [exchange(147 + i, outcome=Outcome.REJECTED) for i in range(3)]
    verdict = judge(itl(0.99, 0.05), table(rows))
    assert verdict.share == pytest.approx(0.98)
    assert verdict.state is State.UNDECIDED
    assert verdict.more_samples is not None
    assert verdict.more_samples > 100


def test_only_failures_miss_an_itl_promise() -> None:
    verdict = judge(itl(0.9, 0.05), table([exchange(i, outcome=Outcome.ERROR) for i in range(50)]))
    assert (verdict.state, verdict.share) == (State.MISSED, 0.0)


def test_answers_in_one_piece_leave_itl_undecided() -> None:
    verdict = judge(itl(0.9, 0.05), table([exchange(i, gaps_s=()) for i in range(50)]))
    assert verdict.state is State.UNDECIDED
    assert "50 answers came in a single chunk" in verdict.reason


def test_quality_is_not_judged_from_latencies() -> None:
    verdict = judge(Promise("quality", at_least=0.7, label="quality"), table([exchange(0)]))
    assert verdict.state is State.UNDECIDED
    assert "not measured" in verdict.reason
    assert verdict.required == 0.7


def test_an_overload_is_not_met_however_generous_the_limits() -> None:
    """First tokens come at once, the streams get slower and slower: the backlog grows while TTFT holds."""
    rows = table([exchange(i, at=0.1 * i, gaps_s=(0.1 * i,)) for i in range(300)])
    assert judge(ttft(0.9, 0.8), rows).state is State.MET
    (verdict,) = judge_all([ttft(0.9, 0.8)], rows)
    assert verdict.state is State.UNDECIDED
    assert "no steady state: in flight rose" in verdict.reason
    (missed,) = judge_all([ttft(0.9, 0.05)], rows)
    assert missed.state is State.MISSED


def test_the_promise_of_a_card_is_judged_as_it_stands() -> None:
    promises = [
        CardPromise.model_validate(line)
        for line in ("p90 ttft <= 800 ms", "p90 ttft <= 1 ms from any token", "answered >= 90%", "p90 itl <= 50 ms")
    ]
    verdicts = judge_all(promises, table([exchange(i) for i in range(100)]))
    assert [v.state for v in verdicts] == [State.MET, State.MISSED, State.MET, State.MET]
    assert verdicts[0].promise == "p90 TTFT ≤ 800 ms"
