"""Server-sent events, read incrementally (WHATWG HTML, section 9.2 "Parsing an event stream").

Line ends may be LF, CRLF or CR and may be split anywhere; the space after the colon is optional; comments, ``id``
and ``retry`` are skipped; several ``data`` lines are joined by LF. Bytes are not decoded here, so that a UTF-8
sequence split across network chunks stays whole.
"""

import re
from functools import partial
from itertools import repeat
from typing import NamedTuple

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"
MAX_EVENT_BYTES = 16 * 2**20


class Event(NamedTuple):
    """One dispatched event: its ``event`` field (None without one) and its data."""

    name: bytes | None
    payload: bytes


_plain_event = partial(tuple.__new__, Event)  # from (name, payload), without a call into Python an event


class OversizedEvent(ValueError):  # noqa: N818 - a fact about the stream
    """An event larger than the limit: the stream is not what it claims to be."""


class SSEReader:
    """Turns bytes into events. Feeding the same bytes in any split gives the same events.

    Args:
        max_event_bytes: Bound on the memory that one unfinished event may take.
    """

    __slots__ = ("_bytes", "_held", "_held_bytes", "_lines", "_max", "_name", "_skip_lf", "_started")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._held: list[bytes] = []  # pieces of an unfinished line: joined once, however many there are
        self._held_bytes = 0
        self._lines: list[bytes] = []  # data lines of the unfinished event
        self._bytes = 0  # their size
        self._name: bytes | None = None
        self._skip_lf = False  # the last chunk ended with CR: an LF that follows belongs to it
        self._started = False
        self._max = max_event_bytes

    @property
    def between_events(self) -> bool:
        """Whether all that was fed is whole events, and nothing that follows belongs to it."""
        return not (self._held or self._lines or self._skip_lf) and self._name is None and self._started

    def feed(self, chunk: bytes) -> list[Event]:
        """Events completed by this chunk.

        Raises:
            OversizedEvent: one event exceeds the limit.
        """
        if not self._started:
            if self._held or not chunk.startswith(b"data:"):
                return self._start(chunk)
            self._started = True  # what nearly every stream begins with, and no BOM
        if (
            not self._held
            and not self._lines
            and self._name is None
            and not self._skip_lf
            and chunk.startswith(b"data: ")
            and chunk.endswith(b"\n\n")
            and b"\r" not in chunk
        ):
            # The common case: whole events, one data line each.
            payloads = chunk[6:-2].split(b"\n\ndata: ")
            if chunk.count(b"\n") == 2 * len(payloads):  # no line end in any of them
                return list(map(_plain_event, zip(repeat(None), payloads)))
        return self._scan(chunk)

    def _start(self, chunk: bytes) -> list[Event]:
        held = b"".join([*self._held, chunk])
        if len(held) < len(_BOM) and _BOM.startswith(held):
            self._held = [held]
            return []
        self._started = True
        self._held = []
        return self.feed(held.removeprefix(_BOM))

    def _scan(self, chunk: bytes) -> list[Event]:
        if self._skip_lf and chunk:
            self._skip_lf = False
            chunk = chunk.removeprefix(b"\n")
        events: list[Event] = []
        position = 0
        for match in _LINE_END.finditer(chunk):
            self._line(self._joined(chunk[position : match.start()]), events)
            position = match.end()
        if position == len(chunk) and chunk.endswith(b"\r"):
            self._skip_lf = True
        if position < len(chunk):
            self._held.append(chunk[position:])
            self._held_bytes += len(chunk) - position
        if self._held_bytes + self._bytes > self._max:
            raise OversizedEvent(f"an event exceeds {self._max} bytes")
        return events

    def _joined(self, end: bytes) -> bytes:
        """A whole line: what was held of it, and its end."""
        if not self._held:
            return end
        line = b"".join([*self._held, end])
        self._held, self._held_bytes = [], 0
        return line

    def _line(self, line: bytes, events: list[Event]) -> None:
        if not line:
            if self._lines:
                events.append(Event(self._name, b"\n".join(self._lines)))
            self._lines, self._name, self._bytes = [], None, 0
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._lines.append(value)
            self._bytes += len(value)
        elif field == b"event":
            self._name = value

    def close(self) -> list[Event]:
        """What the stream left without its blank line; a careful caller accepts it only if it is whole."""
        if not self._started:
            self._started = True
        events: list[Event] = []
        if self._held:
            self._line(self._joined(b""), events)
        self._line(b"", events)
        return events
