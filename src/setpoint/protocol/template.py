"""Events that repeat: in most streams, one event differs from the next in nothing but one piece of visible text.

What stands before and behind that piece is learned from one event that was decoded. A later event with the same before
and behind it needs no decoding: a JSON string without quote, backslash or control character ends at its closing quote,
so whatever such text stands in that place, the rest of the document means what it meant. Everything else is decoded.
"""

import re
from itertools import islice
from typing import NamedTuple

_PLACES = 4  # where the text of an event may also stand, as the name of the model say


class Template(NamedTuple):
    """Events that are ``head``, plain text, ``tail``, from the field name to the blank line.

    Attributes:
        head: Up to the opening quote of the text, which it includes.
        tail: From the closing quote of the text.
    """

    head: bytes
    tail: bytes

    def cut(self, data: bytes) -> tuple[list[bytes], bytes]:
        """The pieces between heads and tails, and what follows the last tail.

        A piece is plain text, or whatever else stood between a head and a tail: whole events, then, of any kind.

        Args:
            data: Bytes that begin with ``head``.
        """
        pieces = data[len(self.head) :].split(self.tail + self.head)
        last, tail, rest = pieces[-1].partition(self.tail)
        if tail:
            pieces[-1] = last
            return pieces, rest
        pieces.pop()
        return pieces, self.head + last


def places(payload: bytes, text: str) -> list[tuple[bytes, bytes]]:
    """Where ``text`` stands in an event as a whole JSON string: what is before it, and what behind, quotes included."""
    raw = text.encode()
    if plain_text(raw) is None:
        return []
    found = islice(re.finditer(b'"' + re.escape(raw) + b'"', payload), _PLACES)
    return [(payload[: match.start() + 1], payload[match.end() - 1 :]) for match in found]


def plain_text(raw: bytes) -> str | None:
    """The text of a JSON string's inside that needs no decoding; None for any other bytes."""
    if b'"' in raw or b"\\" in raw:
        return None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
