"""Spans in which an engine stood still: requests were open, nobody got a token, and it used no CPU.

Silence alone does not tell a frozen engine from one that computes a long prompt for the only request it has. An engine
that works, on a CPU or by launching kernels, uses its CPU; one that waits for a CPU says so in its run queue. An engine
that does neither for seconds while requests are open is stopped, or waits for something that does not come.
"""

from collections.abc import Sequence

import numpy as np

from setpoint.metrics.table import ExchangeTable, Floats

SILENT_S = 3.0  # no token for anybody for so long while requests are open
IDLE_CORES = 0.05  # CPU used, or waited for: less is housekeeping

Span = tuple[float, float]
Series = tuple[Floats, Floats]  # times, values of a counter


def silences(table: ExchangeTable, gap_ends_s: Floats) -> list[Span]:
    """Spans of at least ``SILENT_S`` without a token for anybody while some request was open, in order of time."""
    sent = ~np.isnan(table.sent_s)
    if not sent.any():
        return []
    begun, done = table.sent_s[sent], table.done_s[sent]
    spoken = np.concatenate([table.first_token_s, table.last_token_s, gap_ends_s, [begun.min(), done.max()]])
    spoken = np.unique(spoken[~np.isnan(spoken)])
    out = []
    for at in np.flatnonzero(np.diff(spoken) >= SILENT_S):
        begin, end = spoken[at], spoken[at + 1]
        inside = (begun < end) & (done > begin)
        out += _merged(np.maximum(begun[inside], begin), np.minimum(done[inside], end))
    return [(a, b) for a, b in out if b - a >= SILENT_S]


def _merged(begins_s: Floats, ends_s: Floats) -> list[Span]:
    """The union of intervals, as intervals that do not touch."""
    out: list[Span] = []
    for begin, end in sorted(zip(begins_s.tolist(), ends_s.tolist(), strict=True)):
        if out and begin <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((begin, end))
    return out


def standstills(table: ExchangeTable, gap_ends_s: Floats, work: Sequence[Series]) -> list[Span]:
    """The silences in which the engine did nothing.

    Args:
        table: Exchanges.
        gap_ends_s: When their chunks arrived.
        work: Counters that rise while the engine works, or would if it could: CPU seconds used, and waited for. None
            is known to stand still without both.
    """
    return [span for span in silences(table, gap_ends_s) if work and all(_rests(span, s) for s in work)]


def _rests(span: Span, series: Series) -> bool:
    """Whether a counter stood still in the better half of a span that its readings cover for half of ``SILENT_S``.

    The readings around the moment in which the engine came to rest, or woke up, may lie inside the span.
    """
    times, values = series
    inside = (times >= span[0]) & (times <= span[1])
    steps = np.diff(times[inside])
    covered_s = float(steps.sum())
    if covered_s < SILENT_S / 2:
        return False
    rises = np.maximum(np.diff(values[inside]), 0.0) / np.maximum(steps, 1e-9)
    return float(steps[rises < IDLE_CORES].sum()) >= covered_s / 2


def overlap_s(spans: Sequence[Span], from_s: Floats, to_s: Floats) -> Floats:
    """Seconds of each interval that lie in the spans."""
    total: Floats = np.zeros(len(from_s))
    for begin, end in spans:
        total += np.maximum(np.minimum(to_s, end) - np.maximum(from_s, begin), 0.0)
    return total
