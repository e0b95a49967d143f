"""What a connection tells of the bytes of answers, however reads cut them: one answer, its whole body, its end once."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.client.server import END, STREAM, chunk, whole

from setpoint.client.connection import Connection
from setpoint.testing.virtual_clock import VirtualClock

FIRST = whole(b'{"answer":1}')
CHUNKED = STREAM + chunk(b"Hel") + chunk(b"lo") + END
SECOND = whole(b'{"answer":2}', 500)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
HINTS = b"HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n"


class Sent(asyncio.Transport):
    """A transport that takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Taken."""

    def get_write_buffer_size(self) -> int:
        """All of it."""
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """None is needed."""

    def is_closing(self) -> bool:
        """Whether it was closed."""
        return self.closed

    def abort(self) -> None:
        """Closes it."""
        self.closed = True


@dataclass
class Told:
    """A sink that writes down what it is told.

    Attributes:
        calls: In order.
        at_end: Called when the answer has ended.
    """

    calls: list[str] = field(default_factory=list)
    body: bytes = b""
    at_end: Callable[[], None] = lambda: None

    def on_sent(self, now_s: float) -> None:
        """Not looked at."""

    def on_head(self, status: int, fields: dict[str, str], now_s: float) -> None:
        """See ``Sink``."""
        self.calls.append(f"head {status}")

    def on_body(self, data: bytes, now_s: float) -> None:
        """See ``Sink``."""
        self.body += data

    def on_end(self, now_s: float) -> None:
        """See ``Sink``."""
        self.calls.append("end")
        self.at_end()

    def on_lost(self, reason: str, now_s: float) -> None:
        """See ``Sink``."""
        self.calls.append(f"lost: {reason}")

    def on_garbled(self, reason: str, now_s: float) -> None:
        """See ``Sink``."""
        self.calls.append(f"garbled: {reason}")


def after(*reads: bytes, told: Told | None = None) -> tuple[Told, Connection]:
    """What one request's sink was told when these reads had come."""
    told = told or Told()

    async def go() -> Connection:
        connection = Connection(VirtualClock())
        connection.connection_made(Sent())
        connection.send(b"GET / HTTP/1.1\r\n\r\n", told)
        for read in reads:
            connection.data_received(read)
        return connection

    return told, asyncio.run(go())


@pytest.mark.parametrize("answer", [FIRST, CHUNKED], ids=["length", "chunks"])
@pytest.mark.parametrize(
    "surplus",
    [SECOND, CHUNKED, CONTINUE + SECOND, SECOND[:20], b"<html>", SECOND + b"<html>"],
    ids=["length", "chunks", "informational", "cut", "garbage", "garbage behind"],
)
def test_what_follows_an_answer_in_the_same_read_does_not_hide_its_end(answer: bytes, surplus: bytes) -> None:
    alone, _ = after(answer)
    told, connection = after(answer + surplus)
    assert told.calls == ["head 200", "end"]
    assert told.body == alone.body
    assert not connection.usable  # the two sides are out of step
    assert not connection.busy


@pytest.mark.parametrize("answer", [FIRST, CHUNKED], ids=["length", "chunks"])
def test_an_answer_and_the_next_one_are_told_apart_wherever_reads_cut_them(answer: bytes) -> None:
    alone, _ = after(answer)
    data = answer + SECOND
    for cut in range(1, len(data)):
        told, connection = after(data[:cut], data[cut:])
        assert (told.calls, told.body) == (["head 200", "end"], alone.body), cut
        assert not connection.usable, cut


@pytest.mark.parametrize("before", [CONTINUE, HINTS, CONTINUE + HINTS + HINTS], ids=["continue", "hints", "three"])
@pytest.mark.parametrize("answer", [FIRST, CHUNKED], ids=["length", "chunks"])
def test_informational_answers_before_it_are_passed_over_wherever_reads_cut_them(before: bytes, answer: bytes) -> None:
    data = before + answer
    for cut in range(1, len(data)):
        told, connection = after(data[:cut], data[cut:])
        assert told.calls == ["head 200", "end"], cut
        assert connection.usable, cut


def test_informational_answers_alone_end_nothing() -> None:
    told, connection = after(CONTINUE + HINTS)
    assert told.calls == []
    assert connection.busy


@pytest.mark.parametrize("late", [SECOND, b"x"], ids=["answer", "garbage"])
def test_bytes_after_the_end_are_told_to_nobody(late: bytes) -> None:
    told, connection = after(FIRST, late)
    assert told.calls == ["head 200", "end"]
    assert not connection.usable


def test_an_answer_that_closes_the_connection_ends_once_whatever_follows() -> None:
    closing = whole(b"{}", extra="connection: close\r\n")
    for reads in ([closing], [closing + SECOND], [closing, SECOND]):
        told, connection = after(*reads)
        assert told.calls == ["head 200", "end"]
        assert not connection.usable


def test_the_next_request_may_be_sent_by_whoever_is_told_of_the_end() -> None:
    first, second = Told(), Told()

    async def go() -> Connection:
        connection = Connection(VirtualClock())
        connection.connection_made(Sent())
        first.at_end = lambda: connection.send(b"GET / HTTP/1.1\r\n\r\n", second)
        connection.send(b"GET / HTTP/1.1\r\n\r\n", first)
        connection.data_received(FIRST)
        assert second.calls == []
        connection.data_received(SECOND)
        return connection

    connection = asyncio.run(go())
    assert (first.calls, second.calls) == (["head 200", "end"], ["head 500", "end"])
    assert (first.body, second.body) == (b'{"answer":1}', b'{"answer":2}')
    assert connection.usable


def test_a_body_until_the_close_ends_with_it_and_a_reset_loses_it() -> None:
    head = b"HTTP/1.1 200 x\r\n\r\n"
    for error, end in ((None, "end"), (ConnectionResetError(), "lost: connection reset")):
        told = Told()

        async def go(told: Told = told, error: Exception | None = error) -> None:
            connection = Connection(VirtualClock())
            connection.connection_made(Sent())
            connection.send(b"GET / HTTP/1.1\r\n\r\n", told)
            connection.data_received(head + b"to the")
            connection.data_received(b" end")
            connection.connection_lost(error)

        asyncio.run(go())
        assert (told.calls, told.body) == (["head 200", end], b"to the end")
