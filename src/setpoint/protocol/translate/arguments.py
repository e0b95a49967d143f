"""Whether tool arguments that arrive in pieces are a whole JSON object yet."""

import re

_OUTSIDE = re.compile(r'["{}]')
_INSIDE = re.compile(r'["\\]')


class ObjectScan:
    """Counts braces outside strings; linear in what it is fed, whatever the pieces.

    It tells where an object ends, not whether it is valid: malformed arguments stay the engine's.
    """

    __slots__ = ("_depth", "_escaped", "_in_string", "_opened")

    def __init__(self) -> None:
        self._depth = 0
        self._opened = False
        self._in_string = False
        self._escaped = False

    @property
    def complete(self) -> bool:
        """An object was opened and closed."""
        return self._opened and self._depth == 0 and not self._in_string

    def feed(self, text: str) -> None:
        """The next piece."""
        at = 0
        if self._escaped and text:
            at, self._escaped = 1, False
        while at < len(text):
            mark = (_INSIDE if self._in_string else _OUTSIDE).search(text, at)
            if mark is None:
                return
            at = mark.end()
            sign = mark.group()
            if sign == '"':
                self._in_string = not self._in_string
            elif sign == "\\":
                self._escaped = at == len(text)
                at += 1
            elif sign == "{":
                self._depth += 1
                self._opened = True
            else:
                self._depth -= 1
