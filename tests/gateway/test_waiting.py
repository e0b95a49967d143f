"""A stream whose request waits for an engine is kept alive; a refusal is a clean status until then, an event after."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import HELLO, Served, config_of, read_all, served, until
from tests.gateway.upstream import GOOD, Upstream, chunked, upstream

from setpoint.gateway.replica import Replica
from setpoint.protocol.answer import AnswerReader
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect

PATHS = {Dialect.CHAT: "/v1/chat/completions", Dialect.MESSAGES: "/v1/messages", Dialect.RESPONSES: "/v1/responses"}
PING = {
    Dialect.CHAT: b": ping\n\n",
    Dialect.RESPONSES: b": ping\n\n",
    Dialect.MESSAGES: b'event: ping\ndata: {"type":"ping"}\n\n',
}


@contextmanager
def busy(state: Path, **model: Any) -> Iterator[tuple[Served, Upstream, threading.Event]]:
    """A model whose one place is taken until the event is set."""
    freed = threading.Event()

    def held(sock: socket.socket, request: bytes) -> bool:
        freed.wait(20)
        sock.sendall(chunked(GOOD))
        return True

    with upstream(held) as engine:
        replicas = [{"url": engine.url, "name": "r0", "max_in_flight": 1}]
        with served(config_of(state, model={"replicas": replicas, "dialects": ["chat"], **model})) as gateway:
            with ThreadPoolExecutor(1) as pool:
                first = pool.submit(gateway.chat, stream=True)
                until(lambda: engine.requests)
                try:
                    yield gateway, engine, freed
                finally:
                    freed.set()
                    assert first.result().status == 200
            until(gateway.idle)


def asked(gateway: Served, dialect: Dialect = Dialect.CHAT) -> socket.socket:
    """A connection on which a stream was asked for."""
    prompt = {"input": "hello"} if dialect is Dialect.RESPONSES else {"messages": HELLO, "max_tokens": 4}
    body = json.dumps({"model": "fake", "stream": True} | prompt).encode()
    sock = gateway.raw()
    head = f"POST {PATHS[dialect]} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    sock.sendall(head.encode() + body)
    return sock


def plain(raw: bytes) -> bytes:
    """The body of an answer in chunks."""
    body, rest = b"", raw.partition(b"\r\n\r\n")[2]
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return body


@pytest.mark.parametrize("dialect", list(PATHS))
def test_a_stream_that_waits_for_its_turn_is_kept_alive_in_its_dialect(state: Path, dialect: Dialect) -> None:
    with busy(state, timeouts={"ping": 0.1}) as (gateway, engine, freed), asked(gateway, dialect) as sock:
        raw = b""
        while raw.count(PING[dialect]) < 2:
            raw += sock.recv(65536)
        assert len(engine.requests) == 1  # its own has not been sent yet
        freed.set()
        raw += read_all(sock)
    reader = AnswerReader(dialect)
    reader.response(200, "text/event-stream")
    reader.feed(plain(raw), 1.0)
    assert reader.end(1.0).outcome is Outcome.COMPLETE
    assert raw.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("dialect", list(PATHS))
def test_who_is_refused_after_a_ping_gets_an_error_event(state: Path, dialect: Dialect) -> None:
    model = {"timeouts": {"ping": 0.1}, "queue": {"interactive_wait": 2.0}}
    with busy(state, **model) as (gateway, _, _), asked(gateway, dialect) as sock:
        raw = read_all(sock)
        (line,) = gateway.ended()
    assert raw.startswith(b"HTTP/1.1 200")
    assert raw.endswith(b"\r\n0\r\n\r\n")
    reader = AnswerReader(dialect)
    reader.response(200, "text/event-stream")
    reader.feed(plain(raw), 1.0)
    assert reader.end(1.0).outcome is Outcome.ERROR
    assert (line.outcome, line.reason, line.status, line.sent_status) == ("rejected", "queue_timeout", 503, 200)


@pytest.mark.parametrize(("stream", "ping"), [(True, 30), (True, 0), (False, 0.1)])
def test_who_got_no_ping_is_refused_with_a_status_and_a_time(state: Path, stream: bool, ping: float) -> None:
    model = {"timeouts": {"ping": ping}, "queue": {"interactive_wait": 1.5}}
    with busy(state, **model) as (gateway, _, _):
        got = gateway.chat(stream=stream)
    assert (got.status, got.json()["error"]["code"]) == (503, "queue_timeout")
    assert int(got.fields["retry-after"]) >= 1


def test_a_stream_that_waits_for_a_model_to_load_is_kept_alive(state: Path, engine: Upstream) -> None:
    with served(config_of(state, engine.url, model={"timeouts": {"ping": 0.1}})) as gateway:
        (replica,) = gateway.plane.snapshot.routes["fake"].gate.replicas
        gateway.do(Replica.loading, replica)
        with asked(gateway) as sock:
            raw = b""
            while raw.count(PING[Dialect.CHAT]) < 2:
                raw += sock.recv(65536)
            assert not engine.requests
            gateway.do(Replica.ready, replica)
            raw += read_all(sock)
    assert b"data: [DONE]\n\n" in raw


def test_a_drain_tells_a_stream_that_waits_and_was_pinged(state: Path) -> None:
    freed = threading.Event()

    def held(sock: socket.socket, request: bytes) -> bool:
        freed.wait(20)
        return False

    with upstream(held) as engine:
        replicas = [{"url": engine.url, "name": "r0", "max_in_flight": 1}]
        with served(config_of(state, model={"replicas": replicas, "timeouts": {"ping": 0.1}})) as gateway:
            first = asked(gateway)
            until(lambda: engine.requests)
            second = asked(gateway)
            raw = second.recv(65536)
        raw += read_all(second)
        freed.set()
        first.close()
        second.close()
    assert b'"code":"draining"' in raw
    assert raw.endswith(b"\r\n0\r\n\r\n")
