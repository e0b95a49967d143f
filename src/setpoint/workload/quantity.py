"""Field types of a card: human units in, base units out."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from setpoint.units import parse_duration, parse_quantile, parse_rate, parse_share, parse_tokens

Field_ = tuple[str | int, ...]


class Refused(ValueError):  # noqa: N818 - pydantic collects ValueError; the name says what became of the fields
    """Fields that cannot be meant as they stand.

    Attributes:
        fields: (path below the part that refuses, what was found or None for what stands there, what was expected).
    """

    def __init__(self, fields: list[tuple[Field_, str | None, str]]) -> None:
        super().__init__("; ".join(f"{'.'.join(map(str, path))}: expected {expected}" for path, _, expected in fields))
        self.fields = fields


def _schema(example: str) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "number"}, {"type": "string"}], "examples": [example]})


def _read(parse: Callable[[Any], Any]) -> BeforeValidator:
    def read(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(_expected(parse))  # noqa: TRY004 - pydantic collects ValueError only
        return parse(value)

    return BeforeValidator(read)


def _expected(parse: Callable[[Any], Any]) -> str:
    try:
        parse("?")
    except ValueError as error:
        return str(error)
    raise AssertionError(parse)


def _number(value: object) -> object:
    """A truth value is no number, whatever Python thinks."""
    if isinstance(value, bool):
        raise ValueError("expected a number")  # noqa: TRY004 - pydantic collects ValueError only
    return value


def _flag(value: object) -> object:
    """A number is no truth value."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("expected true or false")  # noqa: TRY004 - pydantic collects ValueError only
    return value


Duration = Annotated[float, _read(parse_duration), _schema("800 ms")]
Rate = Annotated[float, _read(parse_rate), _schema("2/s")]
Tokens = Annotated[int, _read(parse_tokens), _schema("16k")]
Share = Annotated[float, _read(parse_share), _schema("99%")]
Quantile = Annotated[float, _read(parse_quantile), _schema("p95")]
Whole = Annotated[int, BeforeValidator(_number)]
Number = Annotated[float, BeforeValidator(_number)]
Flag = Annotated[bool, BeforeValidator(_flag)]
