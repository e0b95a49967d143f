"""Endpoints: the figures in which two arms are compared, and their values in one run.

A latency is compared as the logarithm of a ratio of quantiles, a share as a difference. An exchange that was not
answered has an infinite latency: an arm that drops its slow requests does not win. What the client itself cut off has
no value.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from setpoint.errors import UsageError
from setpoint.metrics.definitions import METRICS
from setpoint.metrics.goodput import good
from setpoint.metrics.promise import definition_of
from setpoint.metrics.table import ExchangeTable, Floats
from setpoint.units import format_quantile
from setpoint.workload.card import Workload
from setpoint.workload.promise import Promise

ATTAINMENT, ANSWERED, THROUGHPUT = "attainment", "answered", "output tokens/s"
MEDIANS = ("ttft", "tpot", "e2e")
TAILS = ("ttft", "tpot", "e2e", "stall")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One figure.

    Attributes:
        name: As printed and as ``--metric`` takes it, e.g. ``p80 ttft``.
        metric: Definition of a latency; else ``attainment``, ``answered`` or ``output tokens/s``.
        quantile: Of a latency; None for the others.
        promised: Whether the card promises it: one that gets worse is told with the verdict.
    """

    name: str
    metric: str
    quantile: float | None = None
    promised: bool = False

    @property
    def ratio(self) -> bool:
        """Whether arms are compared by their ratio; else by their difference."""
        return self.metric not in (ATTAINMENT, ANSWERED)

    @property
    def lower_is_better(self) -> bool:
        """For latencies."""
        return self.quantile is not None

    @property
    def of_run(self) -> bool:
        """Whether it is one figure a run and not one an exchange."""
        return self.metric == THROUGHPUT


def endpoints_of(card: Workload) -> tuple[Endpoint, ...]:
    """All endpoints of a card: its promises first, then medians, tails, shares and throughput."""
    found: dict[str, Endpoint] = {}
    limits = [p for p in card.promises if p.limit_s is not None]
    for promise in limits:
        definition = definition_of(promise)
        if definition is not None and definition.per == "exchange":
            assert promise.quantile is not None
            _add(found, definition.name, promise.quantile, promised=True)
    if limits:
        found[ATTAINMENT] = Endpoint(ATTAINMENT, ATTAINMENT, promised=True)
    for quantile, names in ((0.5, MEDIANS), (0.95, TAILS), (0.99, TAILS)):
        for name in names:
            if card.contract.streaming or name == "e2e":
                _add(found, name, quantile, promised=False)
    found[ANSWERED] = Endpoint(ANSWERED, ANSWERED, promised=any(p.metric == ANSWERED for p in card.promises))
    found[THROUGHPUT] = Endpoint(THROUGHPUT, THROUGHPUT)
    return tuple(found.values())


def _add(found: dict[str, Endpoint], metric: str, quantile: float, *, promised: bool) -> None:
    name = f"{format_quantile(quantile)} {metric}"
    found.setdefault(name, Endpoint(name, metric, quantile, promised))


def primary_of(endpoints: Sequence[Endpoint], wanted: str | None) -> Endpoint:
    """The endpoint that the verdict is about: the first promise on a latency, unless named.

    Raises:
        UsageError: none has that name.
    """
    if wanted is None:
        return endpoints[0]
    for endpoint in endpoints:
        if endpoint.name == wanted.strip().lower():
            return endpoint
    raise UsageError(f"--metric is {wanted!r}.", fix=f"Choose one of: {', '.join(e.name for e in endpoints)}.")


def values_of(endpoint: Endpoint, table: ExchangeTable, promises: Sequence[Promise]) -> Floats:
    """One value a measured exchange; of a figure of the run, the one value.

    Failed exchanges have an infinite latency and are not good; NaN where it is not defined or the client cut it off.
    """
    if endpoint.of_run:
        return np.array([output_tokens_per_s(table)])
    if endpoint.metric == ATTAINMENT:
        values = good(promises, table).astype(np.float64)
    elif endpoint.metric == ANSWERED:
        values = table.answered.astype(np.float64)
    else:
        values = METRICS[endpoint.metric].values(table).astype(np.float64)
        values = np.where(table.answered, values, np.inf)
    return np.where(table.cancelled, np.nan, values)


def output_tokens_per_s(table: ExchangeTable) -> float:
    """Output tokens of answered exchanges over the time from first planned send to last end; NaN without any."""
    if not len(table):
        return float("nan")
    span_s = float(table.done_s.max() - table.scheduled_s.min())
    return float(table.output_tokens[table.answered].sum()) / span_s if span_s > 0 else float("nan")


def matrix_of(tables: Sequence[ExchangeTable], values: Sequence[Floats], sessions: int) -> Floats:
    """Values of one arm in one block: a row a session (what is resampled), its exchanges in all runs as columns.

    Args:
        tables: Runs of one schedule.
        values: From ``values_of``, one an exchange.
        sessions: Rows: one more than the highest session of any arm.
    """
    parts = []
    for table, found in zip(tables, values, strict=True):
        width = int(table.turn.max(initial=0)) + 1
        part = np.full((sessions, width), np.nan)
        part[table.session, table.turn] = found
        parts.append(part)
    return np.concatenate(parts, axis=1)
