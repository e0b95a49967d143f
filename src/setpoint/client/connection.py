"""One HTTP/1.1 connection, carrying one exchange at a time.

Times are read once per network read, before anything is parsed, and handed down with the bytes. Pieces of the body that
one read brought arrived at one time: they are handed down joined.
"""

import asyncio
import functools
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

    def on_garbled(self, reason: str, now_s: float) -> None:
        """What arrived is no response; the connection is given up."""
        ...


MAX_HEAD_BYTES = 64 * 2**10  # received in a row without a byte of body: heads, 1xx, trailers, chunk extensions
# In place of an ended connection's own, which refers to it: so nothing is left for the garbage collector.
_UNHEARD = httptools.HttpResponseParser(object())


class Connection(asyncio.Protocol):
    """A connection that can be used again while the server keeps it alive.

    Args:
        clock: The time that ``Sink`` calls carry.

    Attributes:
        open: Not closed from either side.
        exchanges: Requests written to it.
        idle_since_s: End of the latest response.
        lost: Resolved when the socket is closed.
    """

    __slots__ = (
        "_bodiless_bytes", "_clock", "_close_delimited", "_ended", "_fields", "_got_bytes", "_now_s", "_parser",
        "_pieces", "_sending", "_sink", "_status", "_transport", "_whole", "exchanges", "idle_since_s", "lost",
        "on_body", "open",
    )  # fmt: skip

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._sink: Sink | None = None
        self._ended: Sink | None = None  # whose response came to its end in the current read
        self._now_s = 0.0
        self._status = 0
        self._fields: list[tuple[bytes, bytes]] = []
        self._close_delimited = False
        self._got_bytes = False
        self._whole = False  # the end of the response was read
        self._bodiless_bytes = 0
        self._pieces: list[bytes] = []  # of the body, from the current read
        self.on_body = self._pieces.append  # httptools calls it once a piece: no call into Python for it
        self._parser = httptools.HttpResponseParser(self)
        self._sending = False
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
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
        """Whether bytes of a response are still awaited."""
        return self._sink is not None and not self._whole

    def send(self, request: bytes, sink: Sink) -> None:
        """Writes one request; the response goes to ``sink``."""
        assert self._sink is None
        assert self._transport is not None
        self._sink, self._got_bytes, self._sending, self._whole, self._bodiless_bytes = sink, False, True, False, 0
        self.exchanges += 1
        if self._transport.is_closing():
            self._now_s = self._clock.now()
            self._sink = None
            sink.on_lost("connection closed by the server", self._now_s)
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
        self.open = False
        if self._transport is not None:
            self._transport.abort()

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
            self.abort()
            return
        self._got_bytes = True
        self._bodiless_bytes += len(data)
        fault: str | None = None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            fault = "the server switched protocols"
        except httptools.HttpParserCallbackError as error:
            fault = _own_fault(error.__context__)
        except httptools.HttpParserError:
            fault = "the response is not HTTP/1.1"
        ended, self._ended = self._ended, None
        try:
            if self._pieces:
                self._deliver()
            if ended is not None:  # only now: whoever is told may send the next request on this connection
                if fault is not None:
                    self.abort()
                ended.on_end(self._now_s)
                return
        except Exception as error:  # noqa: BLE001 - a fault of ours: say so, and do not call it the server's
            fault = _own_fault(error)
        if fault is not None:
            self._garble(fault)
        elif self._bodiless_bytes > MAX_HEAD_BYTES:
            self._garble(f"the response head exceeds {MAX_HEAD_BYTES} bytes")

    def _deliver(self) -> None:
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        self._bodiless_bytes = 0
        if self._sink is not None:
            self._sink.on_body(data, self._now_s)

    def eof_received(self) -> bool:
        """The server will send no more."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The end of a body without a length, or a loss."""
        self.open = False
        self._parser = _UNHEARD
        self._now_s = self._clock.now()
        self.lost.set_result(None)
        sink = self._sink
        if sink is None:
            return
        self._sink = None
        if self._close_delimited and exc is None:
            sink.on_end(self._now_s)
        else:
            sink.on_lost("connection reset" if exc is not None else "connection closed by the server", self._now_s)

    def _garble(self, reason: str) -> None:
        sink = self._sink
        self.abort()
        if sink is not None:
            sink.on_garbled(reason, self._now_s)

    # httptools

    def on_message_begin(self) -> None:
        """A response begins; a second one to the same request means that the two sides are out of step."""
        if self._sink is None:
            self.abort()
        self._fields = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """A response header."""
        self._fields.append((name, value))

    def on_headers_complete(self) -> None:
        """The head of a final response; informational ones are skipped."""
        self._status = self._parser.get_status_code()
        if self._status >= 200 and self._sink is not None:
            fields, framed = _read_fields(tuple(self._fields))
            self._close_delimited = not framed and self._status not in (204, 304)
            self._sink.on_head(self._status, fields, self._now_s)

    def on_message_complete(self) -> None:
        """The end of the response."""
        if self._status < 200:
            return
        self._whole = True
        if self._pieces:
            self._deliver()
        sink = self._sink
        self._sink = None
        self._close_delimited = False
        if self._sending or not self._parser.should_keep_alive():  # answered before it had read the whole request
            self.abort()
        self.idle_since_s = self._now_s
        if sink is not None:  # a second response in the same read has none, and does not undo the first one's end
            self._ended = sink


@functools.lru_cache(maxsize=64)  # a server says nearly the same with every answer
def _read_fields(fields: tuple[tuple[bytes, bytes], ...]) -> tuple[dict[str, str], bool]:
    """Header fields by lower-case name, and whether they say where the body ends."""
    texts = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in fields]
    framed = any(
        name == "content-length" or (name == "transfer-encoding" and value.lower().endswith("chunked"))
        for name, value in texts
    )
    return dict(texts), framed


def _own_fault(error: BaseException | None) -> str:
    return f"the client failed to read the answer ({type(error).__name__})"
