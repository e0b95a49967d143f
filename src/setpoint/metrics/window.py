"""The steady window: the part of a run over which rates are stated.

Rates need a stretch in which the target carries its load: the ramp-up (queues still filling) and the drain (no more
sends) are cut. Only rates are cut: promises, outcomes and distributions cover every measured exchange, so that
nothing that failed can fall out of the window unseen. A backlog that grows to the end has no steady state, and the
window says so instead of averaging it away.
"""

import math
from dataclasses import dataclass

import numpy as np

from setpoint.metrics.correlation import autocorrelation_time
from setpoint.metrics.table import ExchangeTable, Floats
from setpoint.units import format_duration

_FEWEST_EXCHANGES = 20
_MOST_BINS = 200
_SHORTEST_S = 1e-3


@dataclass(frozen=True, slots=True)
class SteadyWindow:
    """The window and how it was found.

    Attributes:
        start_s: First moment, on the run's clock.
        end_s: Last moment: the last planned send, before the drain.
        steady: Whether a steady state was seen.
        growing: Whether exchanges in flight were still rising when the sends ended.
        reason: What was cut and why, in words.
    """

    start_s: float
    end_s: float
    steady: bool
    growing: bool
    reason: str

    @property
    def length_s(self) -> float:
        """Seconds; 0 when no window exists."""
        return self.end_s - self.start_s


class InFlight:
    """Exchanges begun (scheduled) and not done, as a step function of time; the warm-up included.

    Args:
        table: Exchanges of a run.
    """

    def __init__(self, table: ExchangeTable) -> None:
        self._begun = np.sort(table.scheduled_s)
        self._done = np.sort(np.maximum(table.done_s, table.scheduled_s))
        self._begun_sum = np.concatenate([[0.0], np.cumsum(self._begun)])
        self._done_sum = np.concatenate([[0.0], np.cumsum(self._done)])

    def at(self, times_s: Floats) -> Floats:
        """Number in flight just after each of these times."""
        begun = np.searchsorted(self._begun, times_s, side="right")
        done = np.searchsorted(self._done, times_s, side="right")
        return (begun - done).astype(np.float64)

    def mean(self, edges_s: Floats) -> Floats:
        """Mean number in flight between consecutive edges; exact, not sampled."""
        area = self._area(edges_s)
        return np.asarray(np.diff(area) / np.diff(edges_s), dtype=np.float64)

    def _area(self, times_s: Floats) -> Floats:
        begun = np.searchsorted(self._begun, times_s, side="right")
        done = np.searchsorted(self._done, times_s, side="right")
        since_begun = begun * times_s - self._begun_sum[begun]
        since_done = done * times_s - self._done_sum[done]
        return np.asarray(since_begun - since_done, dtype=np.float64)

    def series(self, points: int = 200) -> tuple[Floats, Floats]:
        """(time, number in flight) at evenly spaced times over the whole run: for pictures."""
        if not len(self._begun):
            return np.empty(0), np.empty(0)
        times = np.linspace(self._begun[0], self._done[-1], points)
        return times, self.at(times)


