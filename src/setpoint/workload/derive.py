"""A card derived from a trace: arrivals, lengths, shared prefixes and turns, with what the trace could not say."""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from setpoint.errors import UsageError
from setpoint.units import format_number
from setpoint.workload.card import API_VERSION, Workload
from setpoint.workload.traces import Trace, TraceRequest, read_trace

QUANTILES = {
    "min": 0.0,
    "p10": 0.1,
    "p25": 0.25,
    "p50": 0.5,
    "p75": 0.75,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "max": 1.0,
}
POISSON_BAND = (0.8, 1.25)  # squared coefficient of variation of the gaps that is called Poisson
REGULAR = 0.01  # below it the gaps are called equal
FEW = 30
MOST_GROUPS = 100_000
SESSIONS = 100  # that a run should see, times the burstiness, so that its rate is near the mean
LEAST_S, MOST_S = 60, 3600


@dataclass(frozen=True, slots=True)
class Derived:
    """A card and how it came about.

    Attributes:
        card: The card; its promises are left empty, since a trace promises nothing.
        facts: What was found, (name, value) pairs in words.
        unknown: What the trace could not say and the card therefore assumes.
    """

    card: Workload
    facts: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]


def card_from_trace(path: str | Path) -> Derived:
    """Derives a card from a trace file or folder.

    Raises:
        UsageError: it cannot be read, or holds no request.
    """
    trace = read_trace(Path(path))
    return derive(trace, name=Path(path).stem)


def derive(trace: Trace, name: str) -> Derived:
    """Derives a card from a trace that was read.

    Raises:
        UsageError: no request was answered, or what the trace says is beyond what a card can.
    """
    answered = [r for r in trace.requests if r.answered]
    if not answered:
        raise UsageError(f"The trace {trace.source!r} holds no answered request, so it has no lengths.")
    facts = [("format", trace.format), ("requests", f"{len(trace.requests):,}")]
    unknown: list[str] = []
    if trace.bad_lines:
        facts.append(("lines not read", f"{trace.bad_lines:,} ({'; '.join(trace.bad_examples)})"))
    if trace.no_demand:
        facts.append(("no demand for a model", f"{trace.no_demand:,} lines, left out: refused for what they were"))
    if len(answered) < len(trace.requests):
        facts.append(
            ("not answered", f"{len(trace.requests) - len(answered):,}, counted as arrivals, left out of the lengths")
        )
    sessions = _sessions(answered, trace)
    openings = [s[0] for s in sessions]
    traffic: dict[str, Any] = {
        "class": "interactive",
        "arrivals": _arrivals([s[0] for s in _sessions(trace.requests, trace)], trace, facts, unknown),
        "prompt_tokens": _quantiles([r.prompt_tokens for r in openings]),
        "output_tokens": _quantiles([max(r.output_tokens, 1) for r in answered]),
    }
    traffic["duration"] = _duration(traffic["arrivals"], trace, facts)
    traffic |= _turns(sessions, trace, facts, unknown)
    prefix = _prefix(openings, trace, facts, unknown)
    if prefix is not None:
        traffic["prefix"] = prefix
    unknown.append("what was promised: add promises")
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:64].strip("-") or "trace"
    body = {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "name": slug,
        "description": f"Derived from {len(trace.requests):,} requests of a trace ({trace.format}).",
        "traffic": traffic,
    }
    try:
        card = Workload.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise UsageError(f"No card can be derived from {trace.source!r}: {where}: {first['msg']}.") from None
    return Derived(card, tuple(facts), tuple(unknown))


def _quantiles(values: Sequence[float]) -> dict[str, Any]:
    """Named quantiles of what was seen; whole numbers stay whole."""
    array = np.asarray(values, dtype=np.float64)
    out = np.quantile(array, list(QUANTILES.values()), method="inverted_cdf")
    whole = bool(np.all(array == np.rint(array)))
    return {name: int(v) if whole else float(round(v, 3)) for name, v in zip(QUANTILES, out, strict=True)}


