"""From an effect to a verdict: better, worse, same within δ, or undecided with the reason."""

import math
from dataclasses import dataclass
from enum import StrEnum

from setpoint.experiments.bootstrap import Effect
from setpoint.experiments.design import FEWEST_BLOCKS
from setpoint.experiments.endpoint import Endpoint

DELTA_RATIO = 0.05
DELTA_SHARE = 0.02


class Judgement(StrEnum):
    """What can be said about the second arm."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Compared:
    """One endpoint of two arms.

    Attributes:
        endpoint: Its name.
        promised: Whether the card promises it.
        ratio: Whether ``change`` and its ends are relative; else they are differences.
        lower_is_better: For latencies.
        a: The figure of the first arm over all its runs; None where it is not bounded.
        b: Of the second.
        change: Of B against A: -0.3 is 30% less, or 30 points of a share less; None where it is not known.
        low: Lower end of its 95% interval; None where it is not bounded.
        high: Upper end.
        delta: What counts as the same.
        judgement: The verdict.
        reason: In one sentence.
        blocks: Each block's own change.
    """

    endpoint: str
    promised: bool
    ratio: bool
    lower_is_better: bool
    a: float | None
    b: float | None
    change: float | None
    low: float | None
    high: float | None
    delta: float
    judgement: Judgement
    reason: str
    blocks: tuple[float | None, ...]


def delta_of(endpoint: Endpoint, wanted: float | None) -> float:
    """What counts as the same: a share of a latency or rate, or points of a share."""
    if endpoint.ratio:
        return DELTA_RATIO if wanted is None else wanted
    return DELTA_SHARE


def judge_effect(endpoint: Endpoint, effect: Effect, delta: float, doubt: str | None) -> tuple[Judgement, str]:
    """The verdict of one endpoint.

    Args:
        endpoint: What was compared.
        effect: The second arm against the first.
        delta: What counts as the same.
        doubt: Why nothing can be said; None without a reason.
    """
    if doubt is not None:
        return Judgement.UNDECIDED, doubt
    blocks = len(effect.blocks)
    if not math.isfinite(effect.value):
        return Judgement.UNDECIDED, "failed exchanges reach this quantile, or it has no value, in some block"
    if blocks < FEWEST_BLOCKS:
        return Judgement.UNDECIDED, f"{blocks} of at least {FEWEST_BLOCKS} blocks"
    change, low, high = (relative(endpoint, x) for x in (effect.value, effect.low, effect.high))
    words = f"{signed(endpoint, change)} [{signed(endpoint, low)}, {signed(endpoint, high)}] over {blocks} blocks"
    if -delta <= low and high <= delta:
        return Judgement.SAME, f"{words}, all within {shown(endpoint, delta)}"
    if low > 0 or high < 0:
        rises = low > 0
        return (Judgement.WORSE if rises == endpoint.lower_is_better else Judgement.BETTER), words
    return Judgement.UNDECIDED, f"{words}: the interval holds both no change and more than {shown(endpoint, delta)}"


def relative(endpoint: Endpoint, effect: float) -> float:
    """A logarithm of a ratio as a relative change; a difference as it is."""
    if not endpoint.ratio:
        return effect
    return math.expm1(effect) if effect < 700 else math.inf


def shown(endpoint: Endpoint, size: float) -> str:
    """A size of change in words."""
    return f"{size:.0%}" if endpoint.ratio else f"{size * 100:.1f} points"


def signed(endpoint: Endpoint, change: float) -> str:
    """A change in words, with its sign."""
    if math.isinf(change):
        return "unbounded"
    return f"{change:+.1%}" if endpoint.ratio else f"{change * 100:+.1f} points"
