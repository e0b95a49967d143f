"""Distributions of lengths and times, as a person writes them.

Three forms: one number; named quantiles (``{p50: 120, p95: 400, max: 600}``); or a list of values that were seen
(``{values: [12, 40, 55]}``). Quantiles are joined by straight lines in log space (from a zero, in plain space):
monotone, and exactly the named quantiles.
"""

import itertools
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic_core import CoreSchema

from setpoint.units import parse_duration, parse_quantile, parse_tokens
from setpoint.workload.quantity import Field_, Refused

Floats = npt.NDArray[np.float64]
_ENDS = {"min": 0.0, "max": 1.0}
_QUANTILE_KEYS = r"^(min|max|[pP]\d+(\.\d+)?|\d+(\.\d+)?%|0?\.\d+)$"


class Distribution(BaseModel):
    """A distribution over non-negative numbers.

    Attributes:
        points: (share, value) pairs of the quantile function, ascending in both; one pair is a constant.
        values: Observed values to draw from, instead of points.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    parse: ClassVar[Callable[[Any], float]] = float
    expected: ClassVar[str] = "a number"
    examples: ClassVar[tuple[Any, ...]] = ()
    least: ClassVar[float] = 0.0
    most: ClassVar[float] = float("inf")

    points: tuple[tuple[float, float], ...] = ()
    values: tuple[float, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _read(cls, raw: object) -> object:
        if isinstance(raw, str | int | float) and not isinstance(raw, bool):
            return {"points": ((0.5, cls.read_value(raw)),)}
        if not isinstance(raw, Mapping):
            raise ValueError(f"expected {cls.expected}, quantiles such as {{p50: 1, p95: 4}}, or {{values: [..]}}")  # noqa: TRY004
        return {"values": cls._read_values(raw["values"])} if set(raw) == {"values"} else {"points": cls._points(raw)}

    @classmethod
    def read_value(cls, raw: object) -> float:
        """One value in base units.

        Raises:
            ValueError: it is none; says what was expected.
        """
        if isinstance(raw, bool):
            raise ValueError(f"expected {cls.expected}")  # noqa: TRY004 - pydantic collects ValueError only
        value = cls.parse(raw)
        if not cls.least <= value <= cls.most:
            raise ValueError(f"expected {cls.expected} from {cls.least:,g} to {cls.most:,.0f}")
        return float(value)

    @classmethod
    def _read_values(cls, raw: object) -> tuple[float, ...]:
        if not isinstance(raw, list | tuple) or not raw:
            raise Refused([(("values",), None, "a list of at least one value")])
        wrong: list[tuple[Field_, str | None, str]] = []
        out = []
        for i, value in enumerate(raw):
            try:
                out.append(cls.read_value(value))
            except ValueError as error:
                wrong.append((("values", i), None, str(error).removeprefix("expected ")))
        if wrong:
            raise Refused(wrong)
        return tuple(out)

    @classmethod
    def _points(cls, raw: Mapping[Any, Any]) -> tuple[tuple[float, float], ...]:
        wrong: list[tuple[Field_, str | None, str]] = []
        points: list[tuple[float, float, str]] = []
        for key, value in raw.items():
            name = str(key)
            try:
                share = _ENDS[name] if name in _ENDS else parse_quantile(name)
            except ValueError:
                wrong.append(((name,), "an unknown quantile", "min, max, or a quantile such as p50 or p99.9"))
                continue
            try:
                points.append((share, cls.read_value(value), name))
            except ValueError as error:
                wrong.append(((name,), None, str(error).removeprefix("expected ")))
        points.sort(key=lambda p: p[0])
        for a, b in itertools.pairwise(points):
            if a[0] == b[0]:
                wrong.append(((b[2],), f"the quantile twice ({a[2]} and {b[2]})", "it once"))
            elif b[1] < a[1]:
                wrong.append(((b[2],), None, f"no less than {a[2]}"))
        if wrong:
            raise Refused(wrong)
        if not points:
            raise ValueError("expected at least one quantile such as p50")
        return tuple((share, value) for share, value, _ in points)

    @model_serializer
    def _write(self) -> Any:  # noqa: ANN401 - the card's own forms
        if self.values:
            return {"values": list(self.values)}
        if len(self.points) == 1 and self.points[0][0] == 0.5:
            return self.points[0][1]
        return {_quantile_name(share): value for share, value in self.points}

    @classmethod
    def __get_pydantic_json_schema__(cls, _: CoreSchema, __: GetJsonSchemaHandler) -> dict[str, Any]:
        """The three forms of the file, not the fields that they are read into."""
        value = {"type": ["number", "string"]}
        values = {"type": "array", "items": value, "minItems": 1}
        return {
            "description": f"{cls.expected[:1].upper()}{cls.expected[1:]}, named quantiles, or observed values.",
            "examples": list(cls.examples),
            "anyOf": [
                value,
                {
                    "type": "object",
                    "properties": {"values": values},
                    "required": ["values"],
                    "additionalProperties": False,
                },
                {
                    "type": "object",
                    "minProperties": 1,
                    "patternProperties": {_QUANTILE_KEYS: value},
                    "additionalProperties": False,
                },
            ],
        }

    def quantile(self, shares: Floats) -> Floats:
        """Values at shares in [0, 1): the inverse of the distribution function, vectorised.

        Below the lowest and above the highest named quantile the value stays: what is not named is not invented.
        """
        if self.values:
            ordered = np.sort(np.asarray(self.values, dtype=np.float64))
            return ordered[np.minimum((shares * len(ordered)).astype(np.int64), len(ordered) - 1)]
        at = np.array([share for share, _ in self.points])
        named = np.array([value for _, value in self.points])
        plain: Floats = np.interp(shares, at, named)
        curved = np.exp(np.interp(shares, at, np.log(np.where(named > 0, named, 1.0))))
        below = named[np.maximum(np.searchsorted(at, shares, side="right") - 1, 0)]
        return np.where(below > 0, curved, plain)

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


def _count(raw: Any) -> float:  # noqa: ANN401 - whatever the file holds
    try:
        return parse_tokens(raw)
    except ValueError:
        raise ValueError("expected a count such as 8") from None


class Lengths(Distribution):
    """Lengths in whole tokens, at least 1."""

    parse: ClassVar[Callable[[Any], float]] = parse_tokens
    expected: ClassVar[str] = "a number of tokens"
    examples: ClassVar[tuple[Any, ...]] = ({"p50": 300, "p90": "1.2k", "max": "4k"}, 512)
    least: ClassVar[float] = 1
    most: ClassVar[float] = 10_000_000

    def draw(self, shares: Floats) -> npt.NDArray[np.int64]:
        """Whole tokens at these shares."""
        return np.rint(self.quantile(shares)).astype(np.int64)


class Counts(Distribution):
    """Counts of turns, at least 1."""

    parse: ClassVar[Callable[[Any], float]] = _count
    expected: ClassVar[str] = "a count"
    examples: ClassVar[tuple[Any, ...]] = ({"p50": 2, "p90": 6, "max": 12}, 3)
    least: ClassVar[float] = 1
    most: ClassVar[float] = 100_000

    def draw(self, shares: Floats) -> npt.NDArray[np.int64]:
        """Whole counts at these shares."""
        return np.rint(self.quantile(shares)).astype(np.int64)


class ToolCounts(Counts):
    """Counts of tool turns; an agent may need none."""

    least: ClassVar[float] = 0


class Times(Distribution):
    """Durations in seconds, at most a week."""

    parse: ClassVar[Callable[[Any], float]] = parse_duration
    expected: ClassVar[str] = "a duration"
    examples: ClassVar[tuple[Any, ...]] = ({"p50": "8 s", "p90": "40 s"}, "500 ms")
    most: ClassVar[float] = 7 * 86400


def _quantile_name(share: float) -> str:
    return {0.0: "min", 1.0: "max"}.get(share, f"p{share * 100:.10g}")
