"""Paired hierarchical bootstrap of the difference between two arms: blocks, then sessions within them.

Both arms of a block share one schedule, so a resampled session is taken from both: requests are paired. The effect is
the mean over blocks of each block's own difference: what differs between blocks cancels.

Resampling on both levels would count the noise within blocks twice, since the blocks' own differences hold it already
(A. C. Davison and D. V. Hinkley, Bootstrap Methods, 1997, section 3.8). So the blocks are first drawn towards their
mean until they spread no more than is left of their variance once the noise within them is taken off.

Few blocks make percentile intervals too narrow, so the tails are taken further out, where Student's t would put them
(T. Hesterberg, The American Statistician 69, 2015, section 3.2). Its degrees of freedom are those of the variance that
is used (F. E. Satterthwaite, Biometrics 2, 1946): ``blocks - 1`` where blocks differ by more than the noise within
them, more where that noise, which many sessions estimate, is larger than what the blocks show.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
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
        points.append(float(_contrast(*(statistic(x.reshape(1, -1)) for x in (first, second)), ratio=ratio)[0]))
        pools.append(_resampled(first, second, statistic, inner, generator, ratio=ratio))
    with np.errstate(invalid="ignore"):  # blocks that are infinite in opposite directions have no mean
        value = float(np.mean(points)) if points else math.nan
    if len(blocks) < 2:
        return Effect(value, -math.inf, math.inf, tuple(points))
    pool = np.stack(pools)
    spread = _spread(points, pool)
    if spread is not None:
        pool += ((1 - spread.kept) * (value - np.array(points)))[:, None]
    chosen = generator.integers(0, len(blocks), (outer, len(blocks)))
    drawn = pool[chosen, generator.integers(0, inner, chosen.shape)]
    with np.errstate(invalid="ignore"):  # an infinite latency in both arms has no difference
        draws = drawn.mean(axis=1)
    tail = tail_of(len(blocks), spread or Spread(1.0, 0.0))
    unknown = np.isnan(draws)
    low = float(np.quantile(np.where(unknown, -np.inf, draws), tail, method="lower"))
    high = float(np.quantile(np.where(unknown, np.inf, draws), 1 - tail, method="higher"))
    half = (
        0.0 if spread is None else spread.half_width(len(blocks))
    )  # five points have no tail that far out: never narrower than Student's own
    return Effect(value, min(low, value - half), max(high, value + half), tuple(points))


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the noise of the blocks' differences comes from.

    Attributes:
        between: Variance between the blocks' differences.
        within: Mean variance of a block's difference over its resampled sessions.
    """

    between: float
    within: float

    @property
    def kept(self) -> float:
        """Share of the blocks' spread that the noise within them does not explain."""
        return math.sqrt(max(0.0, 1 - self.within / self.between)) if self.between > 0 else 1.0

    def degrees(self, blocks: int) -> float:
        """Degrees of freedom of the larger of both variances, as a variance of the blocks' differences."""
        share = self.within / self.between if self.between > 0 else 1.0
        return (blocks - 1) * max(1.0, share) ** 2

    def half_width(self, blocks: int, confidence: float = CONFIDENCE) -> float:
        """Of Student's interval of the mean of so many blocks."""
        quantile = float(stdtrit(self.degrees(blocks), 0.5 + confidence / 2))
        return quantile * math.sqrt(max(self.between, self.within) / blocks)


def _spread(points: Sequence[float], pool: Floats) -> Spread | None:
    """None where a block has no finite difference: the draws then tell how far the interval reaches."""
    if not (np.isfinite(points).all() and np.isfinite(pool).all()):
        return None
    return Spread(float(np.var(points, ddof=1)), float(pool.var(axis=1).mean()))


def tail_of(blocks: int, spread: Spread, confidence: float = CONFIDENCE) -> float:
    """Share of draws beyond each end: Hesterberg's expansion for few blocks.

    Resampling ``n`` blocks shows ``(n - 1) / n`` of the variance that they kept; the tail makes up for that too.
    """
    quantile = float(stdtrit(spread.degrees(blocks), 0.5 + confidence / 2))
    whole = max(spread.between, spread.within)
    missing = spread.kept**2 * spread.between / blocks / whole if whole > 0 else 1 / blocks
    return float(ndtr(-quantile / math.sqrt(1 - missing)))


def _resampled(
    first: Floats, second: Floats, statistic: Statistic, draws: int, generator: np.random.Generator, *, ratio: bool
) -> Floats:
    rows = len(first)
    cells = max(rows * max(first.shape[1], second.shape[1]), 1)
    batch = max(1, min(draws, MOST_CELLS // cells))
    out, absent = [], []
    for begin in range(0, draws, batch):
        size = min(batch, draws - begin)
        chosen = generator.integers(0, rows, (size, rows))
        a, b = (statistic(arm[chosen].reshape(size, -1)) for arm in (first, second))
        out.append(_contrast(a, b, ratio=ratio))
        absent.append(np.isnan(a) | np.isnan(b))
    return _with_both_arms(np.concatenate(out), np.concatenate(absent))


def _with_both_arms(draws: Floats, absent: npt.NDArray[np.bool_]) -> Floats:
    """Draws of sessions that only one arm reached replaced by others: a closed loop is as long as its answers."""
    return (
        draws if absent.all() or not absent.any() else np.where(absent, np.resize(draws[~absent], draws.shape), draws)
    )


def _contrast(a: Floats, b: Floats, *, ratio: bool) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):  # zero or infinite figures are told by the verdict
        return np.asarray(np.log(b) - np.log(a) if ratio else b - a, dtype=np.float64)
