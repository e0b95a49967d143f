"""Counts in logarithmic bins: latencies spread over decades."""

from dataclasses import dataclass

import numpy as np

from setpoint.metrics.table import Floats, Gaps

BINS_PER_DECADE = 20


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of positive values by size.

    Attributes:
        edges: Ascending; bin ``i`` is ``[edges[i], edges[i + 1])``. Empty without positive values.
        counts: One a bin; the first and the last are not empty.
        not_positive: Values at or below zero, which a logarithmic axis cannot show.
    """

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    not_positive: int


def log_histogram(values: Floats | Gaps, bins_per_decade: int = BINS_PER_DECADE) -> Histogram:
    """Count values in bins whose edges are the powers of ``10 ** (1 / bins_per_decade)``.

    Equal edges in every run: two histograms can be laid over each other.
    """
    positive = values[values > 0]
    not_positive = len(values) - len(positive)
    if not len(positive):
        return Histogram((), (), not_positive)
    step = np.floor(np.log10(positive.astype(np.float64)) * bins_per_decade).astype(np.int64)
    first = int(step.min())
    counts = np.bincount(step - first)
    edges = 10.0 ** ((first + np.arange(len(counts) + 1)) / bins_per_decade)
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()), not_positive)
