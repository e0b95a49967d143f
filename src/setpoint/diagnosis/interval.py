"""A figure with its 95% interval, by resampling."""

from dataclasses import dataclass

import numpy as np

from setpoint.metrics.table import Floats

RESAMPLES = 200
CONFIDENCE = 0.95
MOST_ROWS = 5000


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure.

    Attributes:
        value: The estimate.
        low: Lower end of its 95% interval.
        high: Upper end.
        samples: What it rests on: exchanges.
    """

    value: float
    low: float
    high: float
    samples: int


def spread_of(draws: Floats, value: float, samples: int) -> Interval:
    """The estimate with the percentile interval of its resampled values (B. Efron, 1979)."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(draws, (tail, 1 - tail)) if len(draws) else (value, value)
    return Interval(value, min(float(low), value), max(float(high), value), samples)


def ratio(part: Floats, whole: Floats, seed: int = 0) -> Interval | None:
    """Sum of ``part`` over sum of ``whole``; pairs are resampled together. None where ``whole`` is empty."""
    total = float(whole.sum())
    if not len(whole) or total <= 0:
        return None
    generator = np.random.default_rng(seed)
    value, samples = float(part.sum()) / total, len(whole)
    if samples > MOST_ROWS:
        kept = generator.choice(samples, MOST_ROWS, replace=False)
        part, whole = part[kept], whole[kept]
    chosen = generator.integers(0, len(whole), (RESAMPLES, len(whole)))
    sums = whole[chosen].sum(axis=1)
    draws = part[chosen].sum(axis=1)[sums > 0] / sums[sums > 0]
    return spread_of(draws, value, samples)


def median_difference(first: Floats, second: Floats, seed: int = 0) -> Interval | None:
    """Median of ``first`` less median of ``second``; None where one of them has fewer than three values."""
    if min(len(first), len(second)) < 3:
        return None
    generator = np.random.default_rng(seed)
    a = np.median(generator.choice(first, (RESAMPLES, len(first))), axis=1)
    b = np.median(generator.choice(second, (RESAMPLES, len(second))), axis=1)
    return spread_of(a - b, float(np.median(first) - np.median(second)), len(first) + len(second))
