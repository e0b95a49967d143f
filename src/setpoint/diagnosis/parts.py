"""Where the time of each exchange went.

    scheduled ── CLIENT, CONNECT ── sent ── NETWORK, OVERHEAD, PREFILL, CACHE_MISS, QUEUE ── first token
    first token ── REASONING ── first visible ── STEP, BATCH, STALL_* ── last token

Client, reasoning and the length of every gap are measured. The rest follows from the service model: what a request
would have cost alone is overhead and prefill (of tokens that repeat and were not cached: a cache miss), what is left of
its wait is queue. A gap is the step of one stream, the batch's addition, and a stall where it is far above both; a
stall belongs to preemption when that counter rose. While another request is prefilled less is enough: an engine that
computes prompts in chunks lengthens many steps a little, where one that computes a prompt whole stops them once.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.service_model import ServiceModel, prefills_of
from setpoint.diagnosis.standstill import overlap_s
from setpoint.metrics.table import Floats, Ints, Mask

STALL_FACTOR = 2.0  # a gap beyond this many times its expectation, and
STALL_LEAST_S = 0.03  # by at least this, is a stall
BESIDE_FACTOR = 0.5  # the same of a gap in which a prompt was computed, for at least half of what is beyond: steps
BESIDE_LEAST_S = 0.005  # vary less than this, and a chunk of a prompt adds more
NO_WAITING = 0.2  # requests waiting on average: nobody queues
MOST_ROWS = 20_000  # exchanges whose gaps are looked at one by one


class Part(StrEnum):
    """A part of an exchange's time."""

    CLIENT = "client"  # planned to begun
    CONNECT = "connection"  # begun to the last request byte
    NETWORK = "network"  # sent, and not known to the engine yet
    OVERHEAD = "overhead"  # fixed cost of any request
    PREFILL = "prefill"
    CACHE_MISS = "cache miss"  # prefill of tokens that had been computed before
    CONTENTION = "contention"  # waited while others were prefilled, and the engine says that nobody queues
    QUEUE = "queue"  # the wait beyond what the request would cost alone
    SILENT = "silence"  # of exchanges that never had a token, and of all while the engine stood still
    REASONING = "reasoning"
    STEP = "decode alone"
    BATCH = "batch"
    STALL_PREFILL = "stall by prefill"
    STALL_PREEMPTION = "stall by preemption"
    STALL = "stall"
    UNKNOWN = "unknown"  # the service model does not tell


FIRST = (
    Part.CLIENT, Part.CONNECT, Part.NETWORK, Part.OVERHEAD, Part.PREFILL, Part.CACHE_MISS, Part.CONTENTION,
    Part.QUEUE, Part.SILENT, Part.REASONING,
)  # fmt: skip
STREAM = (Part.STEP, Part.BATCH, Part.STALL_PREFILL, Part.STALL_PREEMPTION, Part.STALL, Part.SILENT)


@dataclass(frozen=True)
class Parts:
    """The time of one run's exchanges.

    Attributes:
        sampled: Exchanges whose gaps were looked at; all but in a long run, evenly spread there.
        first: Seconds of each part up to the first visible token, one an exchange.
        gap_owner: Row of the exchange that each visible gap belongs to.
        gap_s: Length of each gap.
        gaps: Seconds of each part of a stream, one a gap.
    """

    sampled: Mask
    first: dict[Part, Floats]
    gap_owner: Ints
    gap_s: Floats
    gaps: dict[Part, Floats]

    def of_stream(self, part: Part) -> Floats:
        """Seconds of a part of the stream, one an exchange."""
        rows = len(self.first[Part.CLIENT])
        values = self.gaps.get(part, np.zeros(len(self.gap_s)))
        return np.bincount(self.gap_owner, weights=values, minlength=rows).astype(np.float64)


