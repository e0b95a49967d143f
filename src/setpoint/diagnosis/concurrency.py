"""How many of something were under way: a step function of time."""

import numpy as np

from setpoint.metrics.table import Floats


class Concurrency:
    """Intervals, counted.

    Args:
        starts_s: Where each begins; NaN never began and is left out.
        ends_s: Where each ends, not before its start.
    """

    def __init__(self, starts_s: Floats, ends_s: Floats) -> None:
        known = ~(np.isnan(starts_s) | np.isnan(ends_s))
        self._starts = np.sort(starts_s[known])
        self._ends = np.sort(np.maximum(ends_s, starts_s)[known])
        self._start_sum = np.concatenate([[0.0], np.cumsum(self._starts)])
        self._end_sum = np.concatenate([[0.0], np.cumsum(self._ends)])

    def at(self, times_s: Floats) -> Floats:
        """Number under way just after each time."""
        begun = np.searchsorted(self._starts, times_s, side="right")
        ended = np.searchsorted(self._ends, times_s, side="right")
        return np.asarray(begun - ended, dtype=np.float64)

    def seconds(self, from_s: Floats, to_s: Floats) -> Floats:
        """Seconds under way within each span, all intervals added up."""
        return self._area(to_s) - self._area(from_s)

    def touching(self, from_s: Floats, to_s: Floats) -> Floats:
        """How many were under way at any moment of each span."""
        begun = np.searchsorted(self._starts, to_s, side="left")
        ended = np.searchsorted(self._ends, from_s, side="right")
        return np.asarray(begun - ended, dtype=np.float64)

    def _area(self, times_s: Floats) -> Floats:
        begun = np.searchsorted(self._starts, times_s, side="right")
        ended = np.searchsorted(self._ends, times_s, side="right")
        since_begun = begun * times_s - self._start_sum[begun]
        since_ended = ended * times_s - self._end_sum[ended]
        return np.asarray(since_begun - since_ended, dtype=np.float64)
