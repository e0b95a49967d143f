"""Models and plans as JSON holds them: base units, an origin beside every figure that is not computed."""

import math
from collections.abc import Mapping
from typing import Any

from setpoint.hardware import Accelerator
from setpoint.models.layer import Attention, Experts, Layer
from setpoint.models.resolve import Model
from setpoint.records.plans import SCHEMA_VERSION
from setpoint.sizing.calibration import Calibration
from setpoint.sizing.kept import kept_bytes
from setpoint.sizing.placement import Placement, Plan
from setpoint.sizing.plan import MemoryPlan
from setpoint.sizing.pricing import Money
from setpoint.sizing.term import Range, Term
from setpoint.workload.card import Workload

KEPT_AT = (8192, 32768, 131072)
"""Lengths at which a model's cache is shown."""


def model_document(model: Model) -> dict[str, Any]:
    """A model, with the cache of one sequence at a few lengths in its own element type."""
    spec = model.spec
    licence = model.licence
    kv = spec.precision.kv or spec.activation_dtype
    return {
        "name": spec.name,
        "model_type": spec.model_type,
        "architecture": spec.architecture,
        "parameters": spec.parameters,
        "active_parameters": spec.active_parameters,
        "parameters_by_component": {part.value: count for part, count in spec.parameters_by_component.items()},
        "bytes_by_component": {part.value: round(size) for part, size in spec.bytes_by_component.items()},
        "weight_bytes": round(spec.checkpoint_bytes),
        "checkpoint_bytes_by_dtype": None if model.checkpoint is None else dict(model.checkpoint),
        "precision": {
            "method": spec.precision.method,
            "quantized": spec.precision.quantized.name,
            "unquantized": spec.precision.unquantized.name,
            "kv": spec.precision.kv or None,
        },
        "layers": layer_kinds(model),
        "mtp_layers": len(spec.mtp_layers),
        "hidden": spec.hidden,
        "vocabulary": spec.vocabulary,
        "tied_embeddings": spec.tied,
        "max_positions": spec.max_positions or None,
        "towers": [{"kind": t.kind, "parameters": t.parameters, "exact": t.exact} for t in spec.towers],
        "kv_bytes": {"dtype": kv, "by_tokens": {str(n): round(kept_bytes(spec, n, kv)) for n in KEPT_AT}},
        "licence": None
        if licence is None
        else {
            "id": licence.id,
            "name": licence.name,
            "commercial": licence.commercial,
            "limit": licence.limit,
            "source": licence.source,
        },
        "chat_template": model.chat_template,
        "tool_parser": model.parsers.tools,
        "reasoning_parser": model.parsers.reasoning,
        "notes": list(spec.notes),
    }


def layer_kinds(model: Model) -> list[dict[str, Any]]:
    """Layers counted by kind, in order of first appearance."""
    counts: dict[tuple[str, str], int] = {}
    for layer in model.spec.layers:
        key = (_mixer(layer), _feed_forward(layer))
        counts[key] = counts.get(key, 0) + 1
    return [{"count": n, "mixer": mixer, "feed_forward": part} for (mixer, part), n in counts.items()]


def _mixer(layer: Layer) -> str:
    mixer = layer.mixer
    if mixer is None:
        return "none"
    if not isinstance(mixer, Attention):
        return str(mixer.kind)
    words = [f"{mixer.kind} {mixer.heads}/{mixer.kv_heads} heads of {mixer.head_dim}"]
    if mixer.window:
        words.append(f"{mixer.scope} {mixer.window}")
    if mixer.shares_kv_with is not None:
        words.append("shared keys")
    if mixer.indexer is not None:
        words.append("indexer")
    return ", ".join(words)


def _feed_forward(layer: Layer) -> str:
    part = layer.feed_forward
    if part is None:
        return "none"
    if isinstance(part, Experts):
        shared = f" + shared {part.shared_width}" if part.shared_width else ""
        return f"MoE {part.active} of {part.routed} x {part.width}{shared}"
    return f"dense {part.width}"


def plan_document(plan: Plan, card: Workload | None, created: str, *, top: int | None = None) -> dict[str, Any]:
    """A plan.

    Args:
        plan: The plan.
        card: Its card; None without one.
        created: ISO 8601, UTC.
        top: Placements to keep; None: all.
    """
    q = plan.question
    return {
        "schema_version": SCHEMA_VERSION,
        "kind": "plan",
        "created": created,
        "card": None if card is None else {"name": card.name, "digest": card.digest()},
        "model": model_document(q.model),
        "engine": q.engine.label,
        "hardware": "any" if q.hardware is None else [str(fleet) for fleet in q.hardware],
        "max_model_len": q.longest,
        "load": None
        if q.need is None
        else {
            "requests_per_s": q.need.requests_per_s,
            "users": q.need.users,
            "input_tokens": q.need.input_tokens,
            "history_tokens": q.need.history_tokens,
            "output_tokens": q.need.output_tokens,
            "typical_tokens": q.need.typical_tokens,
            "longest_tokens": q.need.longest_tokens,
            "unit": q.need.unit,
            "requests_per_unit": q.need.requests_per_unit,
        },
        "state": plan.state,
        "placements_found": len(plan.placements),
        "placements": [placement_document(one) for one in plan.placements[:top]],
        "rejected_by_kind": dict(plan.why_not()),
        "rejected": [
            {"placement": r.candidate, "accelerator": r.accelerator, "kind": r.kind, "reason": r.reason}
            for r in plan.rejected
        ],
        "notes": list(plan.notes),
    }