def steady_window(table: ExchangeTable) -> SteadyWindow:
    """Find the steady window of a run.

    The end is the last planned send. The start minimises the standard error of the mean number in flight over what
    is left (MSER: K. P. White, Simulation 69, 1997), and is kept at the first send unless the cut improves it by a
    tenth. Where the best cut would take half of the run, or the number in flight still rises, there is none.

    Args:
        table: All exchanges, the warm-up included (it fills the queues, and is never counted).
    """
    measured = table.measured
    if len(measured) == 0:
        return SteadyWindow(0.0, 0.0, steady=False, growing=False, reason="no exchange was measured")
    first, last = float(measured.scheduled_s[0]), float(measured.scheduled_s[-1])
    if last - first < _SHORTEST_S:
        end = max(last, float(np.max(measured.done_s)))
        end = end if end - first >= _SHORTEST_S else first
        return SteadyWindow(first, end, steady=False, growing=False, reason="all sends were at one moment")
    if len(measured) < _FEWEST_EXCHANGES:
        why = f"{len(measured)} exchanges are too few to see a steady state; nothing but the drain is cut"
        return SteadyWindow(first, last, steady=False, growing=False, reason=why)
    in_flight = InFlight(table)
    rise = _rise(in_flight, first, last, len(measured))
    if rise is not None:
        why = (
            f"in flight rose from {rise[0]:.1f} to {rise[1]:.1f} until the sends ended: the target does not keep up, "
            "or the run is not much longer than one answer"
        )
        return SteadyWindow(first, last, steady=False, growing=True, reason=why)
    bins = min(_MOST_BINS, max(_FEWEST_EXCHANGES, len(measured) // 5))
    edges = np.linspace(first, last, bins + 1)
    cut = _mser(in_flight.mean(edges))
    if cut is None:
        why = "the number in flight settled too late to leave half of the run; nothing but the drain is cut"
        return SteadyWindow(first, last, steady=False, growing=False, reason=why)
    start = float(edges[cut])
    ramp = f"the first {format_duration(start - first)} (ramp-up) and " if cut else ""
    why = f"rates leave out {ramp}what happened after the last send (drain)"
    return SteadyWindow(start, last, steady=True, growing=False, reason=why)


def _mser(series: Floats) -> int | None:
    """Number of leading bins to cut; None when the best cut lies in the second half."""
    n = len(series)
    left = np.arange(n, 0, -1, dtype=np.float64)
    total = np.cumsum(series[::-1])[::-1]
    squares = np.cumsum(np.square(series)[::-1])[::-1]
    error = np.maximum(squares / left - np.square(total / left), 0.0) / left
    error = error[: n - 5]
    best = float(error.min())
    if best > 0.9 * error[0]:
        return 0
    # The earliest cut that is as good but for a hundredth of the gain: a constant series has many.
    cut = int(np.flatnonzero(error <= best + 0.01 * (error[0] - best))[0])
    return cut if cut <= n // 2 else None


def _rise(in_flight: InFlight, first: float, last: float, exchanges: int) -> tuple[float, float] | None:
    """Fitted number in flight at 40% and at the end of the sends, where it rises by more than noise; else None.

    A line is fitted to the last 60%. Its rise counts when it exceeds three standard errors (inflated by the
    autocorrelation of the residuals), two of the standard deviations that a stable system shows (about those of a
    Poisson count), and 2% of what was sent meanwhile.
    """
    bins = min(_MOST_BINS, max(_FEWEST_EXCHANGES, exchanges // 5))
    edges = np.linspace(first + 0.4 * (last - first), last, bins + 1)
    number = in_flight.mean(edges)
    place = (np.arange(bins) + 0.5) / bins
    away = place - place.mean()
    spread = float(away @ away)
    rise = float(away @ number) / spread
    begin = float(number.mean()) - rise * float(place.mean())
    residuals = number - (begin + rise * place)
    error = math.sqrt(float(residuals @ residuals) / (bins - 2) / spread * autocorrelation_time(residuals))
    stable = math.sqrt(max(begin, 0.0) + 1.0)
    grows = rise > max(3.0 * error, 2.0 * stable, 0.02 * 0.6 * exchanges)
    return (begin, begin + rise) if grows else None


@dataclass(frozen=True, slots=True)
class LittlesLaw:
    """A check of the record against itself: mean in flight = arrival rate x mean time in the system.

    Attributes:
        in_flight: Mean over the window.
        arrivals_per_s: Planned sends per second in the window.
        residence_s: Mean E2E of the exchanges sent in the window, failed ones included.
        ratio: ``in_flight / (arrivals_per_s * residence_s)``; near 1 in a steady state, None without arrivals. Far
            from 1: the state was not steady, or exchanges are missing from the record.
    """

    in_flight: float
    arrivals_per_s: float
    residence_s: float
    ratio: float | None


def littles_law(table: ExchangeTable, window: SteadyWindow) -> LittlesLaw | None:
    """The check over a window; None without one (J. D. C. Little, Operations Research 9, 1961)."""
    if window.length_s <= 0:
        return None
    inside = (table.scheduled_s >= window.start_s) & (table.scheduled_s < window.end_s)
    rate = float(inside.sum()) / window.length_s
    residence = float(np.mean((table.done_s - table.scheduled_s)[inside])) if inside.any() else 0.0
    number = float(InFlight(table).mean(np.array([window.start_s, window.end_s]))[0])
    product = rate * residence
    return LittlesLaw(number, rate, residence, number / product if product > 0 else None)
