"""Values of a gateway configuration: names, sizes, addresses."""

from typing import Annotated

from pydantic import BeforeValidator, Field, WithJsonSchema

from setpoint.units import parse_bytes

NAME = r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$"


def _bytes(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError('expected a size such as "64 MiB"')  # noqa: TRY004 - pydantic collects ValueError only
    return parse_bytes(value)


def _zmq_address(value: object) -> object:
    if not isinstance(value, str) or not value.startswith(("tcp://", "ipc://")) or "*" in value:
        raise ValueError("expected a ZMQ address to connect to, such as tcp://10.0.0.5:5557")
    return value


_SIZE = {"anyOf": [{"type": "integer"}, {"type": "string"}], "examples": ["64 MiB"]}
Bytes = Annotated[int, BeforeValidator(_bytes), WithJsonSchema(_SIZE)]
ZmqAddress = Annotated[str, BeforeValidator(_zmq_address)]
Name = Annotated[str, Field(pattern=NAME)]
