"""Which load to try next: the rules of the search for maximum goodput, without any measurement.

Short steps double or halve the load until it leans from met to missed. Then the budget goes where the answer is:
first a load that certainly keeps the promises, stepping down until one is found; then one that certainly breaks them;
then between the two, until they are close.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from setpoint.metrics.capacity import highest_met, lowest_missed, undecided_between
from setpoint.metrics.verdict import State

RESOLUTION = 1.2  # the search ends when the met and the missed load are this close
SHORT_S = 10.0
SCOUTS = 20  # answers that a short step waits for, to see where it leans
DOWN = 0.7  # step down from a load that could not be shown to keep the promises
FLOOR = 1 / 1000  # of the first load: nothing lower is tried
MET_SHARE = 0.8  # of what is left may be spent on one attempt to find a met load
MISSED_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Attempt:
    """One load that was tried.

    Attributes:
        load: Session starts a second, or users in closed loop.
        state: What was shown.
        lean: Where it points when nothing was shown: met or missed by the observed shares alone.
        long: Whether it was made to decide; the others only find the way.
    """

    load: float
    state: State
    lean: State
    long: bool


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rules for one search.

    Attributes:
        start: First load.
        whole: Loads are whole numbers (users).
        needed_s: How long a step at a load must last to be decided.
        requests_per_load: Requests a second at a load of 1; 0 for users.
        least_s: How long it must last to show that it is met when nothing goes wrong; shorter ones are not begun.
        overhead_s: Preparation and drain of a step.
    """

    start: float
    whole: bool
    needed_s: Callable[[float], float]
    least_s: Callable[[float], float]
    overhead_s: float
    requests_per_load: float = 1.0

    def following(self, tried: Sequence[Attempt], left_s: float) -> tuple[float, float] | None:
        """Load and send window in seconds of the next step; None when nothing more can be learnt.

        Args:
            tried: All attempts so far.
            left_s: What is left of the budget.
        """
        step = self._following(tried, left_s)
        if step is not None and step[1] + self.overhead_s > left_s:
            return None
        return step

    def _following(self, tried: Sequence[Attempt], left_s: float) -> tuple[float, float] | None:
        if not tried:
            return self._scout(self.rounded(self.start))
        met, missed = highest_met(tried), lowest_missed(tried)
        low, high = _bracket(tried)
        if high is None:
            assert low is not None
            return self._scout(self.rounded(low * 2))
        if low is None and met is None:
            return self._down(tried, left_s)
        if met is None:
            return self._first_met(tried, low, left_s)
        if missed is None:
            return self._first_missed(tried, high, left_s)
        return self._between(tried, met.load, missed.load, left_s)

    def _first_met(self, tried: Sequence[Attempt], low: float | None, left_s: float) -> tuple[float, float] | None:
        """The highest load that leans met and was not given its full time yet; when all were, a lower one."""
        if low is not None and not any(t.load == low and t.long for t in tried):
            return self._deciding(low, MET_SHARE * left_s)
        return self._down(tried, left_s)

    def _first_missed(self, tried: Sequence[Attempt], high: float, left_s: float) -> tuple[float, float]:
        """The lowest load that leans missed; when it was given its full time in vain, a higher one.

        When little is left, the highest load that was tried: it is the soonest to show.
        """
        highest = max(t.load for t in tried)
        if any(t.load == high and t.long for t in tried):
            high = self.rounded(highest / DOWN)
        elif self.needed_s(high) + self.overhead_s > left_s:
            high = highest
        return high, self._window(high, MISSED_SHARE * left_s)

    def _down(self, tried: Sequence[Attempt], left_s: float) -> tuple[float, float] | None:
        """Below everything that was tried; at the floor, the lowest load is looked at until it is decided."""
        lowest = min(tried, key=lambda t: t.load)
        leaning = any(t.lean is State.MET for t in tried)
        lower = self.rounded(lowest.load * (DOWN if leaning else 0.5))
        if not self.start * FLOOR <= lower < lowest.load:
            decided = lowest.state is not State.UNDECIDED or lowest.long
            return None if decided else (lowest.load, self._window(lowest.load, left_s))
        return self._deciding(lower, MET_SHARE * left_s) if leaning else self._scout(lower)

    def _between(
        self, tried: Sequence[Attempt], met: float, missed: float, left_s: float
    ) -> tuple[float, float] | None:
        """Inside the widest gap next to a decided end; a load that stayed undecided is left alone."""
        marks = [met, *(t.load for t in undecided_between(tried) if t.long), missed]
        for below, above in ((marks[0], marks[1]), (marks[-2], marks[-1])):
            middle = self.rounded(math.sqrt(below * above))
            if above / below > RESOLUTION and below < middle < above:
                return self._deciding(middle, left_s)
        return None

    def _deciding(self, load: float, available_s: float) -> tuple[float, float] | None:
        """A step at this load, where there is time enough for it to show that the promises are kept."""
        window_s = self._window(load, available_s)
        return (load, window_s) if window_s >= self.least_s(load) else None

    def _scout(self, load: float) -> tuple[float, float]:
        per_s = load * self.requests_per_load
        return load, SHORT_S if self.requests_per_load == 0 else max(SHORT_S, SCOUTS / per_s)

    def _window(self, load: float, available_s: float) -> float:
        return max(SHORT_S, min(self.needed_s(load), available_s - self.overhead_s))

    def decides(self, load: float, window_s: float) -> bool:
        """Whether a step is made to decide."""
        return window_s >= self.needed_s(load) or window_s > self._scout(load)[1]

    def rounded(self, load: float) -> float:
        """Three digits, or whole users."""
        return float(max(1, round(load))) if self.whole else float(f"{load:.3g}")


def _bracket(tried: Sequence[Attempt]) -> tuple[float | None, float | None]:
    """Highest load that leans met below the lowest that leans missed, and that one.

    Of several attempts at one load a decided one counts, then a long one, then the latest.
    """
    best: dict[float, tuple[tuple[bool, bool, int], State]] = {}
    for position, attempt in enumerate(tried):
        weight = (attempt.state is not State.UNDECIDED, attempt.long, position)
        if attempt.load not in best or weight > best[attempt.load][0]:
            best[attempt.load] = (weight, attempt.lean)
    high = min((load for load, (_, lean) in best.items() if lean is State.MISSED), default=None)
    below = [x for x, (_, lean) in best.items() if lean is State.MET and (high is None or x < high)]
    return max(below, default=None), high
