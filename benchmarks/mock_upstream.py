"""An engine that answers at once, as the request asks: ``python -m benchmarks.mock_upstream [--interval 0.005]``.

With ``"stream":true`` it sends ``max_tokens`` deltas, one every ``--interval`` seconds, else one JSON document. It
reads no more of a body than these two members, which the load generator and every proxy measured here write plainly.
The word of a delta is ``ARRIVED/WRITTEN``: when its request had been read and when it was written, in seconds of the
machine's monotonic clock. Timers of the event loop count milliseconds, so that the time between varies by one.
"""

import argparse
import re
import time

import uvloop

from setpoint.testing.null_server import MODELS, AnsweringProtocol
from setpoint.testing.serve import serve

_ANSWER = (
    b'{"id":"chatcmpl-null","object":"chat.completion","created":1,"model":"null","choices":[{"index":0,"message":'
    b'{"role":"assistant","content":"word"},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d}}'
)
_TOKENS = re.compile(rb'"max_(?:completion_)?tokens":\s*(\d+)')  # sglang-router gives the old name the new one
_STREAM = re.compile(rb'"stream":\s*true')
EDGE_BYTES = 4096  # members stand at either end of a body, before or after the messages
BYTES_PER_TOKEN = 4


class Upstream(AnsweringProtocol):
    """One connection.

    Args:
        interval_s: Time between the deltas of a stream.
    """

    def __init__(self, interval_s: float) -> None:
        super().__init__(interval_s)
        self._pieces: list[bytes] = []
        self._arrived_s = 0.0

    def word(self) -> bytes:
        return b"%.9f/%.9f" % (self._arrived_s, time.monotonic())

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        body, self._pieces = b"".join(self._pieces), []
        if self._parser.get_method() == b"GET":
            self.document(MODELS)
            return
        self._arrived_s = time.monotonic()
        edges = body[:EDGE_BYTES] + body[-EDGE_BYTES:]
        if _STREAM.search(edges):
            found = _TOKENS.search(edges)
            self.pace(int(found.group(1)) if found else 1)
        else:
            prompt = len(body) // BYTES_PER_TOKEN
            self.document(_ANSWER % (prompt, prompt + 1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--interval", type=float, default=0.005, help="seconds between the deltas of a stream")
    options = parser.parse_args()
    uvloop.run(serve(lambda: Upstream(options.interval), options.port))


if __name__ == "__main__":
    main()