def _sessions(requests: Sequence[TraceRequest], trace: Trace) -> list[list[TraceRequest]]:
    """Requests grouped into conversations, in order of their openings."""
    if any(r.session is not None for r in requests):
        by_name: dict[str, list[TraceRequest]] = defaultdict(list)
        for i, request in enumerate(requests):
            by_name[request.session if request.session is not None else f"\0{i}"].append(request)
        return list(by_name.values())
    if trace.block_tokens:
        return _linked(requests)
    return [[r] for r in requests]


def _linked(requests: Sequence[TraceRequest]) -> list[list[TraceRequest]]:
    """Ties a request to the earlier one whose whole prompt it continues.

    The last block of a prompt is seldom full, so a continuation holds all blocks of its predecessor but the last.
    """
    open_ends: dict[int | str, list[TraceRequest]] = {}
    sessions: list[list[TraceRequest]] = []
    for request in requests:
        found = None
        for block in reversed(request.blocks[:-1]):
            candidate = open_ends.get(block)
            if candidate is not None and _continues(request, candidate[-1]):
                found = candidate
                break
        if found is None:
            found = []
            sessions.append(found)
        found.append(request)
        if len(request.blocks) > 2:
            open_ends[request.blocks[-2]] = found
    return sessions


def _continues(request: TraceRequest, last: TraceRequest) -> bool:
    known = last.blocks[:-1]
    return len(known) > 1 and len(request.blocks) > len(last.blocks) and request.blocks[: len(known)] == known


