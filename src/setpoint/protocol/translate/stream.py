"""Streams, translated as their bytes arrive."""

from collections.abc import Callable
from typing import Protocol

from setpoint.errors import TranslationError
from setpoint.protocol.sse import Event, OversizedEvent, SSEReader
from setpoint.protocol.translate.error_body import stream_error
from setpoint.protocol.translate.read_chat import ChatReader
from setpoint.protocol.translate.read_messages import MessagesReader
from setpoint.protocol.translate.write_chat import ChatWriter
from setpoint.protocol.translate.write_messages import MessagesWriter
from setpoint.protocol.translate.write_responses import ResponsesWriter
from setpoint.protocol.translate.writer import BrokenAnswer, Envelope, ReportedError, Writer
from setpoint.records.target import Dialect


class Reader(Protocol):
    """Tells a writer what an answer holds."""

    def event(self, event: Event) -> bool:
        """One event of a stream; True when it was the last."""

    def whole(self, body: bytes) -> None:
        """A whole answer."""


class StreamWriter(Writer, Protocol):
    """A writer of events.

    Attributes:
        out: Events not yet taken.
    """

    out: list[bytes]


READERS: dict[Dialect, Callable[[Writer, Envelope], Reader]] = {
    Dialect.CHAT: ChatReader,
    Dialect.MESSAGES: MessagesReader,
}
WRITERS: dict[Dialect, Callable[[Envelope], StreamWriter]] = {
    Dialect.CHAT: ChatWriter,
    Dialect.MESSAGES: MessagesWriter,
    Dialect.RESPONSES: ResponsesWriter,
}
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def ping(target: Dialect) -> bytes:
    """What keeps an idle stream of a dialect open without saying anything."""
    return _PING if target is Dialect.MESSAGES else b": ping\n\n"


class StreamTranslator:
    """Translates one stream. Feeding the same bytes in any split gives the same bytes.

    Args:
        source: The engine's dialect.
        target: The client's dialect.
        envelope: What the client's answer must say and the engine's may not.

    Attributes:
        failure: Why the stream ended in an error event, without content; None as long as it did not.

    A stream that breaks its protocol, or reports an error, ends with an error event in the client's dialect, and what
    follows is ignored. A stream that is cut stays cut: no finish reason, no terminal event. Saying so to the client
    (``stream_error``) is left to the caller, who alone knows why.

    Raises:
        TranslationError: there is no translation between the two.
    """

    __slots__ = ("_ended", "_reader", "_sse", "_target", "_writer", "failure")

    def __init__(self, source: Dialect, target: Dialect, envelope: Envelope | None = None) -> None:
        self._sse: SSEReader | None = None
        self._ended = False
        self._target = target
        self.failure: str | None = None
        if source is target:
            return
        if source not in READERS or target not in WRITERS:
            raise TranslationError("dialect", f"no translation of answers from {source} to {target}.")
        envelope = envelope or Envelope()
        self._sse = SSEReader()
        self._writer = WRITERS[target](envelope)
        self._reader = READERS[source](self._writer, envelope)

    def feed(self, data: bytes) -> bytes:
        """What the client is sent for these bytes of the engine; may be empty."""
        if self._sse is None:
            return data
        if self._ended:
            return b""
        try:
            events = self._sse.feed(data)
        except OversizedEvent as error:
            self._broken(str(error))
            events = []
        self._read(events)
        return self._flush()

    def end(self) -> bytes:
        """The engine's stream is over, properly or not. An event without its blank line counts if it is whole."""
        if self._sse is None or self._ended:
            return b""
        for event in self._sse.close():
            try:
                self._reader.event(event)
            except ReportedError as error:
                self._fail(error.kind, error.message, error.kind)
            except BrokenAnswer:
                break
        self._ended = True
        return self._flush()

    def _read(self, events: list[Event]) -> None:
        for event in events:
            if self._ended:
                return
            try:
                self._ended = self._reader.event(event)
            except ReportedError as error:
                self._fail(error.kind, error.message, error.kind)
            except BrokenAnswer as error:
                self._broken(str(error))

    def _broken(self, reason: str) -> None:
        self._fail("api_error", f"the engine's answer is broken: {reason}", reason)

    def _fail(self, kind: str, message: str, reason: str) -> None:
        self._ended = True
        self.failure = reason
        number = self._writer.number if isinstance(self._writer, ResponsesWriter) else 0
        self._writer.out.append(stream_error(self._target, kind, message, number))

    def _flush(self) -> bytes:
        out = self._writer.out
        if not out:
            return b""
        self._writer.out = []
        return out[0] if len(out) == 1 else b"".join(out)
