"""An interval for a share that stays valid however often one looks: for stopping early.

Wilson's interval covers the truth in 95% of samples whose size was fixed before. Whoever looks after every exchange
and stops at the first favourable interval is wrong far more often. A confidence sequence covers the truth at *all*
sizes at once with 95% probability. This one inverts the beta-binomial mixture martingale

    M_n(p) = B(a + k, b + n - k) / (B(a, b) p^k (1 - p)^(n - k))

with a = b = 1/2. At the true p it is a non-negative martingale that starts at 1, so that it ever reaches 1/0.05 with
at most 5% probability (Ville's inequality). Sources: H. Robbins, "Statistical methods related to the law of the
iterated logarithm", Annals of Mathematical Statistics 41 (1970); S. R. Howard, A. Ramdas, J. McAuliffe and
J. Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals of Statistics 49 (2021).
"""

import math

from scipy.optimize import brentq
from scipy.special import betaln

from setpoint.metrics.proportion import CONFIDENCE
from setpoint.metrics.verdict import State

_A = _B = 0.5


class ProportionSequence:
    """Counts within and outside, one look at a time.

    Args:
        design_effect: Divides the counts, where observations are correlated. The guarantee is exact at 1 for
            independent observations; with another value it is as good as the estimate.
        confidence: Coverage over all looks together.
    """

    def __init__(self, *, design_effect: float = 1.0, confidence: float = CONFIDENCE) -> None:
        assert design_effect >= 1
        self.design_effect = design_effect
        self.confidence = confidence
        self.inside = 0
        self.total = 0

    def add(self, within: bool) -> None:  # noqa: FBT001 - the observation itself is a truth value
        """One more observation."""
        self.add_counts(int(within), 1)

    def add_counts(self, inside: int, total: int) -> None:
        """Several more observations, ``inside`` of ``total`` within."""
        assert 0 <= inside <= total
        self.inside += inside
        self.total += total

    @property
    def share(self) -> float | None:
        """Observed share; None before the first observation."""
        return self.inside / self.total if self.total else None

    def interval(self) -> tuple[float, float]:
        """The interval now; (0, 1) before the first observation."""
        return always_valid(
            self.inside / self.design_effect, self.total / self.design_effect, confidence=self.confidence
        )

    def state(self, required: float) -> State:
        """Met or missed as soon as the interval excludes ``required``; cheaper than ``interval``."""
        k, n = self.inside / self.design_effect, self.total / self.design_effect
        if n == 0 or _log_mixture(k, n, required) < -math.log(1 - self.confidence):
            return State.UNDECIDED
        return State.MET if k / n > required else State.MISSED


def always_valid(inside: float, total: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The confidence sequence at one look; counts may be fractions."""
    if total <= 0:
        return 0.0, 1.0
    threshold = -math.log(1 - confidence)
    share = inside / total

    def excess(p: float) -> float:
        return _log_mixture(inside, total, p) - threshold

    tiny = 1e-12
    low = float(brentq(excess, tiny, share)) if share > tiny and excess(tiny) > 0 > excess(share) else 0.0
    high = 1.0
    if share < 1 - tiny and excess(1 - tiny) > 0 > excess(share):
        high = float(brentq(excess, share, 1 - tiny))
    return low, high


def looks_to_decide(share: float, required: float, design_effect: float = 1.0) -> int | None:
    """Observations after which the confidence sequence would exclude ``required``, if the share stays.

    Returns:
        The number, or None when ten million would not decide.
    """

    def decided(samples: float) -> bool:
        effective = samples / design_effect
        return _log_mixture(share * effective, effective, required) >= -math.log(1 - CONFIDENCE)

    high = 1
    while not decided(high):
        high *= 2
        if high > 10_000_000 or share == required:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if decided(middle) else (middle, high)
    return high


def _log_mixture(inside: float, total: float, p: float) -> float:
    """Logarithm of M_n(p), the evidence against p."""
    outside = total - inside
    value = float(betaln(_A + inside, _B + outside) - betaln(_A, _B))
    if inside:
        value -= inside * math.log(p) if p > 0 else -math.inf
    if outside:
        value -= outside * math.log1p(-p) if p < 1 else -math.inf
    return value