def _arrivals(
    openings: Sequence[TraceRequest], trace: Trace, facts: list[tuple[str, str]], unknown: list[str]
) -> dict[str, Any]:
    if not trace.common_clock:
        unknown.append("how sessions arrive: each has a clock of its own, so one user in closed loop is assumed")
        return {"process": "closed", "users": 1}
    times = np.sort([r.time_s for r in openings])
    span_s = float(times[-1] - times[0])
    if span_s <= 0:
        unknown.append("how sessions arrive: all carry one time")
        return {"process": "closed", "users": 1}
    rate = (len(times) - 1) / span_s
    gaps = np.diff(times)
    burstiness = float(gaps.var() / gaps.mean() ** 2)
    per_minute = np.bincount(((times - times[0]) // 60).astype(np.int64))
    facts.append(("session rate", f"{format_number(rate)}/s over {span_s / 60:,.0f} min"))
    facts.append(("burstiness", f"{burstiness:.2f} (squared coefficient of variation of the gaps; 1 is Poisson)"))
    if len(per_minute) > 2:
        peak = float(per_minute[:-1].max() / per_minute[:-1].mean())
        facts.append(("busiest minute", f"{peak:.2f} times the mean"))
    if float(np.mean(gaps == 0)) > 0.2:
        unknown.append("the order inside one time stamp: many requests share one, which inflates burstiness")
    if len(openings) < FEW:
        unknown.append(f"how sessions arrive: {len(openings)} are too few to tell, so Poisson is assumed")
        return {"process": "poisson", "rate": rate}
    if burstiness < REGULAR:
        return {"process": "constant", "rate": rate}
    if POISSON_BAND[0] <= burstiness <= POISSON_BAND[1]:
        return {"process": "poisson", "rate": rate}
    return {"process": "gamma", "rate": rate, "burstiness": round(min(burstiness, 1000), 4)}


def _duration(arrivals: dict[str, Any], trace: Trace, facts: list[tuple[str, str]]) -> int:
    """Seconds, in whole minutes, that show the process but are no longer than the trace and an hour."""
    if "rate" not in arrivals:
        return LEAST_S
    span_s = trace.requests[-1].time_s - trace.requests[0].time_s
    wanted_s = SESSIONS * max(arrivals.get("burstiness", 1.0), 1.0) / arrivals["rate"]
    minutes: int = math.ceil(min(max(wanted_s, LEAST_S), max(span_s, LEAST_S), MOST_S) / 60)
    facts.append(("duration", f"{minutes} min, chosen for about {minutes * 60 * arrivals['rate']:,.0f} sessions"))
    return minutes * 60


def _turns(
    sessions: Sequence[Sequence[TraceRequest]], trace: Trace, facts: list[tuple[str, str]], unknown: list[str]
) -> dict[str, Any]:
    """Conversation or agent part. A prompt holds its whole history: only what is new counts as the turn's length."""
    counts = [len(s) for s in sessions]
    later = [(a, b) for s in sessions for a, b in itertools.pairwise(s)]
    if not later:
        if trace.block_tokens == 0 and trace.format == "azure":
            unknown.append("turns: the trace does not tie requests together")
        return {}
    facts.append(("turns a session", f"median {np.median(counts):g}, max {max(counts)}"))
    new = [max(b.prompt_tokens - a.prompt_tokens - a.output_tokens, 1) for a, b in later]
    shrunk = sum(b.prompt_tokens < a.prompt_tokens for a, b in later)
    if shrunk:
        facts.append(("history cut", f"{shrunk:,} of {len(later):,} later prompts are shorter than the one before"))
    waits, known = _waits(later)
    if not known:
        unknown.append("think time: without latencies it includes the time of the answer")
    if np.mean([bool(b.tool) for _, b in later]) > 0.5:
        return {
            "agent": {
                "tool_turns": _quantiles([c - 1 for c in counts]),
                "tool_time": _quantiles(waits),
                "result_tokens": _quantiles(new),
            }
        }
    return {
        "conversation": {
            "turns": _quantiles(counts),
            "think_time": _quantiles(waits),
            "follow_up_tokens": _quantiles(new),
        }
    }


def _waits(later: Iterable[tuple[TraceRequest, TraceRequest]]) -> tuple[list[float], bool]:
    out, known = [], True
    for a, b in later:
        if b.wait_s is not None:
            out.append(b.wait_s)
        elif a.latency_s is not None:
            out.append(max(b.time_s - a.time_s - a.latency_s, 0.0))
        else:
            known = False
            out.append(max(b.time_s - a.time_s, 0.0))
    return out, known


def _prefix(
    openings: Sequence[TraceRequest], trace: Trace, facts: list[tuple[str, str]], unknown: list[str]
) -> dict[str, Any] | None:
    """Prefixes that sessions share: of openings with one first block, the leading blocks that they have in common.

    A card has one length for all: the one at which length times sharing sessions, the shared tokens, is largest.
    """
    if not trace.common_clock:
        shortest = min(r.prompt_tokens for r in openings)
        if trace.fixed_tokens and len(openings) > 1 and trace.fixed_tokens < shortest:
            unknown.append(
                "what sessions share: hashes are local to a file; system prompt and tools are assumed shared"
            )
            return {"tokens": trace.fixed_tokens, "groups": 1, "share": 1.0}
        return None
    if not trace.block_tokens:
        unknown.append("shared prefixes: the trace has no block hashes, so none are assumed")
        return None
    groups: dict[int | str, list[TraceRequest]] = defaultdict(list)
    for request in openings:
        if request.blocks:
            groups[request.blocks[0]].append(request)
    depths = [
        (min(_common(m) * trace.block_tokens, min(r.prompt_tokens for r in m) - 1), len(m))
        for m in groups.values()
        if len(m) > 1
    ]
    depths = sorted((d for d in depths if d[0] > 0), reverse=True)[:MOST_GROUPS]
    if not depths:
        facts.append(("shared prefixes", "none"))
        return None
    reached = list(itertools.accumulate(members for _, members in depths))
    best = max(range(len(depths)), key=lambda i: depths[i][0] * reached[i])
    tokens, share = depths[best][0], reached[best] / len(openings)
    facts.append(("shared prefixes", f"{best + 1:,} groups, {share:.1%} of sessions, at least {tokens:,} tokens"))
    if best + 1 < len(depths):
        unknown.append(f"shorter shared prefixes: {len(depths) - best - 1:,} more groups share fewer tokens; left out")
    return {"tokens": tokens, "groups": best + 1, "share": round(share, 6)}


def _common(members: Sequence[TraceRequest]) -> int:
    """Number of leading blocks that all members have in common."""
    depth = 0
    for column in zip(*(m.blocks for m in members), strict=False):
        if len(set(column)) > 1:
            break
        depth += 1
    return depth
