"""Per-user speed: how fast one answer streams. Not the speed of the system, which serves many at once."""

import numpy as np

from setpoint.metrics.definitions.tpot import mean_pace
from setpoint.metrics.registry import MetricDefinition
from setpoint.metrics.table import ExchangeTable, Floats


def user_speed(table: ExchangeTable) -> Floats:
    """``1 / TPOT`` in tokens per second; NaN where TPOT is not defined or below the clock's nanosecond."""
    pace = mean_pace(table)
    speed = np.full(len(table), np.nan)
    np.divide(1.0, pace, out=speed, where=pace > 1e-9)
    return speed


USER_SPEED = MetricDefinition(
    name="user_speed",
    title="Per-user speed",
    unit="tokens/s",
    boundary="1 / TPOT",
    per="exchange",
    values=user_speed,
    definition="Output tokens per second that one user sees; slow users are at the low percentiles.",
    lower_is_better=False,
)
