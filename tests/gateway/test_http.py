"""Strict HTTP: what two parsers could read differently is refused, every buffer and every wait has a bound."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.conftest import HELLO, Served, config_of, read_all, served, until
from tests.gateway.upstream import GOOD, Upstream, chunked, upstream

from setpoint.protocol.conformance import say, sse

BODY = json.dumps({"model": "fake", "stream": True, "messages": HELLO}).encode()


@pytest.fixture
def gateway(state: Path, engine: Upstream) -> Iterator[Served]:
    bounds = {"header_timeout": 0.4, "body_timeout": 0.4, "idle_timeout": 0.6, "max_header": 4096, "max_body": 100_000}
    with served(config_of(state, engine.url, http=bounds)) as made:
        yield made


def post(*fields: str, body: bytes = BODY, version: str = "1.1") -> bytes:
    head = [f"POST /v1/chat/completions HTTP/{version}", *fields, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


LENGTH = f"content-length: {len(BODY)}"
CHUNK = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)

SMUGGLED = {
    "both lengths": post("host: x", LENGTH, "transfer-encoding: chunked", body=CHUNK),
    "both lengths, the other way round": post("host: x", "transfer-encoding: chunked", LENGTH, body=CHUNK),
    "a length twice": post("host: x", LENGTH, LENGTH),
    "two lengths": post("host: x", LENGTH, "content-length: 3"),
    "a list of lengths": post("host: x", f"{LENGTH}, {len(BODY)}"),
    "a signed length": post("host: x", f"content-length: +{len(BODY)}"),
    "a length in hexadecimal": post("host: x", f"content-length: 0x{len(BODY):x}"),
    "a length beyond 64 bits": post("host: x", "content-length: 99999999999999999999999"),
    "a bad chunk size": post("host: x", "transfer-encoding: chunked", body=b"5x\r\n" + CHUNK),
    "a negative chunk size": post("host: x", "transfer-encoding: chunked", body=b"-5\r\n" + CHUNK),
    "a chunk size beyond 64 bits": post("host: x", "transfer-encoding: chunked", body=b"fffffffffffffffff\r\n" + CHUNK),
    "a chunk longer than its size": post(
        "host: x", "transfer-encoding: chunked", body=b"1\r\n" + BODY + b"\r\n0\r\n\r\n"
    ),
    "a line feed after a chunk size": post(
        "host: x", "transfer-encoding: chunked", body=CHUNK.replace(b"\r\n", b"\n", 1)
    ),
    "another transfer coding": post("host: x", "transfer-encoding: gzip, chunked", body=CHUNK),
    "a coding after chunked": post("host: x", "transfer-encoding: chunked, identity", body=CHUNK),
    "a misspelt coding": post("host: x", "transfer-encoding: xchunked", body=CHUNK),
    "a vertical tab in a coding": post("host: x", "transfer-encoding: \x0bchunked", body=CHUNK),
    "a space before the colon": post("host: x", "content-length : 3"),
    "a folded field": post("host: x", "a: b", " c", LENGTH),
    "bare line feeds": post("host: x", LENGTH).replace(b"\r\n", b"\n"),
    "a zero byte in a value": post("host: x", "a: b\x00c", LENGTH),
    "no host": post(LENGTH),
    "two hosts": post("host: x", "host: y", LENGTH),
    "two credentials": post("host: x", "authorization: Bearer a", "authorization: Bearer b", LENGTH),
    "an upgrade": post("host: x", "connection: upgrade", "upgrade: h2c", LENGTH),
    "CONNECT": b"CONNECT x:1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "an unknown version": post("host: x", LENGTH, version="3.7"),
    "no HTTP at all": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"a" * 64 + b"\r\n\r\n",
}


@pytest.mark.parametrize("data", SMUGGLED.values(), ids=SMUGGLED)
def test_what_could_smuggle_a_request_is_refused_and_ends_the_connection(
    gateway: Served, engine: Upstream, data: bytes
) -> None:
    """Whatever follows on the connection is not read as a request."""
    said = gateway.say(data + post("host: x", LENGTH))
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 505")), said[:60]
    assert said.count(b"content-length") == 1
    assert not engine.requests
    until(gateway.idle)


def test_a_chunked_body_is_served(gateway: Served) -> None:
    with gateway.raw() as sock:
        for byte in post("host: x", "transfer-encoding: chunked", "connection: close", body=CHUNK):
            sock.sendall(bytes([byte]))
        assert b"[DONE]" in read_all(sock)


def test_requests_sent_together_are_answered_in_order(gateway: Served) -> None:
    said = gateway.say(post("host: x", LENGTH) * 2 + post("host: x", LENGTH, "connection: close"))
    assert said.count(b"HTTP/1.1 200") == 3
    assert said.count(b"[DONE]") == 3


def test_too_many_requests_sent_together_are_refused(gateway: Served) -> None:
    said = gateway.say(post("host: x", LENGTH) * 12)
    assert b"HTTP/1.1 400" in said
    until(gateway.idle)


def test_an_old_client_gets_its_answer_without_chunks(gateway: Served) -> None:
    said = gateway.say(post(LENGTH, version="1.0"))
    assert b"transfer-encoding" not in said
    assert said.endswith(GOOD[-14:])


@pytest.mark.parametrize("field", ["a: " + "b" * 5000, "\r\n".join(f"a{i}: b" for i in range(120))])
def test_a_large_header_is_refused(gateway: Served, field: str) -> None:
    assert gateway.say(post("host: x", field, LENGTH)).startswith(b"HTTP/1.1 431")


def test_an_endless_field_is_refused_before_its_end(gateway: Served) -> None:
    """Nobody waits for the line to end, or for the time of a header to pass, which would be a 408."""
    assert b" 431 " in gateway.say(b"POST /v1/models HTTP/1.1\r\nhost: x\r\na: " + b"b" * 100_000)


def test_an_endless_target_is_refused(gateway: Served) -> None:
    assert gateway.say(b"GET /" + b"a" * 9000).startswith(b"HTTP/1.1 431")


def test_a_large_body_is_refused_by_its_length_before_it_is_sent(gateway: Served) -> None:
    assert gateway.say(post("host: x", "content-length: 100001", body=b"")).startswith(b"HTTP/1.1 413")


def test_a_large_body_is_refused_where_it_crosses_the_limit(gateway: Served) -> None:
    piece = b"%x\r\n%b\r\n" % (60_000, b" " * 60_000)
    assert gateway.say(post("host: x", "transfer-encoding: chunked", body=piece * 2)).startswith(b"HTTP/1.1 413")
    until(gateway.idle)


def test_a_prompt_of_megabytes_is_normal(state: Path, engine: Upstream) -> None:
    text = "word " * 1_000_000
    with served(config_of(state, engine.url)) as gateway:
        assert b"[DONE]" in gateway.chat(text, stream=True).body
        assert json.loads(engine.body())["messages"][0]["content"] == text


def test_bodies_held_at_once_are_bounded(state: Path, engine: Upstream) -> None:
    with served(config_of(state, engine.url, http={"max_buffered": 100_000})) as gateway:
        with gateway.raw() as first:
            first.sendall(post("host: x", "content-length: 200000", body=b"a" * 90_000))
            until(lambda: gateway.plane.buffered >= 90_000)
            assert gateway.say(post("host: x", "content-length: 20000", body=b"a" * 20_000)).startswith(b"HTTP/1.1 503")
        until(gateway.idle)
        assert gateway.chat(stream=True).status == 200


def test_a_client_may_ask_before_it_sends_a_body(gateway: Served) -> None:
    with gateway.raw() as sock:
        sock.sendall(post("host: x", LENGTH, "expect: 100-continue", "connection: close", body=b""))
        assert sock.recv(100).startswith(b"HTTP/1.1 100")
        sock.sendall(BODY)
        assert b"[DONE]" in read_all(sock)


def test_a_pipelined_question_whether_to_send_a_body_does_not_enter_the_answer_before_it(gateway: Served) -> None:
    asking = post("host: x", LENGTH, "expect: 100-continue", "connection: close", body=b"")
    with gateway.raw() as sock:
        sock.sendall(b"GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n" + asking)
        said = sock.recv(100)
        assert said.startswith(b"HTTP/1.1 200")
        sock.sendall(BODY)
        assert b"[DONE]" in read_all(sock)


@pytest.mark.parametrize("sent", [b"POST /v1/chat", post("host: x", LENGTH, body=BODY[:5])], ids=["header", "body"])
def test_a_request_that_does_not_arrive_is_refused(gateway: Served, sent: bytes) -> None:
    with gateway.raw() as sock:
        sock.sendall(sent)
        assert b" 408 " in read_all(sock)
    until(gateway.idle)


def test_a_header_that_trickles_is_refused(gateway: Served) -> None:
    """Bytes that keep coming do not move the limit."""
    with gateway.raw() as sock:
        began = time.monotonic()
        sock.sendall(b"POST / HTTP/1.1\r\nx: ")
        sock.settimeout(0.05)
        said = b""
        while not said and time.monotonic() - began < 8:
            try:
                sock.sendall(b"a")
                said = sock.recv(4096)
            except TimeoutError:
                continue
            except OSError:
                break
    assert b" 408 " in said


def test_a_connection_that_never_says_anything_is_closed(state: Path, engine: Upstream) -> None:
    with served(config_of(state, engine.url, http={"header_timeout": 0.3})) as gateway, gateway.raw() as sock:
        assert read_all(sock) == b""
        until(lambda: not gateway.plane.connections)


def test_an_idle_connection_is_closed(gateway: Served) -> None:
    with gateway.raw() as sock:
        sock.sendall(post("host: x", LENGTH))
        assert b"HTTP/1.1 200" in read_all(sock)


def test_small_writes_leave_at_once_on_both_sides(gateway: Served) -> None:
    """TCP_NODELAY: no token waits for the acknowledgement of the one before."""
    with gateway.raw() as sock:
        sock.sendall(post("host: x", LENGTH))
        until(gateway.lines)
        (replica,) = gateway.plane.snapshot.routes["fake"].gate.replicas
        transports = [c._transport for c in gateway.plane.connections] + [c._transport for c in replica.pool.idle]
        assert len(transports) == 2
        for transport in transports:
            assert transport is not None
            assert transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_connections_are_bounded(state: Path, engine: Upstream) -> None:
    with served(config_of(state, engine.url, listen={"port": 0, "max_connections": 2})) as gateway:
        held = [gateway.raw(), gateway.raw()]
        until(lambda: len(gateway.plane.connections) == 2)
        with gateway.raw() as third:
            assert read_all(third) == b""
        for sock in held:
            sock.close()
        until(lambda: not gateway.plane.connections)
        assert gateway.chat(stream=True).status == 200


def test_a_client_that_does_not_read_stops_its_engine_and_is_ended(state: Path) -> None:
    """Backpressure reaches the engine: what is buffered between the two stays small."""
    sent = [0]

    def flood(sock: socket.socket, request: bytes) -> bool:
        sock.sendall(chunked(end=False))
        piece = sse(say("x" * 60_000))
        while sent[0] < 200_000_000:
            sock.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
            sent[0] += len(piece)
        return False

    def stopped() -> bool:
        before = sent[0]
        time.sleep(0.2)
        return 0 < before == sent[0]

    with upstream(flood) as engine, served(config_of(state, engine.url, http={"write_timeout": 2.0})) as gateway:
        with gateway.raw() as sock:
            sock.sendall(post("host: x", LENGTH))
            until(lambda: stopped() and gateway.plane.exchanges)  # while the client may still begin to read
            assert sent[0] < 60_000_000
            until(lambda: not gateway.plane.exchanges, 20)
        assert sent[0] < 60_000_000
        assert gateway.ended()[-1].outcome == "cancelled"
        until(gateway.idle)
        until(lambda: engine.gone == 1)
