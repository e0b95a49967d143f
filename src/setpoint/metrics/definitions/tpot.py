"""Time per output token: the mean pace of one answer. Never printed as ITL: a mean hides stalls."""

import numpy as np

from setpoint.metrics.registry import MetricDefinition
from setpoint.metrics.table import ExchangeTable, Floats


def mean_pace(table: ExchangeTable) -> Floats:
    """``(last_token - first_token) / (tokens - 1)`` in seconds.

    NaN where the answer has fewer than two tokens or came in one chunk: its pace was not observed.
    """
    several = (table.chunks >= 2) | (table.last_token_s > table.first_token_s)  # an importer may know but the two ends
    defined = (table.output_tokens >= 2) & several
    pace = np.full(len(table), np.nan)
    np.divide(table.last_token_s - table.first_token_s, table.output_tokens - 1, out=pace, where=defined)
    return pace


TPOT = MetricDefinition(
    name="tpot",
    title="TPOT",
    unit="s",
    boundary="(last token - first token) / (tokens - 1)",
    per="exchange",
    values=mean_pace,
    definition="Mean time per output token of one answer after its first token, reasoning tokens included.",
)
