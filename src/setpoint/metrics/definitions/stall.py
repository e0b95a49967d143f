"""The longest silence within an answer."""

import numpy as np

from setpoint.metrics.registry import MetricDefinition
from setpoint.metrics.table import ExchangeTable, Floats


def longest_gap(table: ExchangeTable) -> Floats:
    """Longest gap of each exchange in seconds; NaN for an answer of fewer than two visible chunks."""
    longest = np.full(len(table), np.nan)
    some = table.gaps > 0
    if some.any():
        # Exchanges without gaps start where the next one does: leaving them out keeps the segments right.
        longest[some] = np.maximum.reduceat(table.gap_s, table.gap_start[:-1][some])
    return longest


STALL = MetricDefinition(
    name="stall",
    title="Longest stall",
    unit="s",
    boundary="longest gap between visible chunks",
    per="exchange",
    values=longest_gap,
    definition="The longest gap between consecutive visible chunks of one answer.",
)
