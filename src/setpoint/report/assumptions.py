"""What was assumed about the workload, and what nobody measured: the first section."""

from collections.abc import Mapping, Sequence
from typing import Any

from setpoint.metrics.verdict import Origin
from setpoint.records.record import RunRecord
from setpoint.report.content import Block, Fact, Facts, Text
from setpoint.report.step import Step
from setpoint.units import format_number, format_share


def assumption_blocks(steps: Sequence[Step], evaluations: Sequence[RunRecord]) -> list[Block]:
    """The card in words, what the server counted, notes, and what was left out."""
    last = steps[-1]
    card, meta = last.card, last.record.meta
    if card is None:
        return [Text("The record holds no card that this version can read.")]
    traffic = card.traffic
    facts = [
        Fact("unit of work", card.contract.unit, Origin.ASSUMED, "card: contract.unit"),
        Fact(
            "API",
            f"{card.contract.api}, {'streaming' if card.contract.streaming else 'not streaming'}",
            Origin.ASSUMED,
            "card: contract",
        ),
        Fact("arrivals", _arrivals(card.to_dict()["traffic"]["arrivals"]), Origin.ASSUMED, "card: traffic.arrivals"),
        Fact("prompt tokens", _spread(traffic.prompt_tokens), Origin.ASSUMED, "card: traffic.prompt_tokens"),
        Fact(
            "output tokens",
            f"{_spread(traffic.output_tokens)}; {meta.pins.get('output_lengths', 'unknown')}",
            Origin.ASSUMED,
            "card: traffic.output_tokens",
        ),
    ]
    tokens = last.summary.tokens
    if tokens.prompt_counted and tokens.prompt is not None:
        mean = tokens.prompt / tokens.prompt_counted
        facts.append(
            Fact(
                "prompt tokens, counted by the server",
                f"{format_number(mean)} on average",
                Origin.MEASURED,
                f"{last.record.id}: summary.tokens",
            )
        )
    if traffic.prefix is not None:
        facts.append(
            Fact(
                "shared prefix",
                f"{traffic.prefix.tokens} tokens, {traffic.prefix.groups} groups, {format_share(traffic.prefix.share)} of sessions",
                Origin.ASSUMED,
                "card: traffic.prefix",
            )
        )
    if tokens.cached is not None and tokens.prompt_of_cached:
        share = tokens.cached / tokens.prompt_of_cached
        facts.append(
            Fact(
                "prompt tokens from the target's cache",
                format_share(share),
                Origin.MEASURED,
                f"{last.record.id}: summary.tokens",
            )
        )
    blocks: list[Block] = [Facts("What was assumed", tuple(facts))]
    notes = list(
        dict.fromkeys(
            n for s in steps for n in s.record.meta.notes if not n.startswith(("Ended early", "The first request"))
        )
    )
    if notes:
        blocks.append(Text("Noted while measuring: " + " ".join(notes)))
    blocks.append(Text("Not measured: " + "; ".join(_not_measured(steps, evaluations)) + "."))
    return blocks


def _arrivals(arrivals: Mapping[str, Any]) -> str:
    process = str(arrivals["process"])
    per_second = ("rate", "start", "end")
    rest = ", ".join(
        (f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}") + ("/s" if k in per_second else "")
        for k, v in arrivals.items()
        if k != "process"
    )
    return f"{process} ({rest})"


def _spread(lengths: Any) -> str:  # noqa: ANN401 - any distribution
    if lengths.values:
        return f"{len(lengths.values)} observed values, mean {format_number(lengths.mean)}"
    if len(lengths.points) == 1:
        return f"{lengths.points[0][1]:g}"
    return ", ".join(f"{_name(share)} {value:g}" for share, value in lengths.points)


def _name(share: float) -> str:
    return {0.0: "min", 1.0: "max"}.get(share, f"p{share * 100:g}")


def _not_measured(steps: Sequence[Step], evaluations: Sequence[RunRecord]) -> list[str]:
    graded = any(r.meta.quality is not None for r in (*evaluations, *(s.record for s in steps)))
    out = [
        *([] if graded else ["quality of the answers"]),
        "cost",
        "security",
        "recovery from failures",
        "the network between users and the target",
    ]
    signals = steps[-1].signals
    if not signals.is_empty():
        absent = sorted(set(signals["signal"]) - set(signals.drop_nulls("value")["signal"]))
        if absent:
            out.append(f"engine signals that the target does not report ({', '.join(absent)})")
    else:
        out.append("engine signals (none were read)")
    return out