def reusable_tokens(observation: Observation) -> Floats:
    """Prompt tokens of each exchange that the target had seen before, by the card: shared prefix and history.

    Of a prefix that only a share of sessions begin with, the expectation.
    """
    table, card = observation.table, observation.card
    reusable = np.zeros(len(table))
    if card is None or observation.probe is not None:
        return reusable
    prefix = card.traffic.prefix
    if prefix is not None:
        opening = np.minimum(prefix.tokens, np.maximum(observation.prompt_tokens - 1, 0)) * prefix.share
        reusable = np.where(table.turn == 0, opening, reusable)
    history: dict[tuple[int, int], float] = {
        (int(s), int(t)): float(n)
        for s, t, n in zip(table.session, table.turn, observation.prompt_tokens + table.output_tokens, strict=True)
    }
    for row in np.flatnonzero(table.turn > 0):
        seen = history.get((int(table.session[row]), int(table.turn[row]) - 1), 0.0)
        reusable[row] = min(seen, observation.prompt_tokens[row])
    return reusable


def split(observation: Observation, model: ServiceModel, upstream_s: float | None) -> Parts:
    """The parts of one run.

    Args:
        observation: The run.
        model: Of its target.
        upstream_s: Seconds of each wait before the engine hears of the request, where known.
    """
    count = len(observation.table)
    sampled = np.arange(count) % max(count // MOST_ROWS, 1) == 0
    gap_owner, gap_s, gaps = _stream(observation, model, sampled)
    return Parts(sampled, _first(observation, model, upstream_s), gap_owner, gap_s, gaps)


def prefill_s(observation: Observation, model: ServiceModel) -> Floats | None:
    """Expected prefill of each exchange alone; the server's own figure where it gave one. None: not determined."""
    cost = model.prefill_s_per_token
    own = observation.server_prefill_s
    if cost is None:
        return np.nan_to_num(own) if len(own) and not np.isnan(own).all() else None
    return cost.value * observation.uncached_tokens


def _nobody_queues(o: Observation) -> bool:
    """Whether the engine says so: then what was sent is computed at once."""
    waiting = o.mean("requests_waiting")
    return waiting is not None and waiting < NO_WAITING


def _first(o: Observation, model: ServiceModel, upstream_s: float | None) -> dict[Part, Floats]:
    table, zero = o.table, np.zeros(len(o.table))
    sent = np.where(np.isnan(table.sent_s), table.done_s, table.sent_s)
    parts = {part: zero.copy() for part in (*FIRST, Part.UNKNOWN)}
    parts[Part.CLIENT] = np.maximum(table.started_s - table.scheduled_s, 0.0)
    parts[Part.CONNECT] = np.maximum(sent - table.started_s, 0.0)
    silent = np.isnan(table.first_token_s)
    parts[Part.SILENT] = np.where(silent, np.maximum(table.done_s - sent, 0.0), 0.0)
    wait = np.nan_to_num(o.wait_s)
    visible = np.where(np.isnan(table.first_visible_s), table.last_token_s, table.first_visible_s)
    parts[Part.REASONING] = np.maximum(np.nan_to_num(visible - table.first_token_s), 0.0)
    upstream = np.minimum(wait, upstream_s or 0.0)
    parts[Part.NETWORK] = upstream
    left = wait - upstream
    still = np.minimum(left, overlap_s(o.standstills, sent, np.nan_to_num(table.first_token_s, nan=0.0)))
    parts[Part.SILENT] += still
    left = left - still
    alone = model.wait_s(o.uncached_tokens)
    if alone is None:
        parts[Part.UNKNOWN] = left
        return parts
    own = prefill_s(o, model)
    if own is None:  # overhead and prefill are not told apart
        parts[Part.UNKNOWN] = np.minimum(left, np.maximum(alone - (upstream_s or 0.0), 0.0))
        parts[Part.QUEUE] = left - parts[Part.UNKNOWN]
        return parts
    parts[Part.OVERHEAD] = np.minimum(left, np.maximum(alone - own - (upstream_s or 0.0), 0.0))
    left = left - parts[Part.OVERHEAD]
    prefill = np.minimum(left, own)
    repeated = np.minimum(np.maximum(reusable_tokens(o) - np.nan_to_num(table.cached_tokens), 0.0), o.uncached_tokens)
    missed = prefill * repeated / np.maximum(o.uncached_tokens, 1.0)
    parts[Part.CACHE_MISS], parts[Part.PREFILL] = missed, prefill - missed
    left = left - prefill
    left = np.maximum(left, 0.0)
    if _nobody_queues(o):
        others = prefills_of(o, own).seconds(sent, np.nan_to_num(table.first_token_s, nan=0.0)) - own
        parts[Part.CONTENTION] = np.minimum(left, np.maximum(others, 0.0))
    parts[Part.QUEUE] = left - parts[Part.CONTENTION]
    return parts


def _stream(o: Observation, model: ServiceModel, sampled: Mask) -> tuple[Ints, Floats, dict[Part, Floats]]:
    table = o.table
    counts = np.where(sampled, table.gaps, 0)
    owner = np.repeat(np.arange(len(table)), counts)
    position = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
    gap = table.gap_s[np.repeat(table.gap_at, counts) + position].astype(np.float64)
    total = np.concatenate([[0.0], np.cumsum(gap)])
    before = total[:-1] - np.repeat(total[np.cumsum(counts) - counts], counts)
    start = np.nan_to_num(table.first_visible_s)[owner] + before
    end = start + gap
    tokens = np.maximum((table.output_tokens - 1) / np.maximum(table.chunks - 1, 1), 1.0)[owner]
    context = (o.prompt_tokens + table.output_tokens / 2)[owner]
    zero: Floats = np.zeros(len(gap))
    streams = o.streams.at(start + gap / 2)
    step = model.one_stream_s(context)
    known = np.full(len(gap), step is not None)
    alone = step * tokens if step is not None else np.full(len(gap), float(np.median(gap)) if len(gap) else 0.0)
    batch = zero
    if model.step_s_per_stream is not None:
        batch = model.step_s_per_stream.value * np.maximum(streams - 1, 0.0) * tokens
    else:
        known &= streams <= 1  # what company adds is not determined
    expected = alone + batch
    whole, still = gap, np.minimum(overlap_s(o.standstills, start, end), gap)
    gap = gap - still
    left = gap - expected
    beside = prefills_of(o, None if _nobody_queues(o) else prefill_s(o, model)).seconds(start, end)
    far = known & (left > np.maximum(STALL_FACTOR * expected, STALL_LEAST_S))
    preempted = far & (_rise(o, "preemptions", start, end) > 0)
    beyond = known & (left > np.maximum(BESIDE_FACTOR * expected, BESIDE_LEAST_S))
    prefilled = beyond & ~preempted & (beside >= 0.5 * left)
    stalled = far | prefilled
    scale = np.where(stalled, 1.0, gap / np.maximum(expected, 1e-9))
    stall = np.where(stalled, left, 0.0)
    parts = {
        Part.STEP: np.where(known, alone * scale, np.minimum(alone, gap) if step is not None else 0.0),
        Part.BATCH: np.where(known, batch * scale, 0.0),
        Part.UNKNOWN: np.where(known, 0.0, gap if step is None else np.maximum(gap - alone, 0.0)),
        Part.STALL_PREEMPTION: np.where(preempted, stall, 0.0),
        Part.STALL_PREFILL: np.where(prefilled, stall, 0.0),
        Part.STALL: np.where(~preempted & ~prefilled, stall, 0.0),
        Part.SILENT: still,
    }
    return owner, whole, parts


def _rise(o: Observation, name: str, start: Floats, end: Floats) -> Floats:
    """How much a counter rose from the last reading before each span to the first after it."""
    found = o.signals.get(name)
    if found is None or not len(found.times_s):
        return np.zeros(len(start))
    last = len(found.times_s) - 1
    before = np.maximum(np.searchsorted(found.times_s, start, side="right") - 1, 0)
    after = np.minimum(np.searchsorted(found.times_s, end, side="left"), last)
    return np.asarray(found.values[after] - found.values[before])
