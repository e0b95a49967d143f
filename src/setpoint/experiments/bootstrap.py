"""Paired hierarchical bootstrap of the difference between two arms: blocks, then sessions within them.

Both arms of a block share one schedule, so a resampled session is taken from both. The effect is the mean over blocks
of each block's own difference: what differs between blocks cancels. Few blocks make percentile intervals too narrow, so
the tails are taken further out, where Student's t with ``blocks - 1`` degrees would put them (T. Hesterberg, The
American Statistician 69, 2015, section 3.2). Resampling on both levels counts the noise within blocks twice: where that
dominates the interval is too wide, never too narrow (A. C. Davison and D. V. Hinkley, Bootstrap Methods, 1997, section
3.8).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

from setpoint.metrics.table import Floats

CONFIDENCE = 0.95
INNER = 800  # resamples of sessions, a block
OUTER = 20_000  # resamples of blocks
MOST_CELLS = 2_000_000  # of one array

Statistic = Callable[[Floats], Floats]
"""From (draws, values) with NaN where there is none to one figure a draw."""


@dataclass(frozen=True, slots=True)
class Effect:
    """A difference between arms.

    Attributes:
        value: Mean over blocks: a difference, or the logarithm of a ratio.
        low: Lower end of its 95% interval; minus infinity where it is not bounded.
        high: Upper end.
        blocks: Each block's own difference.
    """

    value: float
    low: float
    high: float
    blocks: tuple[float, ...]


def quantile_statistic(quantile: float) -> Statistic:
    """The smallest value with at least that share of all at or below it; infinite values count."""

    def statistic(values: Floats) -> Floats:
        ordered = np.sort(values, axis=1)  # NaN sorts last
        count = np.sum(~np.isnan(ordered), axis=1)
        rank = np.clip(np.ceil(count * quantile - 1e-9).astype(np.int64) - 1, 0, None)
        return np.asarray(ordered[np.arange(len(ordered)), rank], dtype=np.float64)

    return statistic


def mean_statistic(values: Floats) -> Floats:
    """The mean."""
    known = ~np.isnan(values)
    count = known.sum(axis=1)
    total = np.where(known, values, 0.0).sum(axis=1)
    return np.asarray(np.divide(total, count, out=np.full(len(values), np.nan), where=count > 0))


def difference(
    blocks: Sequence[tuple[Floats, Floats]],
    statistic: Statistic,
    *,
    ratio: bool,
    seed: int,
    inner: int = INNER,
    outer: int = OUTER,
) -> Effect:
    """The second arm against the first.

    Args:
        blocks: One a block: values of the two arms, a row a session (the same in both), NaN without a value.
        statistic: What is compared.
        ratio: Compare logarithms.
        seed: Of the resampling.
        inner: Resamples of sessions.
        outer: Resamples of blocks.
    """
    generator = np.random.default_rng(seed)
    points, pools = [], []
    for first, second in blocks:
        points.append(float(_contrast(first.reshape(1, -1), second.reshape(1, -1), statistic, ratio=ratio)[0]))
        pools.append(_resampled(first, second, statistic, inner, generator, ratio=ratio))
    value = float(np.mean(points)) if points else math.nan
    if len(blocks) < 2:
        return Effect(value, -math.inf, math.inf, tuple(points))
    pool = np.stack(pools)
    chosen = generator.integers(0, len(blocks), (outer, len(blocks)))
    drawn = pool[chosen, generator.integers(0, inner, chosen.shape)]
    with np.errstate(invalid="ignore"):  # an infinite latency in both arms has no difference
        draws = drawn.mean(axis=1)
    tail = tail_of(len(blocks))
    unknown = np.isnan(draws)
    low = float(np.quantile(np.where(unknown, -np.inf, draws), tail, method="lower"))
    high = float(np.quantile(np.where(unknown, np.inf, draws), 1 - tail, method="higher"))
    return Effect(value, min(low, value), max(high, value), tuple(points))


def tail_of(blocks: int, confidence: float = CONFIDENCE) -> float:
    """Share of draws beyond each end: Hesterberg's expansion for few blocks."""
    quantile = float(stdtrit(blocks - 1, 0.5 + confidence / 2))
    return float(ndtr(-math.sqrt(blocks / (blocks - 1)) * quantile))


def _resampled(
    first: Floats, second: Floats, statistic: Statistic, draws: int, generator: np.random.Generator, *, ratio: bool
) -> Floats:
    rows = len(first)
    cells = max(rows * max(first.shape[1], second.shape[1]), 1)
    batch = max(1, min(draws, MOST_CELLS // cells))
    out = []
    for begin in range(0, draws, batch):
        size = min(batch, draws - begin)
        chosen = generator.integers(0, rows, (size, rows))
        out.append(_contrast(first[chosen].reshape(size, -1), second[chosen].reshape(size, -1), statistic, ratio=ratio))
    return np.concatenate(out)


def _contrast(first: Floats, second: Floats, statistic: Statistic, *, ratio: bool) -> Floats:
    a, b = statistic(first), statistic(second)
    with np.errstate(divide="ignore", invalid="ignore"):  # zero or infinite figures are told by the verdict
        return np.asarray(np.log(b) - np.log(a) if ratio else b - a, dtype=np.float64)
