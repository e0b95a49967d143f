"""Percentiles with an interval that assumes no distribution, or no percentile at all.

The value is the smallest observation with at least the asked share at or below it (numpy's ``inverted_cdf``), so
that "p95 = x" and "95% are within x" are the same statement. The interval is made of two order statistics whose
ranks are binomial quantiles (H. A. David and H. N. Nagaraja, Order Statistics, 3rd ed., section 7.1; the same as
``scipy.stats.quantile_test``), at the effective sample size. Where the sample has no such rank on either side, the
percentile is None.
"""

import math
from dataclasses import dataclass

from scipy.special import bdtr, bdtrik

from setpoint.metrics.proportion import CONFIDENCE
from setpoint.metrics.table import Floats, Gaps


@dataclass(frozen=True, slots=True)
class Percentile:
    """One percentile of one metric.

    Attributes:
        quantile: In (0, 1).
        value: In the metric's unit; None when the sample cannot bound it ("n too small").
        low: Lower bound of its 95% interval; None likewise.
        high: Upper bound; None likewise.
        samples: Observations.
        effective_samples: After correction for correlation.
        needed: Observations (of this correlation) that would bound it.
    """

    quantile: float
    value: float | None
    low: float | None
    high: float | None
    samples: int
    effective_samples: float
    needed: int


def ascending(values: Floats | Gaps) -> Floats | Gaps:
    """A sorted copy."""
    ordered = values.copy()
    ordered.sort()
    return ordered


def fewest_samples(quantile: float, confidence: float = CONFIDENCE) -> int:
    """The fewest independent observations that bound a quantile on both sides: 72 for p95, 368 for p99."""
    tail = (1 - confidence) / 2
    extreme = max(quantile, 1 - quantile)
    return math.ceil(math.log(tail) / math.log(extreme) - 1e-9)


def percentile(
    ordered: Floats | Gaps, quantile: float, design_effect: float = 1.0, confidence: float = CONFIDENCE
) -> Percentile:
    """A percentile of observations in ascending order."""
    n = len(ordered)
    effective = n / design_effect
    needed = math.ceil(fewest_samples(quantile, confidence) * design_effect)
    value = low = high = None
    ranks = _ranks(math.floor(effective), quantile, confidence)
    if ranks is not None:
        value = float(ordered[rank_of(n, quantile)])
        below, above = (rank / math.floor(effective) for rank in ranks)
        low = min(value, float(ordered[max(0, math.floor(below * n + 1e-9) - 1)]))
        high = max(value, float(ordered[min(n - 1, math.ceil(above * n - 1e-9) - 1)]))
    return Percentile(quantile, value, low, high, n, effective, max(needed, 1))


def rank_of(samples: int, quantile: float) -> int:
    """Position (from 0) in the ordered sample of the smallest value with ``quantile`` of all at or below it."""
    return min(samples - 1, max(0, math.ceil(samples * quantile - 1e-9) - 1))


def _ranks(samples: int, quantile: float, confidence: float) -> tuple[int, int] | None:
    """Ranks (from 1) of the order statistics that enclose the quantile; None when the sample is too small.

    The number of observations below the true quantile is binomial: the lower rank is exceeded, and the upper one
    not reached, with at most half of ``1 - confidence``.
    """
    if samples < 1:
        return None
    tail = (1 - confidence) / 2
    low = _binomial_quantile(tail, samples, quantile)
    high = _binomial_quantile(1 - tail, samples, quantile) + 1
    return (low, high) if low >= 1 and high <= samples else None


def _binomial_quantile(share: float, trials: int, chance: float) -> int:
    """The least count that a binomial count does not exceed with probability ``share`` at least."""
    count = math.ceil(bdtrik(share, trials, chance))
    return count - 1 if count > 0 and bdtr(count - 1, trials, chance) >= share else count


def percentiles(
    values: Floats | Gaps, quantiles: tuple[float, ...], design_effect: float = 1.0
) -> tuple[Percentile, ...]:
    """Several percentiles of observations in any order."""
    ordered = ascending(values)
    return tuple(percentile(ordered, q, design_effect) for q in quantiles)
