"""A promise as a count: of each exchange, how many observations there are and how many lie within the limit.

Failures count as outside. What the client itself cut off is neither within nor outside: it is *open*, unless it had
already passed the limit when it was cut.
"""

from dataclasses import dataclass

import numpy as np

from setpoint.metrics.percentile import rank_of
from setpoint.metrics.promise import SHARES_OF_ANSWERS, PromiseLike, definition_of, required_share, within
from setpoint.metrics.table import ExchangeTable, Floats, Gaps, Ints, Mask


@dataclass(frozen=True, slots=True)
class Trials:
    """Counts of one promise over the measured exchanges, one entry an exchange in order of schedule.

    Attributes:
        total: Observations (1 for a latency, gaps for ITL); 0 where the metric is not defined.
        inside: Of these, certainly within the limit.
        open: Of these, cut off by the client before they could tell.
        at_quantile: Observations of answered exchanges at or below the sample's own promised quantile: what ``inside``
            would be if the limit lay exactly there. None for shares of answers.
        undefined: Answered exchanges without an observation (e.g. ITL of an answer in one chunk).
        unit: What an observation is: ``exchanges``, ``gaps`` or ``tasks``.
    """

    total: Ints
    inside: Ints
    open: Ints
    at_quantile: Ints | None
    undefined: int
    unit: str

    @property
    def observations(self) -> int:
        """Number of observations."""
        return int(self.total.sum())


def trials_of(promise: PromiseLike, table: ExchangeTable) -> Trials:
    """Count one promise over a table.

    Raises:
        KeyError: The metric is not judged from exchanges (quality).
    """
    if promise.metric in SHARES_OF_ANSWERS:
        one = np.ones(len(table), dtype=np.int64)
        return Trials(one, table.answered.astype(np.int64), table.cancelled.astype(np.int64), None, 0, "exchanges")
    definition = definition_of(promise)
    if definition is None or promise.limit_s is None:
        raise KeyError(promise.metric)
    if definition.per == "gap":
        return _gap_trials(table, promise.limit_s, required_share(promise))
    values = definition.values(table)
    known = ~np.isnan(values)
    inside = within(values, promise.limit_s)
    total = known | ~table.answered
    return Trials(
        total.astype(np.int64),
        (inside & table.answered).astype(np.int64),
        (table.cancelled & _could_be_within(table, known, inside, promise.limit_s)).astype(np.int64),
        (known & (values <= _own(values[known & table.answered], required_share(promise)))).astype(np.int64),
        int((table.answered & ~known).sum()),
        "tasks" if definition.per == "task" else "exchanges",
    )


def _could_be_within(table: ExchangeTable, known: Mask, inside: Mask, limit_s: float) -> Mask:
    """Observed within so far, or not observed and not yet older than the limit when it was cut off."""
    return np.where(known, inside, within(table.done_s - table.scheduled_s, limit_s))


def _gap_trials(table: ExchangeTable, limit_s: float, quantile: float) -> Trials:
    """ITL: an unanswered exchange counts as many gaps as an answered one has on average, or as it was planned to."""
    answered, observed = table.answered, table.gaps
    seen = observed[answered & (observed > 0)]
    mean = max(1, round(float(seen.mean()))) if len(seen) else np.maximum(1, table.planned_output_tokens - 1)
    total = np.where(answered, observed, mean)
    return Trials(
        total,
        np.where(answered, table.gaps_at_most(limit_s), 0),
        np.where(table.cancelled, total, 0),
        table.gaps_at_most(_own(table.gaps_in(answered), quantile)),
        int((answered & (observed == 0)).sum()),
        "gaps",
    )


def _own(values: Floats | Gaps, quantile: float) -> float:
    """The sample's own quantile; NaN without values. Reorders ``values``."""
    if not len(values):
        return float("nan")
    rank = rank_of(len(values), quantile)
    values.partition(rank)
    return float(values[rank])
