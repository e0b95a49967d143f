"""Events that repeat: in most streams, one event differs from the next in nothing but one piece of visible text.

What stands before and behind that piece is learned from one event that was decoded. A later event with the same before
and behind it needs no decoding: a JSON string without quote, backslash or control character ends at its closing quote,
so whatever such text stands in that place, the rest of the document means what it meant. Everything else is decoded.
"""

from operator import itemgetter

_PLACES = 4  # where the text of an event may also stand, as the name of the model say
_FIELD, _END = b"data: ", b"\n\n"
_BETWEEN = _END + _FIELD


class Template:
    """Events that are ``head``, plain text, ``tail``.

    Args:
        before: Payload up to the opening quote of the text, which it includes.
        behind: Payload from the closing quote of the text.

    Attributes:
        bytes: Size of an event without its text.
    """

    __slots__ = ("_head", "_inside", "_joint", "_tail", "bytes")

    def __init__(self, before: bytes, behind: bytes) -> None:
        self._head = _FIELD + before
        self._tail = behind + _END
        self._joint = self._tail + self._head
        self._inside = itemgetter(slice(len(before), -len(behind)))
        self.bytes = len(self._joint)

    def text(self, event: bytes) -> str | None:
        """The text of one whole event, which may be empty; None for an event that is not like this."""
        if event.startswith(self._head) and event.endswith(self._tail) and len(event) >= self.bytes:
            return plain_text(event[len(self._head) : -len(self._tail)])
        return None

    def texts(self, data: bytes) -> tuple[list[bytes], str, bytes] | None:
        """Text by text of several events, none empty; all of it, ASCII; and the bytes behind the last such event.

        None when not all events up to there are like this.
        """
        end = data.rfind(self._tail) + len(self._tail)
        events = data[len(_FIELD) : end - len(_END)].split(_BETWEEN)
        pieces: list[bytes] = list(map(self._inside, events))
        joined = b"".join(pieces)
        if not all(pieces) or not joined.isascii():
            return None
        text = plain_text(joined)
        if text is None or self._head + self._joint.join(pieces) + self._tail != data[:end]:
            return None
        return pieces, text, data[end:]


def places(payload: bytes, text: str) -> list[tuple[bytes, bytes]]:
    """Where ``text`` stands in an event as a whole JSON string: what is before it, and what behind, quotes included."""
    raw = text.encode()
    if plain_text(raw) is None:
        return []
    found: list[tuple[bytes, bytes]] = []
    at, quoted = -1, b'"%b"' % raw
    while len(found) < _PLACES and (at := payload.find(quoted, at + 1)) >= 0:
        found.append((payload[: at + 1], payload[at + 1 + len(raw) :]))
    return found


def plain_text(raw: bytes) -> str | None:
    """The text of a JSON string's inside that needs no decoding; None for any other bytes."""
    if b'"' in raw or b"\\" in raw:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
