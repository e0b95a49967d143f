"""Any client in front of engines that speak one dialect only: the corpus, translated, is no better than it was."""

import json
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.gateway.conftest import HELLO, config_of, served
from tests.gateway.test_verdict import PASSED, ask, judged
from tests.gateway.upstream import chunked, reset, upstream

from setpoint.protocol.conformance import Case, chat, say, sse, tool, usage
from setpoint.protocol.corpus import CORPUS
from setpoint.protocol.translate import TRANSLATED
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script

SPOKEN = {Dialect.CHAT: "chat", Dialect.MESSAGES: "messages"}
CASES = [
    (case, client)
    for client, engine in sorted(TRANSLATED)
    for case in CORPUS
    if case.dialect is engine and case.status == 200 and case.content_type == "text/event-stream"
]


def through(case: Case, client: Dialect, state: Path) -> tuple[bytes, str, bool, Outcome]:
    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(case.body, status=case.status, kind=case.content_type, end=not case.broken))
        if case.broken:
            time.sleep(0.05)
            reset(sock)
        return not case.broken

    model = {"dialects": [SPOKEN[case.dialect]], "retries": {"attempts": 1}}
    with upstream(answer) as engine, served(config_of(state, engine.url, model=model)) as gateway:
        # no answer of the corpus is shorter than this limit, so that a cut is the limit's
        body: dict[str, object] = {"model": "fake", "stream": True, "max_tokens": 1}
        path = {
            Dialect.CHAT: "/v1/chat/completions", Dialect.MESSAGES: "/v1/messages", Dialect.RESPONSES: "/v1/responses",
        }[client]  # fmt: skip
        if client is Dialect.RESPONSES:
            body = {"model": "fake", "stream": True, "input": "hi"}
        else:
            body["messages"] = HELLO
        got = gateway.call("POST", path, body)
        return got.body, gateway.ended()[-1].outcome, engine.requests != [], judged(client, got)[1].outcome


@pytest.mark.parametrize(("case", "client"), CASES, ids=lambda v: v.name if isinstance(v, Case) else v.value)
def test_a_translated_stream_is_no_better_than_it_was(case: Case, client: Dialect, state: Path) -> None:
    body, recorded, asked, seen = through(case, client, state)
    assert asked
    if case.outcome in PASSED and recorded == case.outcome.value:
        same = (case.outcome, Outcome.EMPTY) if case.outcome is Outcome.REASONING_EXHAUSTED else (case.outcome,)
        assert seen in same
        return
    assert not seen.answered
    if case.name == "withheld by a filter":
        assert recorded == "refused"
        return
    assert b"message_stop" not in body
    assert b"[DONE]" not in body
    assert b"response.completed" not in body


def test_an_anthropic_agent_calls_tools_of_a_chat_engine(state: Path) -> None:
    stream = sse(
        tool(0, "c1", "weather"),
        tool(0, arguments='{"city": "Zürich"}'),
        chat(finish="tool_calls"),
        usage(9, 3),
        "[DONE]",
    )

    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(stream))
        return True

    with upstream(answer) as engine, served(config_of(state, engine.url, model={"dialects": ["chat"]})) as gateway:
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        body = {
            "model": "fake", "max_tokens": 64, "stream": True, "system": "Be brief.", "messages": HELLO,
            "tools": [{"name": "weather", "description": "", "input_schema": schema}],
        }  # fmt: skip
        got = gateway.call("POST", "/v1/messages", body)
        sent = json.loads(engine.body())
        line = gateway.ended()[-1]
    assert '{\\"city\\": \\"Zürich\\"}'.encode() in got.body
    assert b'"stop_reason":"tool_use"' in got.body
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    assert sent["tools"][0]["function"]["name"] == "weather"
    assert sent["cache_salt"]
    assert (line.prompt_tokens, line.completion_tokens, line.tool_calls) == (9, 3, 1)


def test_what_the_engine_has_no_word_for_is_refused_with_its_field(state: Path) -> None:
    with fake_engine(Script()) as engine, served(config_of(state, engine.url, model={"dialects": ["chat"]})) as gateway:
        body = {"model": "fake", "max_tokens": 4, "messages": HELLO, "container": "c1"}
        got = gateway.call("POST", "/v1/messages", body)
        assert got.status == 400
        assert got.json()["type"] == "error"
        assert "container" in got.json()["error"]["message"]


def test_whole_answers_and_errors_are_translated(state: Path) -> None:
    with fake_engine(Script(context_tokens=100)) as engine:
        with served(config_of(state, engine.url, model={"dialects": ["chat"]})) as gateway:
            got = ask(gateway, Dialect.MESSAGES, stream=False)
            assert got.status == 400  # max_tokens is missing: Anthropic demands it
            body = {"model": "fake", "max_tokens": 4, "messages": HELLO}
            whole = gateway.call("POST", "/v1/messages", body).json()
            assert (whole["type"], whole["stop_reason"], whole["model"]) == ("message", "max_tokens", "fake")
            long = gateway.call("POST", "/v1/messages", body | {"messages": [{"role": "user", "content": "w " * 500}]})
            assert long.status == 400
            assert long.json()["error"]["message"].startswith("prompt is too long")


def test_tokens_can_be_counted_before_the_call(state: Path) -> None:
    with fake_engine(Script()) as engine, served(config_of(state, engine.url, model={"dialects": ["chat"]})) as gateway:
        got = gateway.call("POST", "/v1/messages/count_tokens", {"model": "fake", "messages": HELLO})
        assert got.status == 200
        assert got.json()["input_tokens"] > 0
        assert got.fields["x-setpoint-origin"] == "estimated"


def test_a_stream_that_cannot_be_said_and_its_end_in_one_read_are_one_error(state: Path) -> None:
    """The next answer on the connection must not begin with a second error."""

    def answer(sock: socket.socket, request: bytes) -> bool:
        start = chunked(sse(say("Hel")), end=False)
        sock.sendall(start)
        time.sleep(0.1)
        rest = sse({"choices": [{"delta": {"content": 5}}]}, chat(finish="stop"), "[DONE]")
        sock.sendall(chunked(sse(say("Hel")), rest).removeprefix(start))
        return True

    with upstream(answer) as engine, served(config_of(state, engine.url, model={"dialects": ["chat"]})) as gateway:
        body = {"model": "fake", "stream": True, "max_tokens": 8, "messages": HELLO}
        with closing(gateway.connection()) as connection:
            connection.request("POST", "/v1/messages", json.dumps(body))
            got = connection.getresponse().read()
            assert (got.count(b"event: error"), got.count(b"message_stop")) == (1, 0)
            connection.request("GET", "/v1/models")
            assert connection.getresponse().status == 200
        assert gateway.ended()[0].outcome == "malformed"


def test_a_text_only_engine_passes_a_plain_stream(state: Path) -> None:
    def answer(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(sse(say("Hel"), say("lo"), chat(finish="stop"), usage(9, 2), "[DONE]")))
        return True

    with upstream(answer) as engine, served(config_of(state, engine.url, model={"dialects": ["chat"]})) as gateway:
        got = gateway.call("POST", "/v1/responses", {"model": "fake", "stream": True, "input": "hi"})
        reader, judgement = judged(Dialect.RESPONSES, got)
        assert judgement.outcome is Outcome.COMPLETE
        answered = reader.answer()
        assert answered is not None
        assert answered.text == "Hello"
