"""What a metric is: a name, a unit, a boundary, and a function from the table to numbers."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from setpoint.metrics.table import ExchangeTable, Floats, Gaps, Mask


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """One metric. ``docs/definitions.md`` tells how to add one.

    Attributes:
        name: As in promises, records and JSON, e.g. ``ttft``.
        title: As printed, e.g. ``TTFT``.
        unit: Base unit: ``s``, ``tokens/s``, ...
        boundary: From what to what, e.g. ``scheduled to first visible chunk``; printed beside the number.
        per: What one value belongs to: ``exchange``, ``gap``, or ``task`` (computed on ``ExchangeTable.tasks``).
        values: One value an exchange, NaN where it is not defined; or one an entry of ``gap_s``.
        definition: One sentence for the reader of a report.
        lower_is_better: False for speeds.
        answered_only: Whether only answered exchanges have it; False for what the client itself did.
    """

    name: str
    title: str
    unit: str
    boundary: str
    per: str
    values: Callable[[ExchangeTable], Floats | Gaps]
    definition: str
    lower_is_better: bool = True
    answered_only: bool = True

    def observed(self, table: ExchangeTable) -> tuple[Floats | Gaps, Mask]:
        """Values as a new array, and which exchanges (in order of schedule) have any.

        Failed exchanges have no latency: they count in shares and never in a distribution.
        """
        rows = table.answered if self.answered_only else np.ones(len(table), dtype=np.bool_)
        if self.per == "gap":
            return table.gaps_in(rows), rows & (table.gaps > 0)
        values = self.values(table)
        kept = rows & ~np.isnan(values)
        return values[kept], kept
