"""A plan in a report: what was expected of the model before anything was measured."""

from collections.abc import Mapping
from typing import Any

from setpoint.metrics.verdict import Origin
from setpoint.report.content import Fact, Facts
from setpoint.units import format_bytes, format_duration, format_number


def plan_facts(document: Mapping[str, Any]) -> Facts:
    """The best placement of a plan; every figure is computed unless it says otherwise."""
    source = f"plan of {str(document['created'])[:10]} for {document['engine']}"
    facts = [
        Fact("weights", format_bytes(document["model"]["weight_bytes"]), Origin.COMPUTED, f"{source}: model spec"),
        Fact("verdict of the plan", str(document["state"]), Origin.COMPUTED, source),
    ]
    if not document["placements"]:
        kinds = ", ".join(f"{kind} ({count})" for kind, count in document["rejected_by_kind"].items())
        facts.append(Fact("placements", f"none; rejected for {kinds}", Origin.COMPUTED, source))
        return Facts("The plan", tuple(facts))
    best = document["placements"][0]
    memory, chip = best["memory"], best["accelerator"]
    usable = chip["figures"]["usable_bytes"]
    longest = memory["sessions"][-1]
    facts += [
        Fact("best placement", f"{best['placement']}, {best['replicas']} replicas", Origin.COMPUTED, source),
        Fact(
            "memory of one accelerator", format_bytes(usable["value"]), Origin(usable["origin"]), str(usable["source"])
        ),
        Fact("cache of a rank", _span(memory["kv_bytes"], format_bytes), Origin.COMPUTED, f"{source}: memory"),
        Fact(
            f"sessions of {longest['context_tokens']:,} tokens",
            _span(longest["count"], lambda n: f"{n:,.0f}"),
            Origin.COMPUTED,
            f"{source}: memory",
        ),
    ]
    at = best["at_load"]
    if at is not None:
        where = f"{source}: roofline, docs/accuracy.md"
        facts.append(Fact("TTFT, mean", _span(at["ttft_s"], format_duration), Origin.COMPUTED, where))
        facts.append(Fact("TPOT, mean", _span(at["tpot_s"], format_duration), Origin.COMPUTED, where))
    if best["goodput_requests_per_s"] is not None:
        shown = _span(best["goodput_requests_per_s"], format_number)
        facts.append(Fact("goodput of a replica, requests/s", shown, Origin.COMPUTED, f"{source}: capacity"))
    money = best["cost_usd"]
    if money is not None:
        shown = _span(money["accelerator_per_hour"], format_number)
        facts.append(Fact("USD an hour, one accelerator", shown, Origin.DATASHEET, str(money["sellers"])))
        facts.append(Fact("USD per unit of work", _span(money["per_unit"], format_number), Origin.COMPUTED, source))
    facts.append(Fact("limited by", str(best["limited_by"]), Origin.COMPUTED, source))
    return Facts("The plan", tuple(facts))


def _span(found: Mapping[str, float | None], shown: Any) -> str:  # noqa: ANN401 - a function of a number
    ends = (found["low"], found["expected"], found["high"])
    low, expected, high = ("without bound" if value is None else shown(value) for value in ends)
    return expected if low == high else f"{expected} ({low} to {high})"
