"""Whole events out of a stream's pieces, so that whatever is said to the client stands between two events."""

import re

MAX_TAIL_BYTES = 16 * 2**20
_EVENT = re.compile(rb".+?(?:\r\n\r\n|\n\n|\r\r|\Z)", re.DOTALL)
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_NO_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*\]')
_NUMBER = re.compile(rb'"sequence_number"\s*:\s*(\d{1,15})')
_TERMINAL = re.compile(
    rb'^data:\s*\[DONE\]|^event:\s*message_stop|^event:\s*error|"type"\s*:\s*"(?:message_stop|error)"|"error"\s*:'
    rb'|"type"\s*:\s*"response\.(?:completed|incomplete|failed|cancelled)"',
    re.MULTILINE,
)


class EventCutter:
    """Cuts a stream at the ends of its events; what is unfinished waits for its rest."""

    __slots__ = ("tail",)

    def __init__(self) -> None:
        self.tail = b""

    def cut(self, data: bytes) -> bytes:
        """The whole events that this piece completes; empty when it completes none."""
        if self.tail:
            data = self.tail + data
        if data.endswith(b"\n\n"):
            self.tail = b""
            return data
        end = max(data.rfind(b"\n\n") + 2, data.rfind(b"\r\n\r\n") + 4, data.rfind(b"\r\r") + 2)
        if end < 5:  # none was found: rfind gave -1
            self.tail = data
            return b""
        self.tail = data[end:]
        return data[:end]


def split(data: bytes) -> list[bytes]:
    """Single events, each with the blank line that ends it."""
    if b"\r" not in data:
        *whole, rest = data.split(b"\n\n")
        events = [event + b"\n\n" for event in whole]
        return [*events, rest] if rest else events
    return _EVENT.findall(data)


def before_terminal(data: bytes) -> tuple[bytes, bytes]:
    """Whole events, parted before the one that ends the stream; what does not show its end is kept back whole."""
    found = _TERMINAL.search(data)
    if found is None:
        return b"", data
    if b"\r" not in data:
        start = data.rfind(b"\n\n", 0, found.start())
        start = 0 if start < 0 else start + 2
        return data[:start], data[start:]
    events = split(data)
    for position, event in enumerate(events):
        if _TERMINAL.search(event):
            return b"".join(events[:position]), b"".join(events[position:])
    return b"", data


def without_usage(data: bytes) -> bytes:
    """Whole events without the usage chunk of OpenAI's dialects, which the client did not ask for."""
    if b'"usage"' not in data or not _USAGE.search(data):
        return data
    return b"".join(e for e in split(data) if not (_USAGE.search(e) and _NO_CHOICES.search(e)))


def next_number(said: bytes) -> int:
    """The number of the event that follows these, in the dialect that numbers its events; 0 where none has one."""
    return max((int(number) for number in _NUMBER.findall(said)), default=-1) + 1
