"""What the gateway reads of a request is what its JSON says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.gateway.ask import read_ask
from setpoint.gateway.refusal import Refusal
from setpoint.records.target import Dialect


def body(**members: object) -> bytes:
    return json.dumps({"model": "m", "messages": [], **members}).encode()


@given(st.integers(0, 2**63 - 1), st.one_of(st.none(), st.booleans()))
def test_limits_and_flags_are_read_as_json_has_them(limit: int, stream: bool | None) -> None:
    ask = read_ask(body(max_tokens=limit, stream=stream), Dialect.CHAT)
    assert (ask.max_output, ask.stream) == (limit, bool(stream))


@pytest.mark.parametrize("text", ["1.5", '"7"', "true", "-1", "1e3x", "007", "[]"])
def test_a_limit_that_is_no_whole_number_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        read_ask(b'{"model":"m","messages":[],"max_tokens":' + text.encode() + b"}", Dialect.CHAT)


@pytest.mark.parametrize("text", ["1", '"true"', "0", "[]", "tru"])
def test_a_flag_that_is_neither_true_nor_false_is_refused(text: str) -> None:
    with pytest.raises(Refusal):
        read_ask(b'{"model":"m","messages":[],"stream":' + text.encode() + b"}", Dialect.CHAT)
