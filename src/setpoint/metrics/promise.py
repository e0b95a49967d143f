"""What ``metrics`` needs to know of a promise; ``workload.promise.Promise`` fits it."""

from typing import Protocol

import numpy as np

from setpoint.metrics.definitions import METRICS
from setpoint.metrics.registry import MetricDefinition
from setpoint.metrics.table import ExchangeTable, Floats, Gaps, Mask


class PromiseLike(Protocol):
    """One limit.

    ``ttft``, ``itl``, ``tpot`` and ``e2e`` have a quantile and a limit; ``answered`` and ``availability`` a share.
    A boundary belongs to ``ttft`` (``scheduled``, ``sent`` or ``any_token``) or to ``e2e`` (``task``).
    """

    @property
    def metric(self) -> str:
        """Name of the metric."""
        ...

    @property
    def quantile(self) -> float | None:
        """Share that must be within the limit."""
        ...

    @property
    def limit_s(self) -> float | None:
        """The limit in seconds."""
        ...

    @property
    def at_least(self) -> float | None:
        """Share that must be answered."""
        ...

    @property
    def boundary(self) -> str | None:
        """Where TTFT begins and ends, or that E2E is of the whole task."""
        ...

    @property
    def label(self) -> str:
        """The promise in words."""
        ...


_TTFT = {"scheduled": "ttft", "sent": "ttft_from_sent", "any_token": "ttft_any_token"}
SHARES_OF_ANSWERS = ("answered", "availability")


def within(values: Floats | Gaps, limit_s: float) -> Mask:
    """Which values keep a limit, to the nanosecond of the clock: sums of floats end a little beside it."""
    return np.less_equal(values, limit_s + 1e-9)


def definition_of(promise: PromiseLike) -> MetricDefinition | None:
    """The definition of a latency promise; None for shares of answers and for quality."""
    name = str(promise.metric)
    if name == "ttft":
        return METRICS[_TTFT[str(promise.boundary or "scheduled")]]
    return METRICS["task_e2e"] if name == "e2e" and promise.boundary == "task" else METRICS.get(name)


def judged_rows(promise: PromiseLike, table: ExchangeTable) -> ExchangeTable:
    """What a promise counts: exchanges, or whole tasks."""
    definition = definition_of(promise)
    return table.tasks() if definition is not None and definition.per == "task" else table


def required_share(promise: PromiseLike) -> float:
    """The share that must be within the limit (or answered)."""
    share = promise.quantile if promise.quantile is not None else promise.at_least
    assert share is not None, f"{promise.label}: neither quantile nor share"
    return share
