"""The conformance corpus through the gateway: what was good arrives as it was, what was not never looks good."""

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import HELLO, Answer, Client, config_of, served
from tests.gateway.upstream import chunked, reset, upstream

from setpoint.protocol.answer import AnswerReader
from setpoint.protocol.conformance import Case, chat, say, sse, usage
from setpoint.protocol.corpus import CORPUS
from setpoint.protocol.judgement import Judgement
from setpoint.protocol.requests import PATHS
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect

PASSED = (Outcome.COMPLETE, Outcome.LENGTH, Outcome.REASONING_EXHAUSTED)
STREAMS = [c for c in CORPUS if c.body.lstrip()[:1] not in (b"{", b"<", b"n", b"") and c.status == 200]
OTHERS = [c for c in CORPUS if c not in STREAMS]


def ask(client: Client, dialect: Dialect, *, stream: bool) -> Answer:
    prompt = {
        Dialect.COMPLETIONS: {"prompt": "hi"},
        Dialect.EMBEDDINGS: {"input": "hi"},
        Dialect.RESPONSES: {"input": "hi"},
    }
    body = {"model": "fake", "stream": stream, "stream_options": {"include_usage": True}}
    return client.call("POST", PATHS[dialect], body | prompt.get(dialect, {"messages": HELLO}))


def judged(dialect: Dialect, answer: Answer) -> tuple[AnswerReader, Judgement]:
    reader = AnswerReader(dialect, keep_text=True)
    reader.response(answer.status, answer.fields.get("content-type", ""))
    reader.feed(answer.body, 0.0)
    return reader, reader.end(0.0)


@pytest.fixture(params=["whole", "pieces"])
def cut(request: pytest.FixtureRequest) -> int:
    return 1 << 20 if request.param == "whole" else 7


def through(case: Case, state: Path, size: int, *, stream: bool) -> tuple[Answer, str]:
    """The client's answer, and the outcome that was recorded."""

    def answer(sock: socket.socket, request: bytes) -> bool:
        pieces = [case.body[i : i + size] for i in range(0, len(case.body), size)]
        sock.sendall(chunked(*pieces, status=case.status, kind=case.content_type, end=not case.broken))
        if case.broken:
            time.sleep(0.05)  # what was sent must not be overtaken by the reset
            reset(sock)
        return not case.broken

    with (
        upstream(answer) as engine,
        served(config_of(state, engine.url, model={"retries": {"attempts": 1}})) as gateway,
    ):
        got = ask(gateway, case.dialect, stream=stream)
        recorded = gateway.ended()[-1].outcome
    return got, recorded


@pytest.mark.parametrize("case", STREAMS, ids=lambda c: c.name)
def test_a_stream_arrives_as_good_as_it_was_and_no_better(case: Case, state: Path, cut: int) -> None:
    answer, recorded = through(case, state, cut, stream=True)
    reader, judgement = judged(case.dialect, answer)
    assert recorded == case.outcome.value
    if case.outcome not in PASSED and case.name != "withheld by a filter":
        assert judgement.outcome in (Outcome.ERROR, Outcome.REFUSED, Outcome.REJECTED), judgement.error
        assert b"[DONE]" not in answer.body
        assert b"message_stop" not in answer.body
        assert b"secret" not in answer.body
        return
    assert judgement.outcome is case.outcome, judgement.error
    original, wanted = case.read()
    assert judgement.observed.visible_chars == wanted.observed.visible_chars
    assert [c.text for c in judgement.observed.calls] == [c.text for c in wanted.observed.calls]
    assert reader.answer() == original.answer()


@pytest.mark.parametrize("case", OTHERS, ids=lambda c: c.name)
def test_a_document_arrives_as_good_as_it_was_and_no_better(case: Case, state: Path) -> None:
    answer, recorded = through(case, state, 1 << 20, stream=False)
    judgement = judged(case.dialect, answer)[1]
    assert recorded == case.outcome.value
    if case.outcome in PASSED:
        assert answer.status == 200
        assert answer.body == case.body
    else:
        assert answer.status >= 400
        assert not judgement.outcome.answered


def test_each_event_is_passed_on_before_the_next_one_exists(state: Path) -> None:
    """The engine waits for the client to have read an event before it sends the next."""
    got: list[bytes] = []

    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(sse(say("one")), end=False))
        while not any(b"one" in piece for piece in got):
            time.sleep(0.005)
        sock.sendall(b"%x\r\n%b\r\n0\r\n\r\n" % (len(rest := sse(say("two"), chat(finish="stop"), "[DONE]")), rest))
        return True

    with upstream(answer) as engine, served(config_of(state, engine.url)) as gateway, gateway.raw() as sock:
        body = json.dumps({"model": "fake", "stream": True, "messages": HELLO}).encode()
        sock.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        while not got or b"[DONE]" not in b"".join(got):
            piece = sock.recv(65536)
            assert piece
            got.append(piece)
    assert not any(b"one" in piece and b"two" in piece for piece in got)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_usage_chunk_reaches_only_a_client_that_asked_for_it(state: Path, wanted: bool) -> None:
    stream = sse(say("Hi"), chat(finish="stop"), usage(9, 2, prompt_tokens_details={"cached_tokens": 4}), "[DONE]")

    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(stream))
        return True

    with upstream(answer) as engine, served(config_of(state, engine.url)) as gateway:
        options: dict[str, Any] = {"stream_options": {"include_usage": True}} if wanted else {}
        got = gateway.chat(stream=True, **options)
        line = gateway.ended()[-1]
        assert json.loads(engine.body())["stream_options"] == {"include_usage": True}
    assert (b"prompt_tokens" in got.body) is wanted
    assert (line.prompt_tokens, line.completion_tokens, line.cached_tokens, line.estimated) == (9, 2, 4, False)


