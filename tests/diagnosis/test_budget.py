"""The budget of an end-to-end promise, and breaches by cause."""

import numpy as np
import pytest
from tests.diagnosis.evidence import Costs, card, evidence, exchange, ladder, outputs

from setpoint.diagnosis.attribution import attribute
from setpoint.diagnosis.budget import RESERVE, budget
from setpoint.records.exchange import Outcome

E2E = card("p90 e2e <= 1 s")


def test_the_queue_gets_what_is_left() -> None:
    rows = [exchange(i, i * 3.0, Costs(queue_s=0.3)) for i in range(30)]
    found = budget(evidence(E2E, rows, ladder(E2E, Costs()), outputs(E2E, Costs())))
    assert found is not None
    lines = {line.part: line for line in found.lines}
    assert found.reserve_s == pytest.approx(RESERVE * 1.0)
    assert lines["queue"].measured_s == pytest.approx(0.3, abs=0.01)
    assert lines["queue"].allowed_s == pytest.approx(1.0 - 0.2 - 0.03 - 15 * 0.01, abs=0.01)
    assert sum(line.allowed_s or 0.0 for line in found.lines) + found.reserve_s == pytest.approx(1.0)
    assert found.kept_alone


def test_a_promise_that_cannot_be_kept_alone_has_no_room_for_a_queue() -> None:
    costs = Costs(step_s=0.1)
    rows = [exchange(i, i * 3.0, costs) for i in range(30)]
    found = budget(evidence(E2E, rows, ladder(E2E, costs), outputs(E2E, costs)))
    assert found is not None
    assert found.kept_alone is False


def test_without_a_service_model_nothing_is_allowed_by_guess() -> None:
    rows = [exchange(i, 0.0, Costs(queue_s=0.3)) for i in range(30)]
    found = budget(evidence(E2E, rows))
    assert found is not None
    assert found.kept_alone is None
    assert {line.part: line.allowed_s for line in found.lines}["queue"] is None


def test_a_card_without_an_end_to_end_promise_has_no_budget() -> None:
    rows = [exchange(i, i * 3.0, Costs()) for i in range(30)]
    assert budget(evidence(card("answered >= 90%", **{"class": "batch"}), rows)) is None


AGENT = card(
    "p90 e2e <= 10 s",
    agent={"tool_turns": 4, "result_tokens": 20, "tool_time": "1s"},
)


def test_a_promise_on_a_whole_task_is_no_budget_of_a_request() -> None:
    rows = [exchange(i, i * 3.0, Costs()) for i in range(30)]
    assert budget(evidence(AGENT, rows)) is None


def test_each_turn_of_a_late_task_breaks_its_promise() -> None:
    """30 tasks of five turns; six of them begin so late in the queue that the whole takes more than 10 s."""
    rows = [
        exchange(i, i * 2.0, Costs(queue_s=5.0 if i // 5 < 6 and i % 5 == 4 else 0.0), session=i // 5, turn=i % 5)
        for i in range(150)
    ]
    symptom = evidence(AGENT, rows).broken[0]
    assert symptom.verdict.samples == 30
    assert np.flatnonzero(symptom.broken).tolist() == list(range(30))
    assert symptom.limit_s == pytest.approx(10.0 / 5)


def test_each_breach_goes_to_its_largest_part() -> None:
    workload = card("p90 ttft <= 150 ms", "answered >= 99%")
    costs = [Costs(queue_s=1.0)] * 5 + [Costs(lag_s=1.0)] * 3 + [Costs(step_s=0.1, reasoning=8)] * 2 + [Costs()] * 10
    rows = [exchange(i, i * 4.0, c) for i, c in enumerate(costs)]
    rows.append(exchange(90, 99.0, Costs(), outcome=Outcome.ERROR))
    found = {a.promise: a for a in attribute(evidence(workload, rows, ladder(workload, Costs())))}
    ttft = found["p90 TTFT ≤ 150 ms"]
    assert dict(ttft.causes) == {"queue": 5, "client": 3, "reasoning": 2}
    assert ttft.broken == 10
    assert dict(found["answered ≥ 99.0%"].causes) == {"error": 1}


def test_what_keeps_the_promise_alone_is_not_blamed_for_what_came_with_it() -> None:
    """A prefill of 130 ms keeps 150 ms; a wait of 80 ms before it, shorter as it is, is what broke the promise."""
    workload, costs = card("p90 ttft <= 150 ms"), Costs(prefill_s=0.0012)
    rows = [exchange(i, i * 4.0, Costs(prefill_s=0.0012, queue_s=0.08)) for i in range(12)]
    [found] = attribute(evidence(workload, rows, ladder(workload, costs)))
    assert dict(found.causes) == {"queue": 12}
    slow = Costs(prefill_s=0.003)  # alone it breaks the promise itself
    rows = [exchange(i, i * 4.0, Costs(prefill_s=0.003, queue_s=0.08)) for i in range(12)]
    [found] = attribute(evidence(workload, rows, ladder(workload, slow)))
    assert dict(found.causes) == {"prefill": 12}


def test_a_long_gap_is_blamed_on_what_made_it_long() -> None:
    workload = card("p90 itl <= 50 ms", output_tokens=30)
    rows = [exchange(i, i * 4.0, Costs(stall_s=0.2), output=30) for i in range(12)]
    [found] = attribute(evidence(workload, rows, ladder(workload, Costs()), outputs(workload, Costs())))
    assert dict(found.causes) == {"decode stall": 12}  # though 29 steps of 10 ms are longer than one stall
