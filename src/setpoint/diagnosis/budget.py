"""The latency budget: an end-to-end promise divided into its parts, measured against allowed.

Allowed is what a request alone costs (service model) for the parts that load does not change, a reserve for bursts, and
for the queue what is left. A budget whose queue is below zero cannot be kept at any load. Network and gateway stand
apart where they were measured apart: a round trip by the connections that the client opened, the gateway by the same
prompts sent past it, or by what is in flight and not yet in the engine. Time of theirs that was not measured is part of
the overhead, and its line says so.
"""

from dataclasses import dataclass

import numpy as np

from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.parts import Part
from setpoint.metrics.table import Floats
from setpoint.units import format_duration
from setpoint.workload.card import Workload
from setpoint.workload.promise import Boundary, Metric

RESERVE = 0.2  # of the promise, kept for bursts


@dataclass(frozen=True, slots=True)
class Line:
    """One part of the budget.

    Attributes:
        part: Client, network, gateway, queue, prefill, decode, post-processing.
        allowed_s: What it may take; None where it is not measured, or the service model does not tell.
        measured_s: What it takes at the promised quantile; None where it is not measured.
        how: What the figure rests on, or why there is none.
    """

    part: str
    allowed_s: float | None
    measured_s: float | None
    how: str


@dataclass(frozen=True, slots=True)
class _Way:
    """What a request and its answer spend between client and engine.

    Attributes:
        round_trip_s: None where it was not measured.
        gateway_s: Likewise.
        overhead_s: Of the round trip, what ``parts`` counts as overhead.
        network: How the line of the network was measured.
        gateway: Likewise.
    """

    round_trip_s: float | None
    gateway_s: float | None
    overhead_s: float
    network: str
    gateway: str

    @property
    def known_s(self) -> float:
        """Of a lone request's wait."""
        return (self.round_trip_s or 0.0) + (self.gateway_s or 0.0)


@dataclass(frozen=True, slots=True)
class Budget:
    """A promise divided.

    Attributes:
        promise: In words.
        limit_s: The promise; where the card promises no end-to-end time of a request, TTFT and TPOT of a typical answer
            together.
        quantile: At which the parts are measured; parts at one quantile do not add up to the whole at it.
        reserve_s: Kept for bursts.
        lines: The parts.
        measured_s: The whole at that quantile.
        kept_alone: Whether a request alone keeps the promise with the reserve; None when not known.
    """

    promise: str
    limit_s: float
    quantile: float
    reserve_s: float
    lines: tuple[Line, ...]
    measured_s: float
    kept_alone: bool | None


def budget(evidence: Evidence) -> Budget | None:
    """The budget of the subject; None without a latency promise or an answered exchange."""
    card, table = evidence.subject.card, evidence.subject.table
    found = None if card is None else _limit(card)
    answered = table.answered
    if found is None or not answered.any():
        return None
    promise, limit_s, quantile = found
    first, model = evidence.parts.first, evidence.model

    def at(values: Floats) -> float:
        return float(np.quantile(values[answered], quantile))

    decode = np.maximum(np.nan_to_num(table.last_token_s - table.first_token_s), 0.0)
    prefill = (
        first[Part.OVERHEAD]
        + first[Part.PREFILL]
        + first[Part.CACHE_MISS]
        + first[Part.CONTENTION]
        + first[Part.UNKNOWN]
    )
    way = _way(evidence)
    client_s, network_s = at(first[Part.CLIENT]), at(first[Part.CONNECT]) + (way.round_trip_s or 0.0)
    post = np.maximum(np.nan_to_num(table.done_s - table.last_token_s), 0.0)
    alone = model.wait_s(evidence.subject.uncached_tokens)
    steps = model.one_stream_s(evidence.subject.prompt_tokens + table.output_tokens / 2)
    prefill_s = None if alone is None else at(np.maximum(alone - way.known_s, 0.0))
    decode_s = None if steps is None else at(steps * np.maximum(table.output_tokens - 1, 0))
    reserve_s = RESERVE * limit_s
    queue_s = None
    if prefill_s is not None and decode_s is not None:
        queue_s = limit_s - reserve_s - client_s - network_s - (way.gateway_s or 0.0) - prefill_s - decode_s - at(post)
    model_words = "the service model: what a request alone costs"
    lines = (
        Line("client", client_s, client_s, "planned send to the client's own beginning"),
        Line("network", network_s, network_s, way.network),
        Line("gateway", way.gateway_s, way.gateway_s, way.gateway),
        Line("queue", queue_s, at(first[Part.QUEUE]), "the wait beyond what a request alone costs"),
        Line("prefill and overhead", prefill_s, at(np.maximum(prefill - way.overhead_s, 0.0)), model_words),
        Line("decode", decode_s, at(decode), f"first to last token; {model_words}"),
        Line("post-processing", at(post), at(post), "last token to the end of the answer"),
    )
    whole = at(table.done_s - table.scheduled_s)
    return Budget(promise, limit_s, quantile, reserve_s, lines, whole, None if queue_s is None else queue_s >= 0)


def _way(evidence: Evidence) -> _Way:
    """Network and gateway apart, as far as they were measured."""
    took, upstream = evidence.subject.connect_s, evidence.upstream
    trip_s = float(np.median(took)) if len(took) else None
    network = "connection; a round trip is not measured (TLS, or no new connection): part of overhead"
    if trip_s is not None:
        network = f"connection, and a round trip ({format_duration(trip_s)}, median of {len(took):,} new connections)"
    if upstream is None:
        return _Way(trip_s, None, trip_s or 0.0, network, "not measured (--direct URL measures it): part of overhead")
    span = f"95%: {format_duration(max(upstream.low, 0.0))} to {format_duration(max(upstream.high, 0.0))}"
    if evidence.upstream_is_direct:
        words = f"what the same prompts spare past it ({upstream.samples:,} requests; {span})"
        return _Way(trip_s, max(upstream.value, 0.0), trip_s or 0.0, network, words)
    words = f"in flight and not yet in the engine, less the round trip; the engine's front end included ({span})"
    return _Way(trip_s, max(upstream.value - (trip_s or 0.0), 0.0), 0.0, network, words)


def _limit(card: Workload) -> tuple[str, float, float] | None:
    e2e = card.tightest(Metric.E2E)
    if e2e is not None and e2e.boundary is Boundary.TASK:
        e2e = None  # its parts are turns and tools, not those of a request
    if e2e is not None and e2e.limit_s is not None and e2e.quantile is not None:
        return e2e.label, e2e.limit_s, e2e.quantile
    ttft, tpot = card.tightest(Metric.TTFT), card.tightest(Metric.TPOT)
    if ttft is None or ttft.limit_s is None or ttft.quantile is None:
        return None
    if tpot is None or tpot.limit_s is None:
        return None
    tokens = card.traffic.output_tokens.mean
    return (
        f"{ttft.label} and {tpot.label}, {tokens:.0f} tokens",
        ttft.limit_s + (tokens - 1) * tpot.limit_s,
        ttft.quantile,
    )
