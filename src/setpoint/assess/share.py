"""How an assessment's budget is divided among its parts.

A part gets its weight's share of what is left when it begins; what it does not use goes to the parts after it. The
experiment is the exception: unless it gets what five blocks of the shortest runs take, it can decide nothing. So much
is kept for it, and a little more, since the parts before it may end late. Where that is more than ``MOST_OF_BUDGET`` of
the whole, the others share it instead.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from setpoint.assess.experiment import LEAST_DURATION_S, OVERHEAD_S
from setpoint.experiments.design import FEWEST_BLOCKS, RUNS_A_BLOCK

SEARCH, DIAGNOSIS, QUALITY, EXPERIMENT = "search", "diagnosis", "quality", "experiment"
WEIGHTS = {SEARCH: 12.0, DIAGNOSIS: 3.0, QUALITY: 4.0, EXPERIMENT: 8.0}
MOST_OF_BUDGET = 0.4
EXPERIMENT_S = FEWEST_BLOCKS * RUNS_A_BLOCK * (LEAST_DURATION_S + OVERHEAD_S)
KEPT_S = EXPERIMENT_S + 20.0
LEAST_BUDGET_S = KEPT_S / MOST_OF_BUDGET  # of an assessment that runs its first experiment


@dataclass(slots=True)
class Shares:
    """The division of one budget.

    Attributes:
        budget_s: Of everything; the clock starts when this is made.
        parts: Those that are wanted, in the order of ``WEIGHTS``.
    """

    budget_s: float
    parts: Sequence[str]
    _deadline_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._deadline_s = time.monotonic() + self.budget_s

    @property
    def reserved_s(self) -> float:
        """What the other parts leave for the experiment."""
        if EXPERIMENT not in self.parts or self.budget_s < LEAST_BUDGET_S:
            return 0.0
        own = WEIGHTS[EXPERIMENT] / sum(WEIGHTS[p] for p in self.parts)
        return max(KEPT_S, own * self.budget_s)

    @property
    def left_s(self) -> float:
        """Of the whole budget."""
        return max(self._deadline_s - time.monotonic(), 0.0)

    def of(self, part: str) -> float:
        """What a part that begins now may spend."""
        if part == EXPERIMENT:
            return self.left_s
        names = list(WEIGHTS)
        later = [p for p in self.parts if names.index(p) >= names.index(part) and p != EXPERIMENT]
        own = WEIGHTS[part] / sum(WEIGHTS[p] for p in later)
        return max(self.left_s - self.reserved_s, 0.0) * own
