"""What HTTP allows is read, and what it does not allow is bounded and told apart."""

import asyncio

import pytest
from tests.client.server import END, STREAM, Run, Wire, ask, chunk, client_of, saying, serving, target, whole

from setpoint.client.client import Client
from setpoint.client.connection import MAX_HEAD_BYTES
from setpoint.errors import TargetError, UsageError
from setpoint.protocol import answer as answer_module
from setpoint.protocol.answer import AnswerReader
from setpoint.protocol.conformance import DONE, STOP, say, sse
from setpoint.protocol.sse import MAX_EVENT_BYTES
from setpoint.records.exchange import Outcome

HELLO = sse(say("Hel"), say("lo"), STOP, DONE)
CLOSED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"


@pytest.mark.parametrize(
    "response",
    [
        STREAM + b"".join(chunk(bytes([byte])) for byte in HELLO) + END,
        STREAM + b"5;ext=1\r\n" + HELLO[:5] + b"\r\n" + chunk(HELLO[5:]) + b"0\r\nx-trailer: 1\r\n\r\n",
        whole(HELLO, kind="text/event-stream"),
        whole(HELLO, kind="Text/Event-Stream; charset=utf-8"),
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n" + STREAM + chunk(HELLO) + END,
        CLOSED + HELLO,
        b"HTTP/1.0 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + HELLO,
        CLOSED.replace(b"\r\n\r\n", b"\r\ntransfer-encoding: identity\r\n\r\n") + HELLO,
    ],
    ids=["bytewise", "trailers", "length", "type", "informational", "close", "http10", "identity"],
)
@pytest.mark.parametrize("split", [False, True], ids=["at once", "in pieces"])
def test_each_framing_of_a_body_is_read(run: Run, response: bytes, split: bool) -> None:
    async def answer(wire: Wire) -> None:
        for piece in (response[i : i + 7] for i in range(0, len(response), 7)) if split else (response,):
            await wire.send(piece)
            await asyncio.sleep(0)
        wire.writer.close()

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url) as client:
            row = await ask(client)
            assert row.outcome is Outcome.COMPLETE, row.error
            assert row.status == 200
            assert row.visible_chars == 5
            assert len(row.chunk_s) == 2

    run(work())


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        (b"220 smtp.example ESMTP\r\n", "the response is not HTTP/1.1"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "the response is not HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\n", "the response is not HTTP/1.1"),
        (STREAM + chunk(sse(say("Hi"))) + b"zz\r\n", "the response is not HTTP/1.1"),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "switched protocols"),
    ],
    ids=["smtp", "tls", "length", "chunk", "upgrade"],
)
def test_what_is_not_http_is_malformed(run: Run, response: bytes, reason: str) -> None:
    async def work() -> None:
        async with serving(saying(response)) as server, client_of(server.url) as client:
            row = await ask(client)
            assert row.outcome is Outcome.MALFORMED
            assert reason in str(row.error)
            await server.until_closed(1)
            with pytest.raises(TargetError, match=reason):
                await client.fetch("GET", "/v1/models")

    run(work())


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"x-filler: " + b"y" * 1000 + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nx-filler: ", b"y" * 1000),
        (b"HTTP/1.1 200 ", b"y" * 1000),
        (b"", b"HTTP/1.1 103 Early Hints\r\nlink: <x>\r\n\r\n"),
        (STREAM + chunk(sse(say("Hi"))) + b"0\r\n", b"x-trailer: " + b"y" * 1000 + b"\r\n"),
        (STREAM + chunk(sse(say("Hi"))) + b"5;", b"y" * 1000),
    ],
    ids=["fields", "field", "reason", "informational", "trailers", "extension"],
)
def test_a_flood_of_headers_is_bounded(run: Run, start: bytes, piece: bytes) -> None:
    sent = 0

    async def answer(wire: Wire) -> None:
        nonlocal sent
        await wire.send(start)
        while not wire.reader.at_eof():
            await wire.send(piece * 10)
            sent += len(piece) * 10
            await asyncio.sleep(0)

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url) as client:
            row = await ask(client)
            assert row.outcome is Outcome.MALFORMED
            assert row.error == f"the response head exceeds {MAX_HEAD_BYTES} bytes"
            await server.until_closed(1)

    run(work())
    assert sent < 100 * 2**20  # what fits into the sockets' buffers, not what the limits of time allow


