"""One HTTP/1.1 connection, carrying one exchange at a time.

Times are read once per network read, before anything is parsed, and handed down with the bytes.
"""

import asyncio
from typing import Protocol, cast

import httptools

from setpoint.clock import Clock


class Sink(Protocol):
    """Whatever takes a response: told of each stage with the time at which its bytes arrived."""

    def on_sent(self, now_s: float) -> None:
        """The last request byte was handed to the kernel."""
        ...

    def on_head(self, status: int, fields: dict[str, str], now_s: float) -> None:
        """Response headers are complete; names are lower case."""
        ...

    def on_body(self, data: bytes, now_s: float) -> None:
        """A piece of the body."""
        ...

    def on_end(self, now_s: float) -> None:
        """The body ended as HTTP says it should."""
        ...

    def on_lost(self, reason: str, now_s: float) -> None:
        """The connection is gone before the end of the body."""
        ...


class Connection(asyncio.Protocol):
    """A connection that can be used again while the server keeps it alive.

    Args:
        clock: The time that ``Sink`` calls carry.
    """

    __slots__ = (
        "_clock", "_close_delimited", "_fields", "_framed", "_got_bytes", "_now_s", "_parser", "_sending", "_sink",
        "_status", "_transport", "exchanges", "idle_since_s", "open",
    )  # fmt: skip

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._sink: Sink | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._now_s = 0.0
        self._status = 0
        self._fields: dict[str, str] = {}
        self._framed = False  # the headers say where the body ends
        self._close_delimited = False
        self._got_bytes = False
        self._sending = False
        self.open = False
        self.exchanges = 0
        self.idle_since_s = 0.0

    @property
    def usable(self) -> bool:
        """Whether another request may be written to it."""
        return self.open and self._transport is not None and not self._transport.is_closing()

    @property
    def got_bytes(self) -> bool:
        """Whether any byte of the current response has arrived."""
        return self._got_bytes

    @property
    def busy(self) -> bool:
        """Whether a response is still awaited."""
        return self._sink is not None

    def send(self, request: bytes, sink: Sink) -> None:
        """Writes one request; the response goes to ``sink``."""
        assert self._sink is None
        assert self._transport is not None
        self._sink, self._got_bytes, self._sending = sink, False, True
        self.exchanges += 1
        if self._transport.is_closing():
            self._now_s = self._clock.now()
            self._lose("connection closed by the server")
            return
        self._transport.write(request)
        if self._sending and self._transport.get_write_buffer_size() == 0:
            self.resume_writing()

    def pause_reading(self) -> None:
        """Takes no more bytes of the response for now: whoever reads it is slower."""
        if self._transport is not None and self.open:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Takes bytes again."""
        if self._transport is not None and self.open:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Closes at once; the sink hears no more."""
        self._sink = None
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Closes an idle connection."""
        self.open = False
        if self._transport is not None:
            self._transport.close()

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Any unsent byte counts as unsent: the write buffer's limit is zero."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=0)
        self.open = True

    def pause_writing(self) -> None:
        """The kernel did not take all; ``resume_writing`` comes when it has."""

    def resume_writing(self) -> None:
        """The last byte was taken by the kernel."""
        if self._sending:
            self._sending = False
            if self._sink is not None:
                self._sink.on_sent(self._clock.now())

    def data_received(self, data: bytes) -> None:
        """Stamps and parses."""
        self._now_s = self._clock.now()
        if self._sink is None:  # bytes that nobody asked for: this connection is out of step
            self.close()
            return
        if self._sending:
            self.resume_writing()
        self._got_bytes = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._lose("the server switched protocols")
        except httptools.HttpParserError:
            self._lose("the response is not HTTP/1.1")

    def eof_received(self) -> bool:
        """The server will send no more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of a body without a length, or a loss."""
        self.open = False
        self._now_s = self._clock.now()
        sink = self._sink
        if sink is None:
            return
        self._sink = None
        if self._close_delimited and exc is None:
            sink.on_end(self._now_s)
        else:
            sink.on_lost("connection reset" if exc is not None else "connection closed by the server", self._now_s)

    def _lose(self, reason: str) -> None:
        sink = self._sink
        self._sink = None
        self.open = False
        if self._transport is not None:
            self._transport.abort()
        if sink is not None:
            sink.on_lost(reason, self._now_s)

    # httptools

    def on_message_begin(self) -> None:
        """A response begins."""
        self._fields = {}
        self._framed = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """A response header."""
        key = name.decode("latin-1").lower()
        self._fields[key] = value.decode("latin-1")
        if key in ("content-length", "transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        """The head of a final response; informational ones are skipped."""
        self._status = self._parser.get_status_code()
        if self._status >= 200 and self._sink is not None:
            self._close_delimited = not self._framed and self._status not in (204, 304)
            self._sink.on_head(self._status, self._fields, self._now_s)

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        if self._sink is not None:
            self._sink.on_body(data, self._now_s)

    def on_message_complete(self) -> None:
        """The end of the response."""
        if self._status < 200:
            return
        sink = self._sink
        self._sink = None
        self._close_delimited = False
        if not self._parser.should_keep_alive():
            self.close()
        self.idle_since_s = self._now_s
        if sink is not None:
            sink.on_end(self._now_s)
