"""Probes are descriptions: a bounded schedule, a question, and what each result means."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from tests.diagnosis.evidence import Costs, card, exchange, observe

from setpoint.diagnosis.probe import Conditions
from setpoint.diagnosis.probes import PROBES
from setpoint.diagnosis.probes.decode_control import slowdown
from setpoint.diagnosis.probes.prefix_pair import arms
from setpoint.records.exchange import Exchange, Outcome

CARD = card("p90 ttft <= 1 s", prompt_tokens={"min": 40, "p50": 200, "max": 2000}, output_tokens=64)
OPEN = Conditions(wait_s=0.1, step_s=0.02, rate_per_s=4.0, users=None, streams=9)
CLOSED = Conditions(wait_s=0.1, step_s=0.02, rate_per_s=None, users=8, streams=8)
SLOW = Conditions(wait_s=20.0, step_s=1.0, rate_per_s=4.0, users=None, streams=40)


@pytest.mark.parametrize("name", PROBES)
@pytest.mark.parametrize("conditions", [OPEN, CLOSED, SLOW])
def test_a_probe_is_bounded_and_repeats_itself(name: str, conditions: Conditions) -> None:
    probe = PROBES[name]
    schedule = probe.schedule(CARD, conditions)
    assert schedule.requests > 0
    assert schedule == probe.schedule(CARD, conditions)
    assert [s.index for s in schedule.sessions] == list(range(len(schedule.sessions)))
    starts = [s.start_s for s in schedule.sessions if s.start_s is not None]
    assert starts == sorted(starts)
    assert all(s < schedule.duration_s for s in starts)
    assert (schedule.concurrency is None) == bool(starts)
    assert probe.cost_s(CARD, conditions) > schedule.duration_s
    if conditions is not SLOW:
        assert probe.cost_s(CARD, conditions) < 40


@pytest.mark.parametrize("name", PROBES)
def test_a_probe_says_what_each_result_would_mean(name: str) -> None:
    probe = PROBES[name]
    assert probe.name == name
    assert probe.question.endswith("?")
    assert len(probe.results) >= 2
    assert len({result for result, _ in probe.results}) == len(probe.results)


def test_half_load_is_half_of_it() -> None:
    half = PROBES["half_load"]
    assert half.schedule(CARD, CLOSED).concurrency == 4
    assert half.schedule(CARD, OPEN).offered_per_s == pytest.approx(2.0)


def test_the_pairs_of_shared_and_unique_prompts_are_told_apart() -> None:
    plan = PROBES["prefix_pair"].schedule(CARD, OPEN)
    rows = [
        exchange(
            s.index, s.index * 1.0, Costs(queue_s=0.0 if s.turns[0].prefix_group is not None else 0.5), prompt=2000
        )
        for s in plan.sessions
    ]
    unique, shared, tokens = arms(observe(rows, CARD, probe="prefix_pair"))
    assert np.allclose(unique - 0.5, shared[0])
    assert tokens == pytest.approx(1800)


def control(long_at: float, stall_s: float = 0.3, first_s: float = 0.0) -> list[Exchange]:
    """Streams at 0 and 10 s, and a long prompt."""
    rows = [exchange(i, (i // 3) * 10.0, Costs(stall_s=(i // 3) * stall_s + first_s), output=30) for i in range(6)]
    return [*rows, exchange(6, long_at, Costs(prefill_s=0.001), prompt=300, output=1)]


def test_the_control_sees_a_slowdown_beside_long_prompts() -> None:
    found = slowdown(observe(control(10.1), CARD, probe="decode_control"))
    assert found is not None
    assert found.low > 1.5


def test_streams_that_the_end_of_the_control_cuts_short_count_too() -> None:
    """They were the slowest: without them the strongest interference would be the one that is not seen."""
    rows = control(10.1)
    cut = [
        msgspec.structs.replace(
            row, outcome=Outcome.TIMEOUT, finish_reason=None, chunk_tokens=[1] * 12, chunk_kinds="c" * 12,
            chunk_s=row.chunk_s[:9] + [t + 5 for t in row.chunk_s[9:12]],
            last_token_s=row.chunk_s[11] + 5, done_s=row.chunk_s[11] + 5,
        )
        for row in rows[3:6]
    ]  # fmt: skip
    found = slowdown(observe([*rows[:3], *cut, rows[6]], CARD, probe="decode_control"))
    assert found is not None
    assert found.low > 10


def test_a_control_that_did_not_put_a_long_prompt_beside_streams_says_nothing() -> None:
    for rows in (
        control(10.1)[:3],  # one half only
        control(10.1)[:6],  # no long prompt
        control(11.0),  # it was computed after the streams: it had waited for one of their slots
        control(10.1, first_s=12.0),  # the first streams ran on into it
    ):
        assert slowdown(observe(rows, CARD, probe="decode_control")) is None


def test_the_control_leaves_a_slot_for_the_long_prompt() -> None:
    plan = PROBES["decode_control"].schedule(CARD, replace(OPEN, slots=3))
    assert sum(s.start_s == 0.0 for s in plan.sessions) == 2
