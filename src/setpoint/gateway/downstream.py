"""One client connection: strict HTTP/1.1 in, one answer after the other out, every buffer bounded.

A refusal before the end of a request ends the connection.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

import httptools

from setpoint.gateway.certificates import ClientCertificate, client_certificate
from setpoint.gateway.config import Http
from setpoint.gateway.incoming import Incoming, Request, too_large_body, too_large_header
from setpoint.gateway.known_head import KnownHead, known_head
from setpoint.gateway.refusal import REASONS, Refusal

MAX_PIPELINED = 4
LINGER_S = 2.0
SLOWEST_BYTES_PER_S = 8192
WRITE_HIGH = 256 * 2**10
WRITE_LOW = 64 * 2**10
# In place of an ended connection's own, which refers to it: so nothing is left for the garbage collector.
_UNHEARD = httptools.HttpRequestParser(object())


class Work(Protocol):
    """A request under way."""

    def cancel(self) -> object:
        """Its client has gone."""
        ...


class Host(Protocol):
    """What a connection belongs to."""

    @property
    def http(self) -> Http:
        """Bounds of what a client may send."""
        ...

    connections: set["ServerConnection"]
    buffered: int
    draining: bool

    def full(self) -> bool:
        """Whether no further connection is taken."""
        ...

    def start(self, connection: "ServerConnection", request: Request) -> "Work":
        """Serves one request: answers on the connection, and calls its ``served`` once, maybe before this returns."""
        ...

    def refused(self, code: str) -> None:
        """A request was refused by the parser."""
        ...


def _nothing() -> None:
    return None


class ServerConnection(asyncio.Protocol):
    """A client's connection.

    Args:
        host: Takes the requests.

    Attributes:
        committed: The head of the current answer was sent.
        paused: The client does not read what was sent.
        on_pause: Called when it stops reading.
        on_resume: Called when it reads again.
    """

    __slots__ = (
        "_busy", "_certificate", "_chunked", "_deadline_s", "_gone", "_head", "_host", "_incoming", "_keep_alive",
        "_known", "_lingering", "_old", "_parser", "_refusal", "_transport", "_waiting", "_work", "committed",
        "on_pause", "on_resume", "paused",
    )  # fmt: skip

    def __init__(self, host: Host) -> None:
        self._host = host
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._incoming: Incoming | None = None
        self._waiting: deque[Request] = deque()
        self._busy = False  # a request is under way
        self._work: Work | None = None
        self._refusal: Refusal | None = None
        self._lingering = False
        self._known: KnownHead | None = None
        self._gone = False
        self._head = b""
        self._chunked = False
        self._old = False
        self._keep_alive = True
        self._deadline_s = 0.0
        self._certificate: ClientCertificate | None = None
        self.committed = False
        self.paused = False
        self.on_pause: Callable[[], None] = _nothing
        self.on_resume: Callable[[], None] = _nothing

    # asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)
        if self._host.full() or self._host.draining:
            self._transport.abort()
            self._gone = True
            return
        self._transport.set_write_buffer_limits(high=WRITE_HIGH, low=WRITE_LOW)
        self._certificate = client_certificate(transport.get_extra_info("peercert"))
        self._host.connections.add(self)
        self._deadline_s = time.monotonic() + self._host.http.header_timeout

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's shape
        """The client has gone: its request ends at once."""
        self._gone = True
        self._parser = _UNHEARD
        self._host.connections.discard(self)
        self._forget_body()
        self._waiting.clear()
        if self._work is not None:
            self._work.cancel()

    def pause_writing(self) -> None:
        """The client reads slower than we write."""
        self.paused = True
        self._deadline_s = time.monotonic() + self._host.http.write_timeout
        self.on_pause()

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.paused = False
        self.on_resume()

    def eof_received(self) -> bool:
        """A client that closes its half has gone."""
        return False

    def data_received(self, data: bytes) -> None:
        """Request bytes."""
        if self._lingering or self._gone:
            return
        whole = not self._busy and self._incoming is None and self._refusal is None
        if whole and self._known is not None and self._fits(len(data)):
            request = self._known.read(data, time.monotonic())
            if request is not None:
                self._start(request)
                return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refusal = self._refusal or Refusal(400, "upgrade", "Protocol upgrades are not served.")
        except httptools.HttpParserError:
            self._refusal = self._refusal or Refusal(400, "http", "The request is not well-formed HTTP/1.1.")
        incoming = self._incoming
        if incoming is not None and self._refusal is None:
            if not incoming.complete_header:
                incoming.raw_bytes += len(data)
                if incoming.raw_bytes > self._host.http.max_header:
                    self._refusal = too_large_header()
            elif not self._busy:
                self._deadline_s += len(data) / SLOWEST_BYTES_PER_S
        if not self._busy:
            if self._waiting:
                request = self._waiting.popleft()
                if whole and incoming is None and not self._waiting and self._refusal is None:
                    self._known = known_head(data, request)
                self._start(request)
            elif self._refusal is not None:
                self._refuse()

    def _fits(self, size: int) -> bool:
        """Whether a request of this size meets every bound with something to spare."""
        http = self._host.http
        return size < http.max_body and self._host.buffered + size < http.max_buffered

    # httptools

    def on_message_begin(self) -> None:
        """A request begins."""
        self._incoming = Incoming()
        if not self._busy:
            self._deadline_s = time.monotonic() + self._host.http.header_timeout

    def on_url(self, url: bytes) -> None:
        """A piece of the target."""
        assert self._incoming is not None
        self._incoming.url += url
        if len(self._incoming.url) > self._host.http.max_header:
            self._refusal = self._refusal or too_large_header()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field; trailers are dropped."""
        assert self._incoming is not None
        refusal = self._incoming.add_field(name, value, self._host.http)
        if refusal is not None:
            self._refusal = self._refusal or refusal

    def on_headers_complete(self) -> None:
        """The header is complete: what it announces is checked before the body is read."""
        incoming = self._incoming
        assert incoming is not None
        incoming.complete_header = True
        if not self._busy:
            self._deadline_s = time.monotonic() + self._host.http.body_timeout
        upgrade = self._parser.should_upgrade() or self._parser.get_method() == b"CONNECT"
        fault = incoming.fault(self._parser.get_http_version(), upgrade=upgrade, http=self._host.http)
        if fault is not None:
            self._refusal = fault if upgrade else self._refusal or fault
        elif "expect" in incoming.fields and self._refusal is None and not self._busy and not self._waiting:
            assert self._transport is not None  # nobody is being answered: this is for the request that asks
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, data: bytes) -> None:
        """A piece of the body."""
        incoming = self._incoming
        if self._refusal is not None or incoming is None:
            return
        incoming.parts.append(data)
        incoming.body_bytes += len(data)
        self._host.buffered += len(data)
        if incoming.body_bytes > self._host.http.max_body:
            self._refusal = too_large_body(self._host.http.max_body)
        elif self._host.buffered > self._host.http.max_buffered:
            self._refusal = Refusal(503, "memory", "Too many large requests are being read.", retry_after_s=5)

    def on_message_complete(self) -> None:
        """A whole request."""
        incoming = self._incoming
        if self._refusal is not None or incoming is None:
            return
        request = Request(
            self._parser.get_method().decode("ascii"),
            incoming.url.decode("latin-1"),
            incoming.fields,
            incoming.body,
            bool(self._parser.should_keep_alive()),
            self._parser.get_http_version() == "1.0",
            time.monotonic(),
            () if self._certificate is None else self._certificate.valid_names(),
        )
        self._forget_body()
        if len(self._waiting) < MAX_PIPELINED + (not self._busy):
            self._waiting.append(request)
        else:
            self._refusal = Refusal(400, "pipeline", "Too many requests were sent without waiting for an answer.")

    # requests

    def _forget_body(self) -> None:
        if self._incoming is not None:
            self._host.buffered -= self._incoming.body_bytes
            self._incoming = None

    def _start(self, request: Request) -> None:
        self.committed, self._chunked, self._head = False, False, b""
        self._old = request.http_1_0
        self._keep_alive = request.keep_alive and not request.http_1_0
        self._deadline_s = 0.0
        self._busy, self._work = True, None
        work = self._host.start(self, request)
        if self._busy and self._work is None:  # it goes on; else it has ended, and maybe the next one has begun
            self._work = work

    def served(self, cancelled: bool) -> None:  # noqa: FBT001 - a callback's argument
        """The answer was written, or the work was cancelled."""
        self._busy, self._work = False, None
        self.on_pause = self.on_resume = _nothing
        if self._gone:
            return
        if cancelled or not self.committed or self._chunked:
            self.abort()  # without the end of its body, so that no client takes it for whole
        elif self._refusal is not None:
            self._refuse()
        elif not self._keep_alive or self._host.draining:
            self.close()
        elif self._waiting:
            self._start(self._waiting.popleft())
        else:
            self._deadline_s = time.monotonic() + self._host.http.idle_timeout

    def _refuse(self) -> None:
        """Says why, and ends: what follows in the byte stream cannot be trusted."""
        refusal = self._refusal
        assert refusal is not None
        self._host.refused(refusal.code)
        self._forget_body()
        self._keep_alive = False
        self.committed, self._head = False, b""
        self.reply(refusal.status, refusal.body(None), refusal.fields)
        self._lingering = True  # closing with unread bytes would reset the connection before the client reads why
        self._deadline_s = time.monotonic() + LINGER_S
        if self._transport is not None and self._transport.can_write_eof():
            self._transport.write_eof()

    def check(self, now_s: float) -> None:
        """Ends the connection when its client was too slow; called a few times a second."""
        if not self._deadline_s or now_s < self._deadline_s or self._gone:
            return
        if self._lingering or self.paused:
            self.abort()
        elif self._busy:
            return
        elif self._incoming is not None:
            self._refusal = Refusal(408, "slow_client", "The request did not arrive in time.")
            self._refuse()
        else:
            self.close()

    # answers

    @property
    def gone(self) -> bool:
        """Whether nobody reads any more."""
        return self._gone

    @property
    def idle(self) -> bool:
        """Whether no request is under way."""
        return not self._busy and self._incoming is None

    def head(self, status: int, fields: list[tuple[str, str]], length: int | None = None) -> None:
        """The head of an answer; without a length its body follows in pieces, each sent as it comes."""
        assert not self.committed
        self.committed = True
        said = "".join([f"{name}: {value}\r\n" for name, value in fields])
        end = ""
        if length is not None:
            end = f"content-length: {length}\r\n"
        elif self._old:
            self._keep_alive = False
        else:
            end = "transfer-encoding: chunked\r\n"
            self._chunked = True
        if not self._keep_alive or self._host.draining:
            end += "connection: close\r\n"
            self._keep_alive = False
        head = f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}\r\n{said}{end}\r\n"
        self._head = head.encode("latin-1")  # leaves with the first piece of the body

    def send(self, data: bytes) -> None:
        """A piece of the body, on its way at once."""
        if data and not self._gone and self._transport is not None:
            if self._chunked:
                data = b"%x\r\n%b\r\n" % (len(data), data)
            if self._head:
                data, self._head = self._head + data, b""
            self._transport.write(data)

    def end(self, data: bytes = b"") -> None:
        """The end of a body in pieces, with its last piece."""
        if self._chunked:
            self._chunked = False
            self._write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(data), data) if data else b"0\r\n\r\n")
        elif data:
            self._write(data)

    def reply(self, status: int, body: bytes, fields: list[tuple[str, str]], kind: str = "application/json") -> None:
        """A whole answer."""
        if not self._gone:
            self.head(status, [("content-type", kind), *fields], len(body))
            self._write(body)

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._gone:
            if self._head:
                data, self._head = self._head + data, b""
            self._transport.write(data)

    def close(self) -> None:
        """Ends after what was written."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Ends now."""
        if self._transport is not None:
            self._transport.abort()
