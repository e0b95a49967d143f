"""Endpoints: the figures in which two arms are compared, and their values in one run.

A latency is compared as the logarithm of a ratio of quantiles, a share as a difference. An exchange that was not
answered has an infinite latency: an arm that drops its slow requests does not win. What the client itself cut off has
no value. ITL has one value a gap, and an exchange that was not answered as many infinite ones as it had tokens planned;
a task has one value, that of its session. Speeds of a user are compared at low quantiles: slow users are there.
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

ATTAINMENT, ANSWERED = "attainment", "answered"
THROUGHPUT, REQUESTS, GOODPUT = "output tokens/s", "answers/s", "good answers/s"
OF_RUN = (THROUGHPUT, REQUESTS, GOODPUT)
MEDIANS = ("ttft", "itl", "tpot", "e2e")
TAILS = ("ttft", "itl", "tpot", "e2e", "stall")
SLOWEST_USERS = 0.05
MOST_GAPS = 4096  # of one run in the resampling; of more, every n-th of each session in order of length


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One figure.

    Attributes:
        name: As printed and as ``--metric`` takes it, e.g. ``p80 ttft``.
        metric: Definition of a latency or of a user's speed; else ``attainment``, ``answered`` or one of ``OF_RUN``.
        quantile: Of a latency or speed; None for the others.
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
        return self.quantile is not None and METRICS[self.metric].lower_is_better

    @property
    def of_run(self) -> bool:
        """Whether it is one figure a run and not one an exchange."""
        return self.metric in OF_RUN

    @property
    def per(self) -> str:
        """What one value belongs to: ``exchange``, ``gap``, ``task`` or ``run``."""
        if self.of_run:
            return "run"
        return "exchange" if self.quantile is None else METRICS[self.metric].per


def endpoints_of(card: Workload) -> tuple[Endpoint, ...]:
    """All endpoints of a card: its promises first, then medians, tails, shares and throughput."""
    found: dict[str, Endpoint] = {}
    limits = [p for p in card.promises if p.limit_s is not None]
    for promise in limits:
        named = endpoint_of(promise)
        if named is not None:
            found.setdefault(named.name, named)
    if limits:
        found[ATTAINMENT] = Endpoint(ATTAINMENT, ATTAINMENT, promised=True)
    for quantile, names in ((0.5, MEDIANS), (0.95, TAILS), (0.99, TAILS)):
        for name in names:
            if card.contract.streaming or name == "e2e":
                _add(found, name, quantile)
        if card.traffic.agent is not None:
            _add(found, "task_e2e", quantile)
    if card.contract.streaming:
        _add(found, "user_speed", 0.5)
        _add(found, "user_speed", SLOWEST_USERS)
    found[ANSWERED] = Endpoint(ANSWERED, ANSWERED, promised=any(p.metric == ANSWERED for p in card.promises))
    found |= {name: Endpoint(name, name) for name in OF_RUN if limits or name != GOODPUT}
    return tuple(found.values())


def endpoint_of(promise: Promise) -> Endpoint | None:
    """The figure that a promise on a latency limits; None for promises on shares."""
    definition = definition_of(promise)
    if definition is None or promise.quantile is None:
        return None
    return Endpoint(f"{format_quantile(promise.quantile)} {definition.name}", definition.name, promise.quantile, True)


def _add(found: dict[str, Endpoint], metric: str, quantile: float) -> None:
    name = f"{format_quantile(quantile)} {metric}"
    found.setdefault(name, Endpoint(name, metric, quantile))


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


def fewest_values(endpoint: Endpoint, tables: Sequence[ExchangeTable]) -> int:
    """How many values the runs of one arm in one block have: what must bound a quantile."""
    if endpoint.per == "gap":
        return sum(int(t.gaps.sum()) for t in tables)
    return sum(len(np.unique(t.session)) if endpoint.per == "task" else len(t) for t in tables)


def run_value(endpoint: Endpoint, table: ExchangeTable, promises: Sequence[Promise]) -> float:
    """A figure of the whole run, over the time from the first planned send to the last end; NaN without any."""
    if not len(table):
        return float("nan")
    span_s = float(table.done_s.max() - table.scheduled_s.min())
    if span_s <= 0:
        return float("nan")
    if endpoint.metric == GOODPUT:
        return float(good(promises, table).sum()) / span_s
    counted = table.output_tokens[table.answered] if endpoint.metric == THROUGHPUT else table.answered
    return float(counted.sum()) / span_s


def output_tokens_per_s(table: ExchangeTable) -> float:
    """Output tokens of answered exchanges a second; NaN without any."""
    return run_value(Endpoint(THROUGHPUT, THROUGHPUT), table, ())


def matrix_of(
    endpoint: Endpoint, tables: Sequence[ExchangeTable], promises: Sequence[Promise], sessions: int
) -> Floats:
    """Values of one arm in one block: a row a session (what is resampled), its values in all runs as columns.

    Args:
        endpoint: Not one of a whole run.
        tables: Runs of one schedule.
        promises: Of the card.
        sessions: Rows: one more than the highest session of any arm.
    """
    return np.concatenate([_matrix(endpoint, t, promises, sessions) for t in tables], axis=1)


def _matrix(endpoint: Endpoint, table: ExchangeTable, promises: Sequence[Promise], sessions: int) -> Floats:
    if endpoint.per == "gap":
        return _gap_matrix(table, sessions)
    table = table.tasks() if endpoint.per == "task" else table
    column = np.zeros(len(table), dtype=np.int64) if endpoint.per == "task" else table.turn
    part = np.full((sessions, int(column.max(initial=0)) + 1), np.nan)
    part[table.session, column] = _values(endpoint, table, promises)
    return part


def _values(endpoint: Endpoint, table: ExchangeTable, promises: Sequence[Promise]) -> Floats:
    """One value a row of the table; NaN where it is not defined or the client cut it off."""
    if endpoint.metric == ATTAINMENT:
        values = good(promises, table).astype(np.float64)
    elif endpoint.metric == ANSWERED:
        values = table.answered.astype(np.float64)
    else:
        worst = np.inf if endpoint.lower_is_better else 0.0
        values = METRICS[endpoint.metric].values(table).astype(np.float64)
        values = np.where(table.answered, values, worst)
    return np.where(table.cancelled, np.nan, values)


def _gap_matrix(table: ExchangeTable, sessions: int) -> Floats:
    rows: list[list[Floats]] = [[] for _ in range(sessions)]
    answered, cancelled = table.answered, table.cancelled
    for i in range(len(table)):
        if answered[i]:
            gaps = table.gap_s[table.gap_at[i] : table.gap_at[i] + table.gaps[i]].astype(np.float64)
        else:
            unseen = 0 if cancelled[i] else max(int(table.planned_output_tokens[i]) - 1, 1)
            gaps = np.full(unseen, np.inf)
        rows[int(table.session[i])].append(gaps)
    flat = [np.sort(np.concatenate(parts)) if parts else np.zeros(0) for parts in rows]
    step = -(-sum(map(len, flat)) // MOST_GAPS) or 1
    flat = [x[(step - 1) // 2 :: step] for x in flat]
    part = np.full((sessions, max((len(x) for x in flat), default=0) or 1), np.nan)
    for row, gaps in enumerate(flat):
        part[row, : len(gaps)] = gaps
    return part