def numbered(*kinds: str) -> bytes:
    """Events of the Responses dialect."""
    return sse(*({"type": kind, "sequence_number": i, "delta": "x"} for i, kind in enumerate(kinds)))


@pytest.mark.parametrize("dialects", [["responses"], ["chat"]])
def test_the_error_event_of_a_numbered_stream_has_the_next_number(state: Path, dialects: list[str]) -> None:
    """Also where the engine's last event, which failed the verdict, is not passed on."""
    piece = numbered("response.created", "response.output_text.delta", "response.output_text.delta")
    sent = piece if dialects == ["responses"] else sse(say("Hi"), say(" you"))

    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(sent))  # a clean end of the body, and no terminal event
        return False

    with upstream(answer) as engine, served(config_of(state, engine.url, model={"dialects": dialects})) as gateway:
        got = gateway.call("POST", "/v1/responses", {"model": "fake", "input": "hi", "stream": True})
    *events, last = [json.loads(e.partition(b"data: ")[2]) for e in got.body.strip().split(b"\n\n")]
    assert last["type"] == "error"
    assert [e["sequence_number"] for e in (*events, last)] == list(range(len(events) + 1))
    assert len(events) >= 3


def test_an_empty_answer_is_passed_on_where_the_configuration_says_so(state: Path) -> None:
    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(sse(chat(finish="stop"), "[DONE]")))
        return True

    with upstream(answer) as engine, served(config_of(state, engine.url, empty_answers="pass")) as gateway:
        assert b"[DONE]" in gateway.chat(stream=True).body
        assert gateway.ended()[-1].outcome == "empty"


def test_a_stream_nobody_asked_for_is_no_answer(state: Path) -> None:
    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(sse(say("Hi"), chat(finish="stop"), "[DONE]")))
        return True

    with upstream(answer) as engine, served(config_of(state, engine.url)) as gateway:
        assert gateway.chat(stream=False).status == 502


@pytest.mark.parametrize(
    ("sent", "status"),
    [(b"220 smtp.example ESMTP\r\n", 502), (chunked(sse(say("one")), end=False) + b"zz\r\n", 200)],
    ids=["no head", "a chunk without a size"],
)
def test_what_is_not_http_is_malformed(state: Path, sent: bytes, status: int) -> None:
    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(sent)
        return True

    with (
        upstream(answer) as engine,
        served(config_of(state, engine.url, model={"retries": {"attempts": 1}})) as gateway,
    ):
        got = gateway.chat(stream=True)
        line = gateway.ended()[-1]
    assert got.status == status
    assert b'"error"' in got.body
    assert b"[DONE]" not in got.body
    assert (line.outcome, line.reason) == ("malformed", "the response is not HTTP/1.1")


@pytest.mark.parametrize(
    ("limit", "counted", "finish", "outcome"),
    [
        ({"max_tokens": 64}, 2, "length", "truncated"),  # the context of its slot ended first
        ({"max_tokens": 3}, 2, "length", "length"),  # servers differ by one in what they count
        ({"max_tokens": 2, "n": 8}, 2, "length", "length"),
        ({"max_tokens": 64}, 2, "stop", "complete"),
        ({"max_tokens": 64}, None, "length", "length"),
        ({}, 2, "length", "length"),
    ],
    ids=["cut", "one less", "each choice", "its own end", "not counted", "no limit"],
)
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "document"])
def test_an_answer_cut_before_its_limit_is_recorded_as_truncated_and_passed_on_as_it_is(
    state: Path, limit: dict[str, int], counted: int | None, finish: str, outcome: str, *, stream: bool
) -> None:
    tokens = {"prompt_tokens": 9, "completion_tokens": counted, "total_tokens": 9}
    ends = [] if counted is None else [usage(9, counted)]
    body = sse(say("Hello"), chat(finish=finish), *ends, "[DONE]")
    if not stream:
        choice = {"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": finish}
        body = json.dumps({"choices": [choice]} | ({} if counted is None else {"usage": tokens})).encode()
    kind = "text/event-stream" if stream else "application/json"

    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(body, kind=kind))
        return True

    with upstream(answer) as engine, served(config_of(state, engine.url)) as gateway:
        asked = {"model": "fake", "messages": HELLO, "stream": stream, "stream_options": {"include_usage": True}}
        got = gateway.call("POST", "/v1/chat/completions", asked | limit)
        line = gateway.ended()[-1]
    assert (got.status, got.body) == (200, body)
    assert (line.outcome, line.status, line.attempts) == (outcome, 200, 1)
