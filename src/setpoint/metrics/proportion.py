"""A share and what can be said about it: Wilson's interval, at a sample size that need not be whole.

Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927). The
closed form is used, because an effective sample size is a fraction; for whole numbers it equals
``scipy.stats.binomtest(k, n).proportion_ci(method="wilson")`` (a test holds them together).
"""

import math

from scipy.special import ndtri

CONFIDENCE = 0.95


def wilson(share: float, samples: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Two-sided interval of a proportion.

    Args:
        share: Observed proportion, 0 to 1.
        samples: Effective number of observations, above 0.
        confidence: Coverage.
    """
    z = float(ndtri(0.5 + confidence / 2))
    centre = (share + z * z / (2 * samples)) / (1 + z * z / samples)
    half = z / (1 + z * z / samples) * math.sqrt(share * (1 - share) / samples + (z / (2 * samples)) ** 2)
    low = 0.0 if share == 0 else max(0.0, centre - half)
    high = 1.0 if share == 1 else min(1.0, centre + half)
    return min(low, share), max(high, share)


def samples_to_decide(
    share: float, required: float, design_effect: float = 1.0, confidence: float = CONFIDENCE
) -> int | None:
    """Observations after which Wilson's interval would lie on one side of ``required``, if the share stays.

    Returns:
        The number, or None when the share is so near that ten million would not decide.
    """
    z2 = float(ndtri(0.5 + confidence / 2)) ** 2
    if share == required:
        return None
    # Wilson's bound equals ``required`` where (share - required)² = z² required (1 - required) / n.
    needed = z2 * required * (1 - required) / (share - required) ** 2 * design_effect
    return math.ceil(needed) if needed < 1e7 else None


def samples_to_meet(required: float, confidence: float = CONFIDENCE) -> int:
    """The fewest observations, all within, whose lower bound reaches ``required``: 73 for 95%."""
    found = samples_to_decide(1.0, required, confidence=confidence)
    assert found is not None
    return found
