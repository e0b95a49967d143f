"""An engine that answers at once, as the request asks: ``python -m benchmarks.mock_upstream [--interval 0.005]``.

With ``"stream":true`` it sends ``max_tokens`` deltas, one every ``--interval`` seconds, else one JSON document. It
reads no more of a body than these two members, which the load generator and every proxy measured here write plainly.
"""

import argparse
import asyncio
import re
import time
from typing import cast

import httptools
import uvloop

from setpoint.testing.null_server import tail, token
from setpoint.testing.serve import serve

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
_MODELS = b'{"object":"list","data":[{"id":"null","object":"model","created":1,"owned_by":"setpoint"}]}'
_ANSWER = (
    b'{"id":"chatcmpl-null","object":"chat.completion","created":1,"model":"null","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"word"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d}}'
)
_TOKENS = re.compile(rb'"max_(?:completion_)?tokens":\s*(\d+)')  # sglang-router gives the old name the new one
_STREAM = re.compile(rb'"stream":\s*true')
EDGE_BYTES = 4096  # members stand at either end of a body, before or after the messages
BYTES_PER_TOKEN = 4


class Upstream(asyncio.Protocol):
    """One connection.

    Args:
        interval_s: Time between the deltas of a stream.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pieces: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._transport = None

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:  # sglang-router tries HTTP/2 first
            if self._transport is not None:
                self._transport.abort()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        assert self._transport is not None
        body, self._pieces = b"".join(self._pieces), []
        if self._parser.get_method() == b"GET":
            self._transport.write(_JSON % (len(_MODELS), _MODELS))
            return
        edges = body[:EDGE_BYTES] + body[-EDGE_BYTES:]
        if _STREAM.search(edges):
            found = _TOKENS.search(edges)
            tokens = int(found.group(1)) if found else 1
            self._transport.write(_HEAD)
            self._pace(tokens, tokens, asyncio.get_running_loop().time() + self._interval_s)
        else:
            prompt = len(body) // BYTES_PER_TOKEN
            answer = _ANSWER % (prompt, prompt + 1)
            self._transport.write(_JSON % (len(answer), answer))

    def _pace(self, left: int, tokens: int, due_s: float) -> None:
        if left:
            self._timer = asyncio.get_running_loop().call_at(due_s, self._send, left, tokens, due_s)
        elif self._transport is not None:
            self._transport.write(tail(tokens))

    def _send(self, left: int, tokens: int, due_s: float) -> None:
        if self._transport is not None:
            self._transport.write(token(b"%.9f" % time.monotonic()))
            self._pace(left - 1, tokens, due_s + self._interval_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--interval", type=float, default=0.005, help="seconds between the deltas of a stream")
    options = parser.parse_args()
    uvloop.run(serve(lambda: Upstream(options.interval), options.port))


if __name__ == "__main__":
    main()
