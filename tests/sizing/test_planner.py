"""All placements of a model: what is rejected and why, what is met, and in which order."""

import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.models.folders import GPT_OSS, LLAMA_70B, QWEN_HYBRID, QWEN_MOE

from setpoint.errors import UsageError
from setpoint.hardware import catalogue, parse_fleet
from setpoint.models.licence import licence_named
from setpoint.models.requantize import choices, requantized
from setpoint.models.resolve import Model, model_from
from setpoint.sizing.calibrate import calibrate
from setpoint.sizing.cost import Hosted
from setpoint.sizing.deployment import Deployment
from setpoint.sizing.engine import engine_of
from setpoint.sizing.need import need_of
from setpoint.sizing.placement import Placement, Plan, Question
from setpoint.sizing.planner import plan_placements
from setpoint.sizing.support import cut_through, group_of, weights_on
from setpoint.workload.card import Workload
from setpoint.workload.reading import parse_card
from setpoint.workload.templates import template

VLLM = engine_of("vllm", "0.27.0")


@cache
def model(folder: Path) -> Model:
    return model_from(folder)


def card(use_case: str = "chat", *, replaced: tuple[tuple[str, str], ...] = (), constraints: str = "") -> Workload:
    text = template(use_case)
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return parse_card((text + constraints).encode(), "card.yaml")


def plan(folder: Path, hardware: str | None, of: Workload | None = None, **more: object) -> Plan:
    fleets = None if hardware is None else tuple(parse_fleet(part) for part in hardware.split(","))
    asked: dict[str, Any] = {"model": model(folder), "engine": VLLM, "hardware": fleets}
    if of is not None:
        asked |= {"need": need_of(of), "constraints": of.constraints}
    return plan_placements(Question(**(asked | more)))


def kinds(found: Plan) -> set[str]:
    return set(found.why_not())


def best(found: Plan, **wanted: object) -> Placement:
    return next(
        one for one in found.placements if all(getattr(one.candidate, name) == value for name, value in wanted.items())
    )


def test_the_whole_catalogue_is_tried_or_rejected_by_name() -> None:
    found = plan(LLAMA_70B, None, card())
    seen = {one.candidate.chip.name for one in found.placements} | {one.accelerator for one in found.rejected}
    assert seen == set(catalogue())
    assert {r.kind for r in found.rejected if r.accelerator == "TPU-v5e"} == {"engine"}


def test_order_is_verdict_then_cost_then_accelerators() -> None:
    found = plan(QWEN_MOE, None, card())
    order = {"met": 0, "undecided": 1}
    keys = []
    for one in found.placements:
        cost = math.inf if one.money is None else one.money.per_unit.expected
        keys.append((order[one.state], math.isinf(cost), float(f"{cost:.3g}"), one.accelerators))
    assert keys == sorted(keys)


def test_every_placement_says_what_a_user_needs() -> None:
    for one in plan(QWEN_MOE, "H100-SXM:4", card()).placements:
        assert {"weights", "activations", "non_torch", "graphs"} <= {term.name for term in one.memory.terms}
        assert one.capacity is not None
        assert one.capacity.requests_per_s.low <= one.capacity.requests_per_s.expected
        assert one.replicas is not None
        assert one.limited_by
        assert one.fails_when
        assert one.accelerators <= 4


def test_a_70b_model_in_16_bits_does_not_fit_on_one_card() -> None:
    found = plan(LLAMA_70B, "H100-SXM:1")
    rejected = {r.candidate: r for r in found.rejected}
    assert rejected["H100-SXM:1 TP1 bf16, KV auto"].kind == "memory"
    assert "131.4 GiB" in rejected["H100-SXM:1 TP1 bf16, KV auto"].reason


def test_heads_that_do_not_divide_are_rejected() -> None:
    found = plan(LLAMA_70B, "H100-SXM:3")
    reasons = {r.reason for r in found.rejected if r.kind == "heads"}
    assert reasons == {"64 heads cannot be split over 3 ranks."}


def test_precision_follows_the_chip() -> None:
    ampere = plan(LLAMA_70B, "A100-SXM-80GB:4")
    assert "An FP8 cache needs" in " ".join(r.reason for r in ampere.rejected)
    assert "widened" in " ".join(best(ampere, weights="fp8").notes)
    turing = plan(QWEN_MOE, "T4:8")
    assert any(r.kind == "precision" and "need Ampere" in r.reason for r in turing.rejected)
    assert "--dtype half" in " ".join(best(turing, weights="bf16").notes)
    blackwell = plan(LLAMA_70B, "B200-SXM:1")
    assert not any("widened" in note for note in best(blackwell, weights="nvfp4").notes)


