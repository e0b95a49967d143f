"""The budget of an end-to-end promise, and breaches by cause."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.diagnosis.evidence import Costs, card, evidence, exchange, ladder, observe, outputs

from setpoint.assess.bench import Bench
from setpoint.assess.probe import run_probe
from setpoint.assess.target import TargetOptions, open_target
from setpoint.diagnosis.attribution import attribute
from setpoint.diagnosis.budget import RESERVE, Budget, Line, budget
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.probe import Conditions
from setpoint.diagnosis.probes import PROBES
from setpoint.diagnosis.wording import budget_rows
from setpoint.records.exchange import Outcome
from setpoint.records.meta import Series
from setpoint.records.store import RunStore
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script
from setpoint.testing.slow_proxy import slow_proxy

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


def behind_a_gateway(direct: bool, gauges: Mapping[str, float] | None = None) -> Evidence:
    """A gateway that takes 0.3 s, and connections that take 20 ms."""
    slow = Costs(upstream_s=0.3)
    rows = [exchange(i, i * 3.0, slow) for i in range(30)]
    subject = replace(observe(rows, E2E, gauges=gauges), connect_s=np.full(5, 0.02))
    past = [exchange(i, i * 2.0, Costs(), prompt=n, output=2) for i, n in enumerate([20, 60, 100, 200] * 5)]
    others = [ladder(E2E, slow), outputs(E2E, slow)]
    others += [observe(past, E2E, probe="direct")] if direct else []
    return Evidence(subject, tuple(others))


def lines_of(found: Budget | None) -> dict[str, Line]:
    """The lines by part, which make up the promise."""
    assert found is not None
    assert sum(line.allowed_s or 0.0 for line in found.lines) + found.reserve_s == pytest.approx(found.limit_s)
    assert len(budget_rows(found)) == len(found.lines) + 2
    return {line.part: line for line in found.lines}


def test_network_and_gateway_stand_apart_where_the_same_prompts_went_past_the_gateway() -> None:
    lines = lines_of(budget(behind_a_gateway(direct=True)))
    assert lines["network"].measured_s == pytest.approx(0.02)
    assert "median of 5 new connections" in lines["network"].how
    assert lines["gateway"].measured_s == pytest.approx(0.3, abs=0.001)
    assert lines["prefill and overhead"].measured_s == pytest.approx(0.03 - 0.02, abs=0.001)  # each counts once
    assert lines["prefill and overhead"].allowed_s == pytest.approx(0.03 - 0.02, abs=0.001)


def test_a_gateway_that_is_not_measured_is_not_guessed() -> None:
    lines = lines_of(budget(behind_a_gateway(direct=False)))
    assert lines["gateway"].measured_s is None
    assert lines["gateway"].allowed_s is None
    assert "not measured (--direct URL" in lines["gateway"].how
    assert lines["prefill and overhead"].measured_s == pytest.approx(0.3 + 0.03 - 0.02, abs=0.001)


def test_what_is_in_flight_and_not_in_the_engine_is_network_and_gateway_together() -> None:
    known = behind_a_gateway(direct=False, gauges={"requests_running": 0.05, "requests_waiting": 0.0})
    assert known.upstream is not None
    lines = lines_of(budget(known))
    assert lines["gateway"].measured_s == pytest.approx(known.upstream.value - 0.02)
    assert "front end included" in lines["gateway"].how


def test_a_slow_proxy_in_front_of_an_engine_is_gateway_and_not_network(tmp_path: Path) -> None:
    """Over real sockets: the proxy takes connections at once, and holds each request for 0.2 s."""
    quick = Conditions(wait_s=0.05, step_s=0.01, rate_per_s=4.0, users=None, streams=2)
    workload = card("p90 e2e <= 1 s", output_tokens=4, duration="2s", arrivals={"process": "poisson", "rate": "4/s"})
    with (
        fake_engine(Script(slots=8)) as engine,
        slow_proxy(engine.url, 0.2) as url,
        open_target(workload, TargetOptions(url=url)) as through,
        open_target(workload, TargetOptions(url=engine.url)) as direct,
    ):
        bench = Bench(card=workload, folder=".", opened=through, store=RunStore(tmp_path))
        place = Series(id="way", kind="diagnose", step=0)
        made = [bench.one(duration_s=2.0, series=place).record]
        made += [run_probe(bench, PROBES[n], quick, place, direct).record for n in ("prompt_ladder", "direct")]
    subject, *others = (Observation.from_record(r) for r in made)
    found = budget(Evidence(subject, tuple(others)))
    assert found is not None
    lines = {line.part: line for line in found.lines}
    gateway, network = lines["gateway"].measured_s, lines["network"].measured_s
    assert gateway is not None
    assert network is not None
    assert gateway > 0.1
    assert network < gateway
    assert "new connections" in lines["network"].how


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
