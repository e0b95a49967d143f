"""Verdicts: met, missed, or undecided with the reason."""

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """What can be said about a promise."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


class Origin(StrEnum):
    """Where a figure comes from (law 1)."""

    MEASURED = "measured"
    LOGGED = "logged"
    DATASHEET = "datasheet"
    COMPUTED = "computed"
    SIMULATED = "simulated"
    ASSUMED = "assumed"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on one promise for one run.

    Attributes:
        promise: The promise in words, e.g. ``"p95 TTFT ≤ 800 ms"``.
        metric: Its metric, e.g. ``ttft``.
        state: Met, missed or undecided.
        reason: Why it is undecided; for met and missed the sentence with the numbers.
        required: The share that must be within the limit, e.g. 0.95.
        share: Observed share within the limit; None when nothing was observed.
        low: Lower bound of the 95% interval of the share.
        high: Upper bound.
        samples: Exchanges judged; for ITL gaps.
        effective_samples: After correction for shared queues and sessions.
        limit: The limit in base units; None for promises without one (answered share).
        observed: The metric's value at the promised quantile over answered exchanges, in base units; None where the
            sample is too small to bound it.
        more_samples: How many more exchanges would probably decide it; None when decided or unknown.
    """

    promise: str
    metric: str
    state: State
    reason: str
    required: float
    share: float | None
    low: float | None
    high: float | None
    samples: int
    effective_samples: float
    limit: float | None
    observed: float | None
    more_samples: int | None