@pytest.mark.parametrize(
    ("constraints", "kind"),
    [
        ("  hardware: [A100-SXM-80GB]\n", "hardware"),
        ("  licences: [MIT]\n", "licence"),
        ("  budget: {per_hour: 0.5}\n", "budget"),
        ("  budget: {per_million_tokens: 0.0001}\n", "budget"),
        ("  budget: {per_unit: 0.0000001}\n", "budget"),
    ],
)
def test_a_broken_constraint_rejects(constraints: str, kind: str) -> None:
    found = plan(QWEN_MOE, "H100-SXM:1", card(constraints=constraints))
    assert found.state == "missed"
    assert kind in kinds(found)


@pytest.mark.parametrize(
    ("constraints", "word"),
    [
        ("  regions: [eu-west]\n", "region"),
        ("  budget: {currency: EUR, per_hour: 100}\n", "budget"),
        ("  budget: {per_hour: 4}\n", "budget"),
    ],
)
def test_what_is_not_known_leaves_it_open(constraints: str, word: str) -> None:
    found = plan(QWEN_MOE, "H100-SXM:1", card(constraints=constraints))
    assert found.state == "undecided"
    assert word in {f.name for f in found.placements[0].findings if f.state == "undecided"}


def test_a_budget_that_covers_the_dearest_price_is_kept() -> None:
    found = plan(QWEN_MOE, "H100-SXM:1", card(constraints="  budget: {per_hour: 50}\n"))
    assert found.state == "met"


def test_licences() -> None:
    free, paid = card(), card(replaced=(("commercial: true", "commercial: false"),))
    closed = replace(model(QWEN_MOE), licence=licence_named("cc-by-nc-4.0"))
    assert "licence" in kinds(plan(QWEN_MOE, "H100-SXM:1", free, model=closed))
    assert plan(QWEN_MOE, "H100-SXM:1", paid, model=closed).state == "met"
    strange = replace(model(QWEN_MOE), licence=licence_named("acme-1.0"))
    assert plan(QWEN_MOE, "H100-SXM:1", free, model=strange).state == "undecided"
    european = card(constraints="  regions: [eu-west]\n")
    llama4 = replace(model(QWEN_MOE), licence=licence_named("llama4"))
    assert "licence" in kinds(plan(QWEN_MOE, "H100-SXM:1", european, model=llama4))
    unknown = replace(model(QWEN_MOE), licence=None)
    listed = card(constraints="  licences: [Apache-2.0]\n")
    assert plan(QWEN_MOE, "H100-SXM:1", listed, model=unknown).state == "undecided"
    assert plan(QWEN_MOE, "H100-SXM:1", listed).state == "met"


def test_unknown_hardware_in_the_card_names_its_field() -> None:
    with pytest.raises(UsageError, match=r"constraints.hardware\[1\] of the card: No accelerator is called 'H1000'"):
        plan(QWEN_MOE, "H100-SXM:1", card(constraints="  hardware: [H100-SXM, H1000]\n"))


def test_a_load_beyond_what_there_is_counts_accelerators() -> None:
    found = plan(QWEN_MOE, "H100-SXM:1", card(replaced=(("rate: 2/s", "rate: 2000/s"),)))
    assert (found.state, kinds(found)) == ("missed", {"count", "precision"})
    more = plan(QWEN_MOE, None, card(replaced=(("rate: 2/s", "rate: 200/s"),)))
    assert more.placements[0].replicas is not None
    assert more.placements[0].replicas > 1


def test_a_promise_that_no_hardware_keeps() -> None:
    found = plan(LLAMA_70B, None, card(replaced=(("p95 ttft <= 800 ms", "p95 ttft <= 1 ms"),)))
    assert found.state == "missed"
    assert "promises" in kinds(found)


def test_a_context_beyond_the_model_is_said_once_a_chip() -> None:
    found = plan(LLAMA_70B, "H200-SXM:2", card("coding-agent"))
    assert [r.kind for r in found.rejected] == ["context"]


def test_tighter_promises_never_raise_capacity() -> None:
    loose = plan(QWEN_MOE, "H100-SXM:2", card())
    tight = plan(QWEN_MOE, "H100-SXM:2", card(replaced=(("800 ms", "400 ms"), ("60 ms", "30 ms"))))
    before = {str(one.candidate): one.capacity.requests_per_s for one in loose.placements if one.capacity}
    shared = [one for one in tight.placements if str(one.candidate) in before]
    assert shared
    for one in shared:
        assert one.capacity is not None
        assert one.capacity.requests_per_s.expected <= before[str(one.candidate)].expected * (1 + 1e-9)


