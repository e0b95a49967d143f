"""Long prompts beside streams, and streams beside streams: told apart on an engine that computes both in one batch."""

from dataclasses import replace
from typing import Any

import pytest
from tests.diagnosis.evidence import Batching, card, observe

from setpoint.diagnosis.diagnosis import Diagnosis, diagnose
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Conclusion
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.parts import Part
from setpoint.diagnosis.probe import Conditions
from setpoint.diagnosis.probes import PROBES
from setpoint.workload.card import Workload
from setpoint.workload.generate import schedule_for

LONG: dict[str, Any] = {"prompt_tokens": {"min": 40, "p50": 80, "max": 600}, "output_tokens": {"min": 24, "max": 72}}
LONGER: dict[str, Any] = LONG | {"prompt_tokens": {"min": 100, "p50": 500, "max": 2000}}
SHORT: dict[str, Any] = {"prompt_tokens": {"min": 20, "max": 30}, "output_tokens": {"min": 24, "max": 72}}
CALM = {"requests_waiting": 0.0, "requests_running": 3.0, "kv_usage": 0.3}
WELL = {"preemptions": 0.0, "engine_cpu_time": 30.0, "engine_cpu_wait": 1.0}
STARVED = WELL | {"engine_cpu_wait": 45.0}
WHOLE = Batching()  # llama.cpp: a prompt is one batch
CHUNKED = Batching(prefill_s=0.0005, chunk=67)  # vLLM: 64 tokens of prompts beside three streams, two steps for one
PROBED = ("prompt_ladder", "output_ladder", "concurrency_ladder", "decode_control")


MIXED = card("p90 tpot <= 40 ms", **LONG)
LONG_MIXED = card("p90 tpot <= 40 ms", **LONGER)


def explained(
    engine: Batching,
    workload: Workload,
    users: int,
    probes: tuple[str, ...] = PROBED,
    **more: Any,  # noqa: ANN401 - of ``observe``
) -> tuple[Diagnosis, Evidence]:
    """Subject and probes as they would be sent, served by this engine."""
    more = {"gauges": CALM, "counters": WELL, "engine": "llamacpp"} | more

    def seen(rows: Any, probe: str | None) -> Observation:  # noqa: ANN401 - rows of ``serve``
        return observe(rows, workload, probe=probe, **more)

    plan = schedule_for(workload, 1, concurrency=users, duration_s=60.0)
    conditions = Conditions(
        wait_s=engine.prefill_s * 80, step_s=engine.step_s, rate_per_s=None, users=users, streams=users + 1
    )
    others = [seen(engine.serve(PROBES[name].schedule(workload, conditions)), name) for name in probes]
    evidence = Evidence(seen(engine.serve(plan), None), tuple(others))
    return diagnose(evidence), evidence


@pytest.mark.parametrize(("engine", "workload"), [(WHOLE, MIXED), (CHUNKED, LONG_MIXED)], ids=["whole", "chunked"])
def test_long_prompts_beside_streams_are_interference_and_nothing_else(engine: Batching, workload: Workload) -> None:
    found, evidence = explained(engine, workload, 3)
    assert [f.name for f in found.supported] == ["interference"], [(f.name, f.reason) for f in found.findings]
    [attribution] = found.attribution
    assert attribution.causes[0][0] == "decode stall"  # though steps take more: alone they keep the promise
    model = evidence.model
    assert model.step_s is not None
    assert model.step_s.value == pytest.approx(engine.step_s, rel=0.1)  # though every step of the subject had company
    assert evidence.parts.of_stream(Part.STALL_PREFILL).sum() > 2 * evidence.parts.of_stream(Part.BATCH).sum()


def test_what_prompts_cost_streams_is_not_what_streams_cost_each_other() -> None:
    """The service model finds what a stream adds although prompts come all the time."""
    _, evidence = explained(WHOLE, MIXED, 3, ("prompt_ladder", "output_ladder"))
    added = evidence.model.step_s_per_stream
    assert added is None or added.value == pytest.approx(WHOLE.stream_s, abs=0.003)
    _, evidence = explained(WHOLE, MIXED, 3)
    added = evidence.model.step_s_per_stream
    assert added is not None
    assert added.value == pytest.approx(WHOLE.stream_s, abs=0.002)


def test_before_the_control_interference_is_open_and_asks_for_it() -> None:
    found, _ = explained(WHOLE, MIXED, 3, PROBED[:3])
    [open_] = [f for f in found.findings if f.name == "interference"]
    assert open_.conclusion is Conclusion.UNDECIDED
    assert "decode_control" in found.wanted


def test_streams_beside_streams_are_batch_contention_and_no_interference() -> None:
    crowded = replace(WHOLE, stream_s=0.02, slots=8)
    found, _ = explained(crowded, card("p90 tpot <= 60 ms", **SHORT), 6)
    assert [f.name for f in found.supported] == ["batch"], [(f.name, f.reason) for f in found.findings]


def test_a_busy_machine_hides_no_interference_because_both_halves_of_the_control_are_on_it() -> None:
    slow = replace(WHOLE, step_s=0.07, stream_s=0.005, prefill_s=0.01, jitter=0.6)
    found, _ = explained(slow, card("p90 tpot <= 90 ms", **LONG), 3, counters=STARVED, gauges=CALM | {"host_cpu": 0.95})
    assert {f.name for f in found.supported} == {"interference", "neighbour"}
