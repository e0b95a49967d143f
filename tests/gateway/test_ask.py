"""What the gateway reads of a request is what its JSON says."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.gateway.ask import Ask, read_ask
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


def sent(ask: Ask) -> dict[str, object]:
    made: dict[str, object] = json.loads(ask.body(ask.dialect, model="m", salt=None, max_output=None))
    return made


def test_no_engine_is_told_a_longer_limit_than_the_one_that_is_reserved() -> None:
    """Engines differ in which of two limits they obey, and llama.cpp obeys a third one above both."""
    ask = read_ask(body(max_tokens=3, max_completion_tokens=60_000, n_predict=60_000), Dialect.CHAT)
    assert ask.max_output == 3
    told = sent(ask)
    assert (told["max_tokens"], told["max_completion_tokens"]) == (3, 3)
    assert "n_predict" not in told


@pytest.mark.parametrize(
    ("members", "tokens"),
    [
        ({"prompt": "a"}, 10),
        ({"prompt": ["a", "b", "c"]}, 30),
        ({"prompt": [1, 2, 3]}, 10),
        ({"prompt": [[1], [2]], "n": 2}, 40),
        ({"prompt": [], "n": 2}, 20),
        ({"prompt": "a", "best_of": 5}, 50),
    ],
)
def test_every_answer_that_is_asked_for_is_reserved(members: dict[str, object], tokens: int) -> None:
    text = json.dumps({"model": "m", "max_tokens": 10, **members}).encode()
    assert read_ask(text, Dialect.COMPLETIONS).max_output == tokens


@pytest.mark.parametrize("name", ["Model", "CACHE_SALT", "Max_Tokens", "me\u017f\u017fages", "\u212av_transfer_params"])
def test_a_name_that_an_engine_could_take_for_another_is_refused(name: str) -> None:
    with pytest.raises(Refusal, match="must be written"):
        read_ask(body(**{name: "x"}), Dialect.CHAT)
    assert sent(read_ask(body(Other="x"), Dialect.CHAT))["Other"] == "x"
