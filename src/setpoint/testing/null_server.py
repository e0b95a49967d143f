"""A server that answers at once: what a client measures against it is the client itself.

It takes any POST and streams a canned chat answer of ``--tokens`` deltas, all in one write, or one every
``--interval`` seconds. The word of a paced delta is the time of its write on the machine's monotonic clock, so that a
client on the same machine can tell its own delay from the server's.
"""

import argparse
import asyncio
import time
from typing import cast

import httptools

from setpoint.testing.serve import serve

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_CHUNK = (
    b'data: {"id":"chatcmpl-null","object":"chat.completion.chunk","created":1,"model":"null",'
    b'"choices":[{"index":0,"delta":{%s},"finish_reason":%s}]}\n\n'
)
_USAGE = (
    b'data: {"id":"chatcmpl-null","object":"chat.completion.chunk","created":1,"model":"null","choices":[],'
    b'"usage":{"prompt_tokens":16,"completion_tokens":%d,"total_tokens":%d}}\n\ndata: [DONE]\n\n'
)
MODELS = b'{"object":"list","data":[{"id":"null","object":"model","created":1,"owned_by":"setpoint"}]}'


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(word: bytes = b"word") -> bytes:
    """One delta of one token."""
    return _framed(_CHUNK % (b'"content":" %b"' % word, b"null"))


def tail(tokens: int) -> bytes:
    """Finish reason, usage, terminal event and the end of the body."""
    end = _CHUNK % (b"", b'"length"')
    return _framed(end) + _framed(_USAGE % (tokens, tokens + 16)) + b"0\r\n\r\n"


class AnsweringProtocol(asyncio.Protocol):
    """One connection of a server that answers at once or at a pace; a subclass says what, in ``on_message_complete``.

    Args:
        interval_s: Time between the deltas of a stream.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's do not inherit from it

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's shape
        """The client has gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        """Request bytes."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:  # sglang-router tries HTTP/2 first
            if self._transport is not None:
                self._transport.abort()

    def write(self, data: bytes) -> None:
        """Sends bytes to the client, if it is still there."""
        if self._transport is not None:
            self._transport.write(data)

    def document(self, body: bytes) -> None:
        """Answers with one JSON document."""
        self.write(_JSON % (len(body), body))

    def word(self) -> bytes:
        """The text of the delta that is written now."""
        return b"%.9f" % time.monotonic()

    def pace(self, tokens: int) -> None:
        """Begins a stream of so many deltas, one every ``interval_s``."""
        self.write(HEAD)
        self._pace(tokens, tokens, asyncio.get_running_loop().time() + self._interval_s)

    def _pace(self, left: int, tokens: int, due_s: float) -> None:
        if left:
            self._timer = asyncio.get_running_loop().call_at(due_s, self._send, left, tokens, due_s)
        else:
            self.write(tail(tokens))

    def _send(self, left: int, tokens: int, due_s: float) -> None:
        if self._transport is not None:
            self._transport.write(token(self.word()))
            self._pace(left - 1, tokens, due_s + self._interval_s)


class NullProtocol(AnsweringProtocol):
    """Answers each request on one connection.

    Args:
        tokens: Deltas an answer.
        interval_s: Time between them; 0 sends the whole answer in one write.
    """

    def __init__(self, tokens: int, interval_s: float) -> None:
        super().__init__(interval_s)
        self._tokens = tokens
        self._whole = HEAD + b"".join([token()] * tokens) + tail(tokens)

    def on_message_complete(self) -> None:
        """A whole request: answer."""
        if self._parser.get_method() == b"GET":
            self.document(MODELS)
        elif self._interval_s == 0:
            self.write(self._whole)
        else:
            self.pace(self._tokens)


def main() -> None:
    """``python -m setpoint.testing.null_server [--port 0] [--tokens 16] [--interval 0]``."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--interval", type=float, default=0.0, help="seconds between tokens")
    options = parser.parse_args()
    import uvloop  # noqa: PLC0415 - only the process that serves needs it

    uvloop.run(serve(lambda: NullProtocol(options.tokens, options.interval), options.port))


if __name__ == "__main__":
    main()
