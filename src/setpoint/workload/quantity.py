"""Field types of a card: human units in, base units out."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from setpoint.units import parse_duration, parse_quantile, parse_rate, parse_share, parse_tokens


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


Duration = Annotated[float, _read(parse_duration), _schema("800 ms")]
Rate = Annotated[float, _read(parse_rate), _schema("2/s")]
Tokens = Annotated[int, _read(parse_tokens), _schema("16k")]
Share = Annotated[float, _read(parse_share), _schema("99%")]
Quantile = Annotated[float, _read(parse_quantile), _schema("p95")]
