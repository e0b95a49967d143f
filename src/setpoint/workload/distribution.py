"""Distributions of lengths and times, as a person writes them.

Three forms: one number; named quantiles (``{p50: 120, p95: 400, max: 600}``); or a list of values that were seen
(``{values: [12, 40, 55]}``). Quantiles are joined by straight lines in log space: positive, monotone, and exactly the
named quantiles.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, model_serializer, model_validator

from setpoint.units import parse_duration, parse_quantile, parse_tokens

Floats = npt.NDArray[np.float64]
_FLOOR = 1e-9  # logarithm of zero: a zero length or time is kept as "next to nothing" and rounded back


class Distribution(BaseModel):
    """A distribution over non-negative numbers.

    Attributes:
        points: (share, value) pairs of the quantile function, ascending in both; one pair is a constant.
        values: Observed values to draw from, instead of points.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_extra={"examples": [{"p50": 120, "p95": 400}]})
    parse: ClassVar[Callable[[Any], float]] = float
    expected: ClassVar[str] = "a number"

    points: tuple[tuple[float, float], ...] = ()
    values: tuple[float, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read(cls, raw: object) -> object:
        if isinstance(raw, bool) or raw is None:
            raise ValueError(f"expected {cls.expected}, quantiles such as {{p50: 1, p95: 4}}, or {{values: [..]}}")
        if isinstance(raw, str | int | float):
            return {"points": ((0.5, cls.parse(raw)),)}
        if not isinstance(raw, Mapping):
            raise ValueError(f"expected {cls.expected}, quantiles such as {{p50: 1, p95: 4}}, or {{values: [..]}}")  # noqa: TRY004
        if set(raw) == {"values"}:
            return {"values": cls._read_values(raw["values"])}
        if "points" in raw:
            return raw
        return {"points": cls._read_quantiles(raw)}

    @classmethod
    def _read_values(cls, raw: object) -> tuple[float, ...]:
        if not isinstance(raw, list | tuple) or not raw:
            raise ValueError("expected a list of at least one value")
        return tuple(cls.parse(value) for value in raw)

    @classmethod
    def _read_quantiles(cls, raw: Mapping[Any, Any]) -> tuple[tuple[float, float], ...]:
        points = []
        for name, value in raw.items():
            share = {"min": 0.0, "max": 1.0}.get(str(name))
            points.append((parse_quantile(name) if share is None else share, cls.parse(value)))
        points.sort()
        if not points:
            raise ValueError("expected at least one quantile such as p50")
        if any(b[1] < a[1] for a, b in itertools.pairwise(points)):
            raise ValueError("expected values that do not fall from one quantile to the next")
        if len({share for share, _ in points}) < len(points):
            raise ValueError("expected each quantile once")
        return tuple(points)

    @model_serializer
    def _write(self) -> Any:  # noqa: ANN401 - the card's own forms
        if self.values:
            return {"values": list(self.values)}
        if len(self.points) == 1 and self.points[0][0] == 0.5:
            return self.points[0][1]
        return {_quantile_name(share): value for share, value in self.points}

    def quantile(self, shares: Floats) -> Floats:
        """Values at shares in [0, 1): the inverse of the distribution function, vectorised.

        Below the lowest and above the highest named quantile the value stays: what is not named is not invented.
        """
        if self.values:
            ordered = np.sort(np.asarray(self.values, dtype=np.float64))
            return ordered[np.minimum((shares * len(ordered)).astype(np.int64), len(ordered) - 1)]
        at = np.array([share for share, _ in self.points])
        logs = np.log(np.maximum([value for _, value in self.points], _FLOOR))
        out: Floats = np.exp(np.interp(shares, at, logs))
        return np.where(out <= _FLOOR * 1.001, 0.0, out)

    @property
    def mean(self) -> float:
        """The mean, from a fine grid over the quantile function."""
        return float(self.quantile((np.arange(2000) + 0.5) / 2000).mean())

    @property
    def top(self) -> float:
        """The largest value that can be drawn."""
        return max(self.values) if self.values else self.points[-1][1]

    @classmethod
    def of(cls, value: float) -> Self:
        """A constant."""
        return cls.model_validate(value)


class Lengths(Distribution):
    """Lengths in tokens, at least 1 when drawn."""

    parse: ClassVar[Callable[[Any], float]] = parse_tokens
    expected: ClassVar[str] = "a number of tokens"

    def draw(self, shares: Floats) -> npt.NDArray[np.int64]:
        """Whole tokens at these shares."""
        return np.maximum(np.rint(self.quantile(shares)), 1).astype(np.int64)


class Counts(Distribution):
    """Counts of turns, at least 1 when drawn."""

    parse: ClassVar[Callable[[Any], float]] = parse_tokens
    expected: ClassVar[str] = "a count"

    def draw(self, shares: Floats) -> npt.NDArray[np.int64]:
        """Whole counts at these shares."""
        return np.maximum(np.rint(self.quantile(shares)), 1).astype(np.int64)


class Times(Distribution):
    """Durations in seconds."""

    parse: ClassVar[Callable[[Any], float]] = parse_duration
    expected: ClassVar[str] = "a duration"


def _quantile_name(share: float) -> str:
    return {0.0: "min", 1.0: "max"}.get(share, f"p{share * 100:.10g}")
