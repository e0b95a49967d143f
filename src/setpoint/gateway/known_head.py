"""A request's head that was taken before on its connection: clients repeat theirs, and only the length changes.

llhttp has read those very bytes and taken them, and so have the checks of ``incoming``; with other digits in
``content-length`` they are as good. So the next request with them, where it arrives whole, needs no parser.
"""

import re
from dataclasses import replace

from setpoint.gateway.incoming import Request

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
_END = b"\r\n\r\n"
_DIGITS = 9  # of a length that is read here
MAX_KNOWN_BYTES = 8192  # of a head; it stays as long as its connection


class KnownHead:
    """One head.

    Args:
        before: Its bytes up to the length's digits.
        behind: Its bytes from there on.
        request: What it says.
    """

    __slots__ = ("_before", "_behind", "_request")

    def __init__(self, before: bytes, behind: bytes, request: Request) -> None:
        self._before = before
        self._behind = behind
        self._request = request

    def read(self, data: bytes, now_s: float) -> Request | None:
        """The request, where these bytes are one whole request with this head; else None.

        Args:
            data: What came, from the start of a message.
            now_s: When, monotonic.
        """
        before = self._before
        if not data.startswith(before):
            return None
        start = len(before)
        end = data.find(b"\r", start, start + _DIGITS + 1)
        digits = data[start:end]
        if end < 0 or not digits.isdigit() or not data.startswith(self._behind, end):
            return None
        begin = end + len(self._behind)
        if int(digits) != len(data) - begin:
            return None
        r = self._request
        return Request(r.method, r.target, r.fields, data[begin:], True, False, now_s, r.certificate)


def known_head(data: bytes, request: Request) -> KnownHead | None:
    """The head of a request, where a later one could be read by it.

    Args:
        data: The bytes that were this request and nothing else.
        request: What the parser made of them.
    """
    end = data.find(_END) + len(_END)
    if end > MAX_KNOWN_BYTES:
        return None
    found = _LENGTH.findall(data, 0, end)
    if request.http_1_0 or not request.keep_alive or request.certificate or len(found) != 1:
        return None
    if len(data) - end != int(found[0]) or "expect" in request.fields or "transfer-encoding" in request.fields:
        return None
    match = _LENGTH.search(data, 0, end)
    assert match is not None
    return KnownHead(data[: match.start(1)], data[match.end(1) : end], replace(request, body=b""))
