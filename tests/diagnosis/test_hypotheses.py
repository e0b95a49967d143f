"""Every hypothesis: supported where it is true, refuted where a check fails, undecided where nothing tells."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from tests.diagnosis.evidence import Costs, card, evidence, exchange, ladder, observe, outputs
from tests.shared import shared_data

from setpoint.diagnosis.diagnosis import diagnose
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypotheses import HYPOTHESES
from setpoint.diagnosis.hypothesis import Conclusion, Finding
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.probes import PROBES
from setpoint.records.exchange import Exchange, Outcome

TTFT = card("p90 ttft <= 150 ms")
PACE = card("p90 tpot <= 20 ms")
CALM: dict[str, float] = {"requests_waiting": 0.0, "requests_running": 1.0, "kv_usage": 0.3}
FLOW: dict[str, float] = {"generation_tokens": 600.0, "preemptions": 0.0}
HOST: dict[str, float] = {"engine_cpu_time": 3.0, "engine_cpu_wait": 0.1}


@dataclass(frozen=True)
class World:
    """Evidence in which one hypothesis is true."""

    rows: list[Exchange]
    card: Any = TTFT
    others: tuple[Observation, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)

    def evidence(self) -> Evidence:
        more = {"gauges": CALM, "counters": FLOW | HOST} | self.more
        return evidence(self.card, self.rows, *self.others, **more)


def stream(costs: Costs, count: int = 30, gap_s: float = 2.0, **more: Any) -> list[Exchange]:  # noqa: ANN401
    return [exchange(i, i * gap_s, costs, **more) for i in range(count)]


def waves(per_stream_s: float) -> list[Exchange]:
    return [exchange(i, (i // 8) * 5.0, Costs(), streams=8, per_stream_s=per_stream_s, output=30) for i in range(40)]


def ladders(workload: Any, costs: Costs) -> tuple[Observation, ...]:  # noqa: ANN401
    return ladder(workload, costs), outputs(workload, costs)


def busy_host() -> World:
    slow = Costs(prefill_s=0.004)
    probe = ladder(TTFT, slow, counters={"engine_cpu_time": 9.0, "engine_cpu_wait": 0.0})
    return World(stream(slow), others=(probe,), more={"gauges": CALM | {"gpu_sm_active": 0.1}})


def mixed_prompts() -> World:
    prompts = [exchange(100 + i, 1.0 + i * 2.0 + 0.16, Costs(prefill_s=0.004), prompt=200, output=1) for i in range(20)]
    streams = [exchange(i, 1.0 + i * 2.0, Costs(prefill_s=0.0001, stall_s=0.8), output=30) for i in range(20)]
    control = []
    for half in range(2):
        control += [exchange(half * 3 + i, half * 9.0, Costs(stall_s=half * 0.8), output=30) for i in range(3)]
    control.append(exchange(6, 9.1, Costs(prefill_s=0.004), prompt=200, output=1))
    ladders_ = (*ladders(PACE, Costs(prefill_s=0.004)), observe(control, PACE, probe="decode_control"))
    return World(streams + prompts, PACE, ladders_)


def waits_at_both_loads(half_s: float) -> World:
    half = observe(stream(Costs(queue_s=half_s)), TTFT, probe="half_load")
    return World(stream(Costs(queue_s=1.0)), others=(ladder(TTFT, Costs()), half), more={"gauges": {}, "counters": {}})


WORLDS: dict[str, Callable[[], World]] = {
    "client": lambda: World(stream(Costs(lag_s=0.5)), others=(ladder(TTFT, Costs()),), more={"client": {"good": False, "reasons": ["late"], "cpu_share": 0.3}}),
    "neighbour": lambda: World(stream(Costs(step_s=0.03)), PACE, more={"gauges": CALM | {"host_cpu": 0.9}, "counters": FLOW | {"engine_cpu_time": 20.0, "engine_cpu_wait": 40.0}}),
    "wedged": lambda: World(stream(Costs(), 6) + [exchange(6 + i, 12.0 + i, Costs(), outcome=Outcome.TIMEOUT) for i in range(6)] + [_open(20.0)], more={"counters": {"generation_tokens": 0.0}}),
    "failures": lambda: World(stream(Costs(), 20) + [exchange(20 + i, 40.0 + i, Costs(), outcome=Outcome.ERROR) for i in range(10)], card("answered >= 95%", **{"class": "batch"})),
    "gateway": lambda: World(stream(Costs(upstream_s=0.4)), others=(ladder(TTFT, Costs(upstream_s=0.4)), _direct())),
    "queueing": lambda: World(stream(Costs(queue_s=1.0)), others=(ladder(TTFT, Costs()),), more={"gauges": {"requests_waiting": 4.0, "requests_running": 4.0, "kv_usage": 0.95}}),
    "scheduler": lambda: World(stream(Costs(queue_s=1.0)), others=(ladder(TTFT, Costs()),), more={"gauges": {"requests_waiting": 4.0, "requests_running": 2.0, "kv_usage": 0.2}, "flags": {"max-num-seqs": 16}}),
    "kv_pressure": lambda: World(stream(Costs(stall_s=1.0)), PACE, ladders(PACE, Costs()), {"gauges": CALM | {"kv_usage": 0.99}, "counters": FLOW | {"preemptions": 30.0}}),
    "prefill": lambda: World(stream(Costs(prefill_s=0.004)), others=(ladder(TTFT, Costs(prefill_s=0.004)),)),
    "prefix_cache": lambda: World(stream(Costs(prefill_s=0.004), cached=0), card("p90 ttft <= 150 ms", prefix={"tokens": 90}), (ladder(TTFT, Costs(prefill_s=0.004)),)),
    "host": busy_host,
    "reasoning": lambda: World(stream(Costs(step_s=0.05, reasoning=8)), others=(ladder(TTFT, Costs()),)),
    "cold_start": lambda: World([exchange(i, i * 2.0, Costs(queue_s=1.0 if i < 6 else 0.0)) for i in range(30)], others=(ladder(TTFT, Costs()),)),
    "interference": mixed_prompts,
    "batch": lambda: World(waves(0.01), PACE, (*ladders(PACE, Costs()), observe(waves(0.01)[:8] + waves(0.01)[8:10], PACE, probe="concurrency_ladder"))),
    "decode_bandwidth": lambda: World(stream(Costs(step_s=0.05)), PACE, ladders(PACE, Costs(step_s=0.05)), {"gauges": CALM | {"gpu_sm_active": 0.9, "gpu_dram_active": 0.8}}),
    "speculation": lambda: World(stream(Costs(step_s=0.05)), PACE, ladders(PACE, Costs(step_s=0.05)), {"counters": FLOW | HOST | {"spec_drafted": 2500.0, "spec_accepted": 100.0}}),
    "launch_bound": lambda: World(stream(Costs(step_s=0.05)), PACE, ladders(PACE, Costs(step_s=0.05)), {"gauges": CALM | {"gpu_sm_active": 0.2, "gpu_dram_active": 0.1, "gpu_util": 100.0}}),
    "interconnect": lambda: World(stream(Costs(step_s=0.05)), PACE, ladders(PACE, Costs(step_s=0.05)), {"gauges": CALM | {"gpu_sm_active": 0.95, "gpu_dram_active": 0.2}, "flags": {"tensor_parallel_size": 2}}),
}  # fmt: skip


def _open(at: float) -> Exchange:
    """An exchange that was taken and never answered."""
    row = exchange(99, at, Costs(), outcome=Outcome.TIMEOUT)
    return msgspec.structs.replace(row, done_s=at + 40.0)


def _direct() -> Observation:
    lengths = [20, 60, 100, 200] * 5
    return observe(
        [exchange(i, i * 2.0, Costs(), prompt=n, output=2) for i, n in enumerate(lengths)], TTFT, probe="direct"
    )


def test_every_hypothesis_has_a_world() -> None:
    assert set(WORLDS) == set(HYPOTHESES)


@pytest.mark.parametrize("name", WORLDS)
def test_what_is_true_is_first_and_alone(name: str) -> None:
    found = diagnose(WORLDS[name]().evidence())
    assert [f.name for f in found.supported] == [name], [(f.name, f.conclusion, f.reason) for f in found.findings]
    assert found.main is not None
    assert found.main.name == name
    assert found.main.reason in found.headline


def test_nothing_is_supported_where_every_promise_is_kept() -> None:
    found = diagnose(World(stream(Costs()), others=(ladder(TTFT, Costs()),)).evidence())
    assert not found.broken
    assert {f.conclusion for f in found.findings} == {Conclusion.REFUTED}
    assert found.main is None
    assert found.wanted == ()


def test_two_causes_are_both_found_the_larger_first() -> None:
    costs = Costs(prefill_s=0.004, step_s=0.03, reasoning=8)
    found = diagnose(World(stream(costs), others=(ladder(TTFT, costs),)).evidence())
    assert [f.name for f in found.supported] == ["prefill", "reasoning"]


def test_one_exchange_supports_nothing() -> None:
    costs = Costs(prefill_s=0.004)
    one, two = (
        next(
            f
            for f in diagnose(World(stream(costs, n), others=(ladder(TTFT, costs),)).evidence()).findings
            if f.name == "prefill"
        )
        for n in (1, 2)
    )
    assert (one.conclusion, two.conclusion) == (Conclusion.UNDECIDED, Conclusion.SUPPORTED)
    assert "one exchange says nothing about the next" in one.reason


def test_without_probes_or_signals_the_suspects_stay_undecided_and_name_their_probes() -> None:
    """Clues are no conclusions: a TTFT that is high alone could be prefill, overhead or a cold start."""
    found = diagnose(World(stream(Costs(prefill_s=0.004)), more={"gauges": {}, "counters": {}}).evidence())
    assert found.supported == ()
    undecided = {f.name for f in found.undecided}
    assert "prefill" in undecided
    assert "prompt_ladder" in found.wanted
    assert "direct" in found.wanted


def test_half_the_load_decides_about_the_queue_where_the_engine_says_nothing() -> None:
    supported = diagnose(waits_at_both_loads(0.1).evidence()).supported
    assert "queueing" in {f.name for f in supported}
    found = diagnose(waits_at_both_loads(1.0).evidence())
    queueing = next(f for f in found.findings if f.name == "queueing")
    assert queueing.conclusion is Conclusion.REFUTED
    assert "half the load" in queueing.reason


def test_nobody_is_accused_while_the_client_is_a_suspect() -> None:
    client = {"good": False, "reasons": ["a client process used 97% of a core"], "cpu_share": 0.97}
    world = WORLDS["prefill"]()
    found = diagnose(evidence(TTFT, world.rows, *world.others, gauges=CALM, counters=FLOW | HOST, client=client))
    assert [f.name for f in found.supported] == ["client"]
    prefill = next(f for f in found.findings if f.name == "prefill")
    assert prefill.conclusion is Conclusion.UNDECIDED
    assert "97% of a core" in prefill.reason


def test_gpu_util_alone_never_supports_anything() -> None:
    world = World(
        stream(Costs(step_s=0.05)), PACE, ladders(PACE, Costs(step_s=0.05)), {"gauges": CALM | {"gpu_util": 100.0}}
    )
    found = {f.name: f.conclusion for f in diagnose(world.evidence()).findings}
    assert found["launch_bound"] is Conclusion.UNDECIDED


def test_an_engine_that_gets_no_cpu_is_not_judged_by_its_speed() -> None:
    world = WORLDS["prefill"]()
    starved = {"engine_cpu_time": 20.0, "engine_cpu_wait": 60.0}
    found = diagnose(
        evidence(TTFT, world.rows, *world.others, gauges=CALM | {"host_cpu": 0.95}, counters=FLOW | starved)
    )
    assert [f.name for f in found.supported] == ["neighbour"]
    prefill = next(f for f in found.findings if f.name == "prefill")
    assert prefill.conclusion is Conclusion.UNDECIDED
    assert "waiting for a CPU" in prefill.reason


def pairs(saved: float) -> Observation:
    """Unique prompts and prompts that share nine tenths, in turn; a shared token saves this share of its prefill."""
    cost = Costs(prefill_s=0.004)
    kept = [0 if i % 2 else int(180 * saved) for i in range(13)]
    rows = [exchange(i, i * 2.0, cost, prompt=200 - kept[i], output=2) for i in range(13)]
    rows = [msgspec.structs.replace(r, planned_prompt_tokens=200, prompt_tokens=200) for r in rows]
    return observe(rows, TTFT, probe="prefix_pair")


def of_prefix_cache(*others: Observation, cached: int | None = None, **more: Any) -> Finding:  # noqa: ANN401
    workload = card("p90 ttft <= 150 ms", prefix={"tokens": 90})
    rows = stream(Costs(prefill_s=0.004), cached=cached)
    more = {"gauges": CALM, "counters": FLOW | HOST} | more
    found = diagnose(evidence(workload, rows, ladder(TTFT, Costs(prefill_s=0.004)), *others, **more))
    return next(f for f in found.findings if f.name == "prefix_cache")


def test_a_target_that_does_not_count_cached_tokens_is_asked_with_pairs_of_prompts() -> None:
    silent = of_prefix_cache()
    assert silent.conclusion is Conclusion.UNDECIDED  # not known is not zero
    assert "prefix_pair" in silent.probes
    assert of_prefix_cache(pairs(0.0)).conclusion is Conclusion.SUPPORTED
    assert of_prefix_cache(pairs(1.0)).conclusion is Conclusion.UNDECIDED  # it works alone; under load nobody knows
    assert of_prefix_cache(counters=FLOW | HOST | {"prefix_cache_hits": 30 * 90.0}).conclusion is Conclusion.REFUTED
    assert of_prefix_cache(counters=FLOW | HOST | {"prefix_cache_hits": 0.0}).conclusion is Conclusion.SUPPORTED


def test_pairs_of_prompts_show_a_missing_cache_on_a_busy_machine_too() -> None:
    """Both prompts of a pair meet the same machine: the ratio holds where no speed can be judged."""
    busy: dict[str, Any] = {
        "gauges": CALM | {"host_cpu": 0.95}, "counters": FLOW | {"engine_cpu_time": 20.0, "engine_cpu_wait": 30.0},
    }  # fmt: skip
    assert of_prefix_cache(cached=0, **busy).conclusion is Conclusion.UNDECIDED
    assert of_prefix_cache(pairs(0.0), cached=0, **busy).conclusion is Conclusion.SUPPORTED


def test_a_long_prefill_is_no_wedge_and_a_counter_that_stands_still_is_none_either() -> None:
    slow = World(stream(Costs(prefill_s=0.08), gap_s=10.0), more={"counters": {"generation_tokens": 0.0}})
    found = {f.name: f.conclusion for f in diagnose(slow.evidence()).findings}
    assert found["wedged"] is Conclusion.REFUTED


def test_prompts_computed_side_by_side_with_nobody_queueing_are_prefill() -> None:
    costs = Costs(prefill_s=0.002, queue_s=0.6)
    rows = [exchange(i, (i // 4) * 5.0, costs) for i in range(40)]  # four at a time, each waits for the others
    found = diagnose(World(rows, others=(ladder(TTFT, Costs(prefill_s=0.002)),)).evidence())
    assert [f.name for f in found.supported] == ["prefill"]
    assert dict(found.attribution[0].causes) == {"prefill": 40}


# The seeds' table of symptoms: what is broken, and who must still be a suspect before anything was probed.
SYMPTOMS: dict[str, tuple[World, set[str]]] = {
    "TTFT high, ITL normal": (World(stream(Costs(queue_s=0.4), gap_s=0.3), more={"gauges": {}, "counters": {}}), {"queueing", "prefill", "host", "gateway"}),
    "TTFT normal, ITL bad": (World(stream(Costs(step_s=0.05), gap_s=0.3), PACE, more={"gauges": {}, "counters": {}}), {"decode_bandwidth", "batch", "kv_pressure", "launch_bound"}),
    "both worsen with concurrency": (World(stream(Costs(queue_s=0.4, step_s=0.05), gap_s=0.0), card("p90 ttft <= 150 ms", "p90 tpot <= 20 ms"), more={"gauges": {}, "counters": {}}), {"queueing", "kv_pressure", "batch", "scheduler"}),
    "GPU idle, latency high": (World(stream(Costs(queue_s=0.4, step_s=0.05), gap_s=0.1), card("p90 ttft <= 150 ms", "p90 tpot <= 20 ms"), more={"gauges": {"gpu_sm_active": 0.1}, "counters": {}}), {"host", "gateway", "launch_bound", "scheduler", "interconnect"}),
    "throughput up, tail broken": (World(stream(Costs(queue_s=0.4), gap_s=0.05), card("p90 ttft <= 150 ms", "p90 e2e <= 300 ms"), more={"gauges": {}, "counters": {}}), {"batch", "queueing", "scheduler", "interference"}),
}  # fmt: skip


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_the_suspects_of_a_symptom_are_open_until_they_are_probed(symptom: str) -> None:
    world, suspects = SYMPTOMS[symptom]
    found = diagnose(world.evidence())
    open_ = {f.name for f in (*found.supported, *found.undecided)}
    assert suspects <= open_, suspects - open_


def test_every_hypothesis_names_known_probes() -> None:
    for hypothesis in HYPOTHESES.values():
        assert set(hypothesis.probes) <= set(PROBES)
        assert hypothesis.refutation
        assert hypothesis.statement


# Which hypothesis carries which of the expert rules; None: not about where time goes.
RULES: dict[int, str | None] = {
    1: "queueing", 2: "prefill", 3: "gateway", 4: "interconnect", 5: "decode_bandwidth", 6: "batch", 7: "kv_pressure",
    8: "kv_pressure", 9: "interference", 10: "prefill", 11: "host", 12: "scheduler", 13: "kv_pressure", 14: "client",
    15: "launch_bound", 16: None, 17: "speculation", 18: "prefix_cache", 19: None, 20: None, 21: "queueing",
    22: "wedged", 23: "cold_start", 24: "scheduler", 25: "failures", 26: None,
}  # fmt: skip


def test_the_rules_lead_to_hypotheses_that_exist() -> None:
    assert {name for name in RULES.values() if name is not None} <= set(HYPOTHESES)


@pytest.mark.shared
def test_every_recorded_rule_is_placed() -> None:
    lines = (shared_data() / "diagnosis_rules.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert {int(line.split(",")[0]) for line in lines} == set(RULES)