def test_many_tiny_chunks_are_no_flood(run: Run) -> None:
    many = b"".join(chunk(sse(say("x"))) for _ in range(5000))

    async def work() -> None:
        response = STREAM + many + chunk(sse(STOP, DONE)) + END
        async with serving(saying(response)) as server, client_of(server.url) as client:
            row = await ask(client)
            assert row.outcome is Outcome.COMPLETE
            assert len(row.chunk_s) == 5000

    run(work())


@pytest.mark.parametrize(
    ("head", "outcome", "error"),
    [
        (STREAM, Outcome.MALFORMED, f"an event exceeds {MAX_EVENT_BYTES} bytes"),
        (STREAM.replace(b"event-stream", b"html"), Outcome.MALFORMED, "the body exceeds 1000000 bytes"),
        (STREAM.replace(b"200 OK", b"500 x"), Outcome.ERROR, "HTTP 500"),
    ],
    ids=["event", "page", "error"],
)
def test_an_endless_body_ends_at_the_limit(
    run: Run, monkeypatch: pytest.MonkeyPatch, head: bytes, outcome: Outcome, error: str
) -> None:
    monkeypatch.setattr(answer_module, "MAX_BODY_BYTES", 1_000_000)
    piece = chunk(b"x" * 262_144)

    async def answer(wire: Wire) -> None:
        await wire.send(head)
        while not wire.reader.at_eof():
            await wire.send(piece)
            await asyncio.sleep(0)

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url) as client:
            row = await ask(client)
            assert (row.outcome, row.error) == (outcome, error)
            await server.until_closed(1)

    run(work())


def test_a_fault_of_the_client_is_not_called_the_servers(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AnswerReader, "feed", broken)

    async def work() -> None:
        async with serving(saying(STREAM, chunk(HELLO), END)) as server, client_of(server.url) as client:
            row = await ask(client)
            assert row.error == "the client failed to read the answer (ZeroDivisionError)"
            await server.until_closed(1)

    run(work())


def test_fetch_bounds_its_time_and_its_body(run: Run) -> None:
    async def silent(wire: Wire) -> None:
        await wire.gone()

    async def work() -> None:
        async with serving(silent) as server, client_of(server.url) as client:
            with pytest.raises(TargetError, match=r"GET http.*/metrics: no whole answer within 0\.05 s"):
                await client.fetch("GET", "/metrics", timeout_s=0.05)
            await server.until_closed(1)
        async with serving(saying(whole(b"x" * 2000))) as server, client_of(server.url) as client:
            with pytest.raises(TargetError, match="body is too large"):
                await client.fetch("GET", "/metrics", max_bytes=1000)
            response = await client.fetch("GET", "/metrics", max_bytes=2000)
            assert (response.status, len(response.body)) == (200, 2000)
            assert response.fields["content-type"] == "application/json"

    run(work())


def test_fetch_tells_a_cut_answer_from_a_whole_one(run: Run) -> None:
    async def answer(wire: Wire) -> None:
        await wire.send(whole(b"x" * 2000)[:-1])
        wire.writer.close()

    async def work() -> None:
        async with serving(answer) as server, client_of(server.url) as client:
            with pytest.raises(TargetError, match="connection closed by the server"):
                await client.fetch("GET", "/metrics")

    run(work())


@pytest.mark.parametrize("key", ["secret\n", "a\r\nx-injected: 1", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(UsageError, match="key holds a character") as caught:
        Client(target("http://127.0.0.1:1", api_key=key))
    assert key.strip() not in str(caught.value)
