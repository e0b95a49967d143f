"""The share of a promise and its 95% interval.

The interval is Wilson's at the effective sample size, or an always-valid one where the run may have been stopped by
looking at its data.

Correlation is estimated twice and the larger design effect counts: of "within the limit", and of "within the sample's
own promised quantile". The second is what the first would be if the promise were just kept, the case that a verdict
must tell apart. It is needed because a sample that lies all within shows no correlation at all, however strongly its
latencies follow one another (Wilson's interval takes the variance at its bound for the same reason).

Failures count in full, and correlation is estimated on answered exchanges alone, so that a failure can only lower both
bounds. An outage (five failures in a row) is one event: it widens the interval downwards.
"""

import math
from dataclasses import dataclass

from setpoint.metrics.correlation import design_effect, longest_burst
from setpoint.metrics.proportion import wilson
from setpoint.metrics.sequence import always_valid
from setpoint.metrics.table import ExchangeTable
from setpoint.metrics.trials import Trials


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    """A share of observations with its interval.

    Attributes:
        share: Certainly inside, over all; None without observations.
        low: Lower bound, with everything open counted as outside.
        high: Upper bound, with everything open counted as inside.
        observations: Number of observations.
        effective: Effective number, for the lower bound; of gaps: those of answered exchanges.
        open: Observations that the client cut off.
        design_effect: Observations per independent one.
        failures_widen: The interval is mostly that of the share of failed exchanges (gaps only).
    """

    share: float | None
    low: float | None
    high: float | None
    observations: int
    effective: float
    open: int
    design_effect: float
    failures_widen: bool = False


def estimate(trials: Trials, table: ExchangeTable, *, looks: bool = False) -> ShareEstimate:
    """The share of a promise with its 95% interval.

    Args:
        trials: Counts over ``table``.
        table: Measured exchanges in order of schedule.
        looks: The sample size was chosen by looking at the data: use the always-valid interval.
    """
    n = trials.observations
    if n == 0:
        return ShareEstimate(None, None, None, 0, 0.0, 0, 1.0)
    answered = table.answered
    total, session = trials.total[answered], table.session[answered]
    spread = design_effect(trials.inside[answered], total, session)
    if trials.at_quantile is not None:
        spread = max(spread, design_effect(trials.at_quantile[answered], total, session))
    if trials.unit == "gaps":
        return _of_gaps(trials, table, spread, looks=looks)
    worst = max(spread, longest_burst(table.failed))
    inside, open_ = int(trials.inside.sum()), int(trials.open.sum())
    low = _interval(inside, n, worst, looks=looks)[0]
    high = _interval(inside + open_, n, spread, looks=looks)[1]
    return ShareEstimate(inside / n, low, high, n, n / worst, open_, worst)


def _of_gaps(trials: Trials, table: ExchangeTable, spread: float, *, looks: bool) -> ShareEstimate:
    """The share of gaps as a product, because a failure is one event however many gaps it counts.

    Gaps within the limit among those seen (observations: gaps) times exchanges answered among all (observations:
    exchanges). The two intervals are combined by the method of variance estimates recovery on logarithms (G. Y. Zou
    and A. Donner, Statistics in Medicine 27, 2008). Without a failure the second factor is 1: how often failures might
    have occurred is for the promise ``answered`` to say.
    """
    n, inside, open_ = trials.observations, int(trials.inside.sum()), int(trials.open.sum())
    counted = trials.total > 0
    exchanges, whole = int(counted.sum()), int((counted & table.answered).sum())
    cut = int((counted & table.cancelled).sum())
    seen = int(trials.total[table.answered].sum())
    if seen == 0:
        high = _interval(cut, exchanges, 1.0, looks=looks)[1]
        return ShareEstimate(0.0, 0.0, high, n, float(exchanges), open_, n / exchanges, failures_widen=True)
    pace = inside / seen
    pace_low, pace_high = _interval(inside, seen, spread, looks=looks)
    worst, best = whole / exchanges, (whole + cut) / exchanges
    burst = longest_burst(table.failed)
    worst_low = _interval(whole, exchanges, burst, looks=looks)[0] if worst < 1 else 1.0
    best_high = _interval(whole + cut, exchanges, 1.0, looks=looks)[1] if best < 1 else 1.0
    down = (_ratio(pace, pace_low), _ratio(worst, worst_low))
    share = pace * worst
    low = share * math.exp(-math.hypot(*down))
    high = pace * best * math.exp(math.hypot(_ratio(pace_high, pace), _ratio(best_high, best)))
    if pace == 0:
        high = pace_high * best_high
    return ShareEstimate(share, low, high, n, seen / spread, open_, spread, failures_widen=down[1] > down[0])


def _ratio(upper: float, lower: float) -> float:
    """Logarithm of a quotient; infinite where the lower end is zero."""
    return math.log(upper / lower) if lower > 0 and upper > 0 else math.inf if upper > 0 else 0.0


def _interval(inside: int, total: int, spread: float, *, looks: bool) -> tuple[float, float]:
    if looks:
        return always_valid(inside / spread, total / spread)
    return wilson(inside / total, total / spread)
