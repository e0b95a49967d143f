"""Which of the loads that were tried bound the answer: one rule for the search and for the report."""

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

from setpoint.metrics.verdict import State


class Tried(Protocol):
    """A load and what came of it."""

    @property
    def load(self) -> float:
        """Offered load, in one unit for all that are compared."""
        ...

    @property
    def state(self) -> State:
        """The verdict on every promise together."""
        ...


T = TypeVar("T", bound=Tried)


def lowest_missed(tried: Sequence[T]) -> T | None:
    """The lowest load at which a promise was missed for certain; None when none was."""
    return min((t for t in tried if t.state is State.MISSED), key=_load, default=None)


def highest_met(tried: Sequence[T]) -> T | None:
    """The highest load met below every missed one: a met load above a missed one is taken for noise."""
    missed = lowest_missed(tried)
    ceiling = math.inf if missed is None else missed.load
    return max((t for t in tried if t.state is State.MET and t.load < ceiling), key=_load, default=None)


def undecided_between(tried: Sequence[T]) -> list[T]:
    """Loads between the two, or beyond the only one, that no run decided; ascending, one a load."""
    met, missed = highest_met(tried), lowest_missed(tried)
    low = -math.inf if met is None else met.load
    high = math.inf if missed is None else missed.load
    found = {t.load: t for t in tried if t.state is State.UNDECIDED and low < t.load < high}
    return [found[load] for load in sorted(found)]


def overall_state(tried: Sequence[Tried]) -> State:
    """Met when a load keeps every promise; missed when even the lowest load tried breaks one; else undecided."""
    if highest_met(tried) is not None:
        return State.MET
    missed = lowest_missed(tried)
    if missed is None or any(t.load < missed.load for t in tried):
        return State.UNDECIDED
    return State.MISSED


def _load(tried: Tried) -> float:
    return tried.load
