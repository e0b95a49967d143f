"""Search over a bounded list of values: screen them in a few rounds, then confirm the best in blocks of its own.

Screening decides nothing: it drops what lost every round. The verdict comes from fresh blocks, so that picking the best
of many cannot make it look better than it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ROUNDS = 3
FEWEST_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Screened:
    """Where a search stands.

    Attributes:
        alive: Values that have not lost every round, the best first.
        dropped: Values that have.
        finished: Whether further rounds would decide nothing.
    """

    alive: tuple[str, ...]
    dropped: tuple[str, ...]
    finished: bool


def order_of(values: Sequence[str], round_: int) -> tuple[str, ...]:
    """Order of the values in a round: forwards, then backwards, so that drift falls on all."""
    return tuple(values) if round_ % 2 == 0 else tuple(reversed(values))


def screen(figures: Mapping[str, Sequence[float]], *, lower_is_better: bool, delta: float) -> Screened:
    """Drops every value that was worse than the leader by more than δ in each round.

    Args:
        figures: The primary endpoint of each value still in the race, one a round; infinite where it has none.
        lower_is_better: For latencies.
        delta: Relative difference that counts as the same.
    """
    rounds = len(next(iter(figures.values())))
    sign = 1.0 if lower_is_better else -1.0
    ranked = sorted(figures, key=lambda v: sign * _middle(figures[v]))
    leader = ranked[0]
    dropped = []
    if rounds >= FEWEST_ROUNDS:
        dropped = [v for v in ranked[1:] if _lost(figures[v], figures[leader], lower=lower_is_better, delta=delta)]
    alive = tuple(v for v in ranked if v not in dropped)
    return Screened(alive, tuple(dropped), len(alive) == 1 or rounds >= ROUNDS)


def _middle(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def _lost(own: Sequence[float], best: Sequence[float], *, lower: bool, delta: float) -> bool:
    if lower:
        return all(x > y * (1 + delta) for x, y in zip(own, best, strict=True))
    return all(x < y / (1 + delta) for x, y in zip(own, best, strict=True))