def test_spares_and_peaks_cost_more() -> None:
    def hourly(**more: object) -> float:
        money = best(plan(QWEN_MOE, None, card(), **more), weights="fp8").money
        assert money is not None
        return money.per_hour.expected

    assert hourly() < hourly(spare=1)
    assert hourly() < hourly(peak_to_mean=20.0)


def test_a_hosted_price_has_a_break_even() -> None:
    money = plan(QWEN_MOE, "H100-SXM:1", card(), hosted=Hosted(1.0, 4.0)).placements[0].money
    assert money is not None
    assert money.hosted_per_hour is not None
    assert money.break_even_requests_per_s is not None


def test_users_wait_for_their_histories() -> None:
    found = plan(QWEN_HYBRID, "H200-SXM:1", card("coding-agent"))
    users = found.placements[0].capacity
    assert users is not None
    assert users.users is not None
    held = found.placements[0].memory.sessions
    assert users.users.expected <= max(one.count.expected for one in held)
    many = card("coding-agent", replaced=(("users: 8", "users: 800"),))
    assert "count" in kinds(plan(QWEN_HYBRID, "H200-SXM:1", many))


def test_memory_alone_without_a_card() -> None:
    found = plan(GPT_OSS, "H100-SXM:2", max_model_len=65536)
    contexts = [one.context for one in found.placements[0].memory.sessions]
    assert contexts == [1024, 2048, 4096, 8192, 16384, 32768, 65536]
    assert found.placements[0].candidate.as_stored
    assert found.placements[0].replicas is None


def test_experts_are_dealt_out_only_where_there_are_some() -> None:
    assert not any(one.candidate.layout.expert for one in plan(LLAMA_70B, "H200-SXM:8").placements)
    splits = {str(one.candidate.layout) for one in plan(GPT_OSS, "H100-SXM:16").placements}
    assert {"TP2 EP", "TP1 DP16 EP", "TP8 DP2 EP", "TP8 PP2"} <= splits


def test_a_log_replaces_assumed_terms_at_its_own_split() -> None:
    log = calibrate(
        "INFO vLLM version 0.22.0\nModel loading took 30.0 GiB\nAvailable KV cache memory: 30.00 GiB\n"
        "total_gpu_memory (80.00GiB)\ngpu_memory_utilization=0.90\ntensor_parallel_size=1\n"
    )
    found = plan(QWEN_MOE, "H100-SXM:2", calibration=log)
    origins = {str(one.candidate.layout): {t.name: t.origin for t in one.memory.terms} for one in found.placements}
    assert origins["TP1"]["activations"] == "logged"
    assert origins["TP2"]["activations"] == "computed"


def test_sglang_is_planned_too() -> None:
    slow = card(replaced=(("p95 ttft <= 800 ms", "p95 ttft <= 3 s"),))
    found = plan(QWEN_MOE, "H100-SXM:1", slow, engine=engine_of("sglang", "0.5.13"))
    assert found.state == "met"
    assert "max_total_num_tokens=" in " ".join(found.placements[0].memory.log_lines)


def test_conversions() -> None:
    spec = model(LLAMA_70B).spec
    assert set(choices(spec)) == {"bf16", "fp8", "int4", "nvfp4"}
    assert set(choices(model(GPT_OSS).spec)) == {"mxfp4"}
    # 68.45e9 weights in linear layers, 2.1e9 in embedding and head; 8, 4 + 20 / 128 and 4.5 bits.
    sizes = [requantized(spec, name).checkpoint_bytes / 1e9 for name in ("fp8", "int4", "nvfp4")]
    assert sizes == pytest.approx([68.45 + 4.2, 68.45 * 4.156 / 8 + 4.2, 68.45 * 4.5 / 8 + 4.2], rel=0.002)


def test_quantization_groups_must_not_be_cut() -> None:
    spec = requantized(model(LLAMA_70B).spec, "int4")
    assert group_of(spec.precision.quantized) == 128
    assert cut_through(spec, Deployment(VLLM, 8192, tp=8)) == ""
    assert "not a whole number of quantization groups of 128" in cut_through(spec, Deployment(VLLM, 8192, tp=64))


def test_support_is_a_sentence_where_it_is_not_native() -> None:
    for chip in catalogue().values():
        if chip.vendor not in ("NVIDIA", "AMD"):
            continue
        for spec in choices(model(LLAMA_70B).spec).values():
            found = weights_on(spec.precision.quantized, chip)
            assert found.note or found.how != "no"


def test_a_context_must_be_known() -> None:
    silent = replace(model(LLAMA_70B), spec=replace(model(LLAMA_70B).spec, max_positions=0))
    with pytest.raises(UsageError, match="--max-model-len"):
        plan(LLAMA_70B, "H100-SXM:2", model=silent)
