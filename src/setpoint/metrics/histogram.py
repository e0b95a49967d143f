"""Counts in logarithmic bins: latencies spread over decades."""

import math
from dataclasses import dataclass

import numpy as np

from setpoint.metrics.table import Floats, Gaps

BINS_PER_DECADE = 20


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of positive values by size.

    Attributes:
        edges: Ascending; bin ``i`` is ``[edges[i], edges[i + 1])``. Empty without positive values.
        counts: One a bin; in order of size.
        not_positive: Values at or below zero, which a logarithmic axis cannot show.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    not_positive: int


def log_histogram(ordered: Floats | Gaps, bins_per_decade: int = BINS_PER_DECADE) -> Histogram:
    """Count ascending values in bins whose edges are the powers of ``10 ** (1 / bins_per_decade)``.

    Equal edges in every run: two histograms can be laid over each other.
    """
    # Bounds in the sample's own precision: numpy would else convert the whole sample.
    not_positive = int(np.searchsorted(ordered, ordered.dtype.type(0), side="right"))
    if not_positive == len(ordered):
        return Histogram((), (), not_positive)
    first, last = (math.floor(math.log10(v) * bins_per_decade) for v in (ordered[not_positive], ordered[-1]))
    edges = 10.0 ** (np.arange(first, last + 2) / bins_per_decade)
    places = np.searchsorted(ordered, edges.astype(ordered.dtype))
    places[0], places[-1] = not_positive, len(ordered)  # where rounding put an end on the wrong side of its edge
    return Histogram(tuple(edges.tolist()), tuple(np.diff(places).tolist()), not_positive)
