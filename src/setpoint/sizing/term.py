"""A figure with its range and its origin."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Origin = Literal["computed", "datasheet", "logged", "assumed"]


@dataclass(frozen=True, slots=True)
class Range:
    """A value and how far off it may be; the unit is the holder's.

    Attributes:
        low: Rarely less.
        expected: Best estimate.
        high: Rarely more.
    """

    low: float
    expected: float
    high: float

    def __post_init__(self) -> None:
        assert self.low <= self.expected <= self.high, self

    def map(self, scale: float) -> "Range":
        """Every value times ``scale`` (not negative)."""
        return Range(self.low * scale, self.expected * scale, self.high * scale)


def exactly(value: float) -> Range:
    """A value without a range."""
    return Range(value, value, value)


@dataclass(frozen=True, slots=True)
class Term:
    """One part of the memory of a rank.

    Attributes:
        name: ``weights``, ``activations``, ``non_torch``, ``graphs``, ``context``, ``fragmentation``.
        size: Bytes.
        origin: Where the figure comes from.
        basis: The formula, log or datasheet, in a few words.
    """

    name: str
    size: Range
    origin: Origin
    basis: str


def left_over(budget: float, terms: Iterable[Term]) -> Range:
    """What a budget leaves. The terms err independently, so their errors add up as squares."""
    sizes = [term.size for term in terms]
    expected = budget - sum(size.expected for size in sizes)
    down = math.sqrt(sum((size.high - size.expected) ** 2 for size in sizes))
    up = math.sqrt(sum((size.expected - size.low) ** 2 for size in sizes))
    return Range(expected - down, expected, expected + up)