def placement_document(one: Placement) -> dict[str, Any]:
    """A placement."""
    c = one.candidate
    return {
        "placement": str(c),
        "accelerator": chip_document(c.chip),
        "count": c.count,
        "tp": c.layout.tp,
        "pp": c.layout.pp,
        "dp": c.layout.dp,
        "expert_parallel": c.layout.expert,
        "weights": c.weights,
        "as_stored": c.as_stored,
        "kv_dtype": c.kv_dtype,
        "state": one.state,
        "replicas": one.replicas,
        "accelerators": one.accelerators,
        "memory": memory_document(one.memory),
        "goodput_requests_per_s": None if one.capacity is None else _range(one.capacity.requests_per_s),
        "users_per_replica": None if one.capacity is None or one.capacity.users is None else _range(one.capacity.users),
        "at_load": None
        if one.estimate is None
        else {
            "ttft_s": _range(one.estimate.ttft_s),
            "tpot_s": _range(one.estimate.tpot_s),
            "coverage": one.estimate.coverage,
            "stall_s": one.estimate.stall_s,
            "tpot_shares": dict(one.estimate.shares),
        },
        "cost_usd": None if one.money is None else _money(one.money),
        "limited_by": one.limited_by,
        "fails_when": list(one.fails_when),
        "constraints": [{"name": f.name, "state": f.state, "reason": f.reason} for f in one.findings],
        "notes": list(one.notes),
    }


def memory_document(memory: MemoryPlan) -> dict[str, Any]:
    """The memory of one rank, and what it holds."""
    return {
        "fit": memory.fit,
        "device_bytes": memory.device_bytes,
        "budget_bytes": memory.budget_bytes,
        "terms": [_term(term) for term in memory.terms],
        "outside_budget": [_term(term) for term in memory.outside],
        "kv_bytes": _range(memory.kv),
        "headroom_bytes": _range(memory.headroom),
        "token_capacity": _range(memory.token_capacity),
        "longest_request_tokens": memory.longest_request,
        "sessions": [
            {"context_tokens": s.context, "count": _range(s.count), "limit": s.limit} for s in memory.sessions
        ],
        "log_lines": list(memory.log_lines),
        "reasons": list(memory.reasons),
    }


def calibration_document(found: Calibration) -> dict[str, Any]:
    """What a start-up log says about a stack."""
    return {
        "engine": found.engine.label,
        "terms": [_term(term) for term in found.terms],
        "device_bytes": found.device_bytes,
        "utilization": found.utilization,
        "kv_bytes": found.kv_bytes,
        "printed_tokens": found.printed_tokens,
        "max_model_len": found.max_model_len,
        "tp": found.tp,
        "notes": list(found.notes),
    }


def chip_document(chip: Accelerator) -> dict[str, Any]:
    """An accelerator, every figure with origin and source."""
    return {
        "name": chip.name,
        "vendor": chip.vendor,
        "architecture": chip.architecture,
        "aliases": list(chip.aliases),
        "link": chip.links.name,
        "figures": {
            name: {"value": figure.value, "origin": figure.origin, "source": figure.source}
            for name, figure in chip.figures().items()
        },
        "prices": [
            {
                "usd_per_hour": [p.low, p.high],
                "seller": p.seller,
                "date": None if p.date is None else p.date.isoformat(),
                "source": p.source,
            }
            for p in chip.prices
        ],
    }


def _money(money: Money) -> dict[str, Any]:
    return {
        "accelerator_per_hour": _range(money.price),
        "sellers": money.sellers,
        "per_hour": _range(money.per_hour),
        "per_million_tokens": _range(money.per_million_tokens),
        "per_million_tokens_at_full_load": money.per_million_tokens_full,
        "per_unit": _range(money.per_unit),
        "utilization": money.utilization,
        "hosted_per_hour": money.hosted_per_hour,
        "break_even_requests_per_s": money.break_even_requests_per_s,
    }


def _term(term: Term) -> dict[str, Any]:
    return {"name": term.name, "bytes": _range(term.size), "origin": term.origin, "basis": term.basis}


def _range(found: Range) -> Mapping[str, float | None]:
    """None where a range has no upper end."""
    ends = {"low": found.low, "expected": found.expected, "high": found.high}
    return {name: value if math.isfinite(value) else None for name, value in ends.items()}
