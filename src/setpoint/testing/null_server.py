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

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_CHUNK = (
    b'data: {"id":"chatcmpl-null","object":"chat.completion.chunk","created":1,"model":"null",'
    b'"choices":[{"index":0,"delta":{%s},"finish_reason":%s}]}\n\n'
)
_USAGE = (
    b'data: {"id":"chatcmpl-null","object":"chat.completion.chunk","created":1,"model":"null","choices":[],'
    b'"usage":{"prompt_tokens":16,"completion_tokens":%d,"total_tokens":%d}}\n\ndata: [DONE]\n\n'
)
_MODELS = b'{"object":"list","data":[{"id":"null","object":"model","owned_by":"setpoint"}]}'


def _framed(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def token(word: bytes = b"word") -> bytes:
    """One delta of one token."""
    return _framed(_CHUNK % (b'"content":" %b"' % word, b"null"))


def tail(tokens: int) -> bytes:
    """Finish reason, usage, terminal event and the end of the body."""
    end = _CHUNK % (b"", b'"length"')
    return _framed(end) + _framed(_USAGE % (tokens, tokens + 16)) + b"0\r\n\r\n"


class NullProtocol(asyncio.Protocol):
    """Answers each request on one connection.

    Args:
        tokens: Deltas an answer.
        interval_s: Time between them; 0 sends the whole answer in one write.
    """

    def __init__(self, tokens: int, interval_s: float) -> None:
        self._tokens = tokens
        self._interval_s = interval_s
        self._whole = _HEAD + b"".join([token()] * tokens) + tail(tokens)
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
        except httptools.HttpParserError:
            if self._transport is not None:
                self._transport.abort()

    def on_message_complete(self) -> None:
        """A whole request: answer."""
        assert self._transport is not None
        if self._parser.get_method() == b"GET":
            self._transport.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (len(_MODELS), _MODELS)
            )
        elif self._interval_s == 0:
            self._transport.write(self._whole)
        else:
            self._transport.write(_HEAD)
            self._pace(self._tokens, asyncio.get_running_loop().time() + self._interval_s)

    def _pace(self, left: int, due_s: float) -> None:
        if left == 0:
            if self._transport is not None:
                self._transport.write(tail(self._tokens))
            return
        self._timer = asyncio.get_running_loop().call_at(due_s, self._send, left, due_s)

    def _send(self, left: int, due_s: float) -> None:
        if self._transport is not None:
            self._transport.write(token(b"%.9f" % time.monotonic()))
            self._pace(left - 1, due_s + self._interval_s)


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
