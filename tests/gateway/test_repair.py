"""A second attempt at an answer that is one only in form, where the configuration asks for it and nothing was sent."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import Served, config_of, served
from tests.gateway.upstream import chunked, upstream

from setpoint.protocol.conformance import chat, sse


def document(content: str | None, reasoning: str | None = None, finish: str = "stop") -> bytes:
    message = {"role": "assistant", "content": content} | ({"reasoning_content": reasoning} if reasoning else {})
    return json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "fake",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
        }
    ).encode()


GOOD = chunked(document("Hi"), kind="application/json")
EMPTY = chunked(document(""), kind="application/json")
EXHAUSTED = chunked(document(None, "thinking", "length"), kind="application/json")
TRUNCATED = GOOD[: GOOD.index(b'"usage"')]
FAILED = chunked(b"{}", status=500, kind="application/json")


class Told:
    """Answers one after the other, over both engines, and the last for ever."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self._lock = threading.Lock()

    def __call__(self, sock: socket.socket, request: bytes) -> bool:
        with self._lock:
            said = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        sock.sendall(said)
        return not said.startswith(TRUNCATED[:20]) or said == GOOD


def ask(state: Path, answers: tuple[bytes, ...], repair: list[str], **members: Any) -> tuple[int, bytes, Any, int]:
    """Status and body of one request, its journal line, and how many the engines got."""
    told = Told(*answers)
    with upstream(told) as one, upstream(told) as two:
        config = config_of(state, one.url, two.url, model={"retries": {"attempts": 2, "repair": repair}})
        with served(config) as gateway:
            got = gateway.chat(**members)
            return got.status, got.body, ended(gateway), len(one.requests) + len(two.requests)


def ended(gateway: Served) -> Any:
    return gateway.ended()[-1]


BOTH = ["empty", "reasoning_exhausted"]


@pytest.mark.parametrize(
    ("first", "outcome"), [(EMPTY, "empty"), (EXHAUSTED, "reasoning_exhausted")], ids=["empty", "exhausted"]
)
def test_an_answer_that_is_none_is_asked_for_again_only_where_it_is_wanted(
    state: Path, first: bytes, outcome: str
) -> None:
    status, body, line, asked = ask(state, (first, GOOD), BOTH)
    assert (status, json.loads(body)["choices"][0]["message"]["content"], asked) == (200, "Hi", 2)
    assert (line.outcome, line.attempts) == ("complete", 2)
    status, _, line, asked = ask(state.with_name("other"), (first, GOOD), [])
    assert status == (502 if outcome == "empty" else 200)
    assert (line.outcome, asked) == (outcome, 1)


def test_a_truncated_document_is_always_asked_for_again(state: Path) -> None:
    def answer(sock: socket.socket, request: bytes) -> bool:
        told.append(request)
        sock.sendall(TRUNCATED if len(told) == 1 else GOOD)
        return len(told) > 1

    told: list[bytes] = []
    with upstream(answer) as one, upstream(answer) as two, served(config_of(state, one.url, two.url)) as gateway:
        assert gateway.chat().json()["choices"][0]["message"]["content"] == "Hi"
        assert ended(gateway).attempts == 2


@pytest.mark.parametrize("second", [EXHAUSTED, FAILED, EMPTY], ids=["no better", "worse", "empty"])
def test_where_no_better_answer_comes_the_first_one_is_passed_on(state: Path, second: bytes) -> None:
    status, body, line, asked = ask(state, (EXHAUSTED, second), BOTH)
    assert (status, asked) == (200, 2)
    assert json.loads(body)["choices"][0]["finish_reason"] == "length"
    assert line.outcome == "reasoning_exhausted"


def test_a_model_with_one_replica_passes_on_what_it_has(state: Path) -> None:
    with upstream(Told(EXHAUSTED)) as engine:
        config = config_of(state, engine.url, model={"retries": {"attempts": 3, "repair": BOTH}})
        with served(config) as gateway:
            assert gateway.chat().status == 200
            assert len(engine.requests) == 1


def test_nothing_is_mended_once_an_event_was_passed_on(state: Path) -> None:
    stream = chunked(sse(chat({"role": "assistant"}), chat(finish="stop"), "[DONE]"))
    status, body, line, asked = ask(state, (stream, GOOD), BOTH, stream=True)
    assert (status, asked, line.outcome) == (200, 1, "empty")
    assert b'"code":"empty_answer"' in body
    assert b"[DONE]" not in body


def test_repairs_have_the_budget_of_retries(state: Path) -> None:
    told = Told(EXHAUSTED)
    with upstream(told) as one, upstream(told) as two:
        retries = {"attempts": 2, "budget": "10%", "repair": BOTH}
        with served(config_of(state, one.url, two.url, model={"retries": retries})) as gateway:
            assert {gateway.chat().status for _ in range(40)} == {200}
            assert 40 < len(one.requests) + len(two.requests) <= 40 + 10 + 4
