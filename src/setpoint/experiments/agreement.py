"""How far the answers of two arms are the same text: a fact that is reported and never judged.

Batching alone changes the last digits of sums, and one other token changes all that follow. So equality decides
nothing; where two answers part says how soon a change shows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Key = tuple[str, str, int]
"""Suite, task, epoch."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Answers of two arms to the same questions.

    Attributes:
        answers: Questions that both answered.
        same: Share of them with equal texts.
        until: Mean share of the longer text, in characters, before the two part.
    """

    answers: int
    same: float
    until: float


def agreement(a: Mapping[Key, str], b: Mapping[Key, str]) -> Agreement | None:
    """The agreement of two arms; None when they answered no question in common."""
    pairs = [(a[key], b[key]) for key in a.keys() & b.keys()]
    if not pairs:
        return None
    same = sum(x == y for x, y in pairs) / len(pairs)
    return Agreement(len(pairs), same, sum(_until(x, y) for x, y in pairs) / len(pairs))


def _until(x: str, y: str) -> float:
    if x == y:
        return 1.0
    common = next((i for i, (c, d) in enumerate(zip(x, y, strict=False)) if c != d), min(len(x), len(y)))
    return common / max(len(x), len(y))
