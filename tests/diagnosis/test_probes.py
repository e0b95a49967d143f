"""Probes are descriptions: a bounded schedule, a question, and what each result means."""

import numpy as np
import pytest
from tests.diagnosis.evidence import Costs, card, exchange, observe

from setpoint.diagnosis.probe import Conditions
from setpoint.diagnosis.probes import PROBES
from setpoint.diagnosis.probes.decode_control import slowdown
from setpoint.diagnosis.probes.prefix_pair import arms

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


def test_the_control_sees_a_slowdown_beside_long_prompts() -> None:
    rows = [exchange(i, (i // 3) * 10.0, Costs(stall_s=(i // 3) * 0.3), output=30) for i in range(6)]
    found = slowdown(observe(rows, CARD, probe="decode_control"))
    assert found is not None
    assert found.low > 1.5
    assert slowdown(observe(rows[:3], CARD, probe="decode_control")) is None
