"""Load for proxies: raw requests over kept-alive connections, each answer parsed as HTTP and no further."""

import asyncio
import time
from functools import partial
from typing import cast

import httptools
import msgspec

PATH = "/v1/chat/completions"


def request_of(key: str, *, prompt_bytes: int = 100, tokens: int = 1, stream: bool = False) -> bytes:
    """One chat request as bytes."""
    text = "word " * (prompt_bytes // 5)
    members = {"model": "null", "stream": stream, "max_tokens": tokens, "messages": [{"role": "user", "content": text}]}
    body = msgspec.json.encode(members)
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {key}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Caller(asyncio.Protocol):
    """Sends one request after the other on one connection.

    Attributes:
        first_s: Of each answer, the time from its request to the first byte of its body.
        first: What came with that byte of the last answer.
    """

    def __init__(self, request: bytes) -> None:
        self._request, self._left = request, 0
        self._parser = httptools.HttpResponseParser(self)
        self._began_s = self._now_s = 0.0
        self._waiting = False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_s: list[float] = []
        self.first = b""

    async def ask(self, count: int = 1) -> None:
        """Sends requests until as many answers have ended."""
        self._done = asyncio.get_running_loop().create_future()
        self._left = count
        self._send()
        await self._done

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def _send(self) -> None:
        if self._left == 0:
            self._done.set_result(None)
            return
        self._left -= 1
        self._waiting, self._began_s = True, time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now_s = time.perf_counter()
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() != 200:
            self._fail(RuntimeError(f"the proxy answered {self._parser.get_status_code()}"))

    def on_body(self, data: bytes) -> None:
        if self._waiting:
            self.first_s.append(self._now_s - self._began_s)
            self.first = data
            self._waiting = False

    def on_message_complete(self) -> None:
        if not self._done.done():
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("the proxy closed the connection"))

    def _fail(self, error: Exception) -> None:
        if self._left or self._waiting:
            self._left, self._waiting = 0, False
            if not self._done.done():
                self._done.set_exception(error)


def _same(caller: Caller) -> Caller:
    return caller


async def connected(port: int, request: bytes) -> Caller:
    """A caller whose connection stands."""
    caller = Caller(request)
    await asyncio.get_running_loop().create_connection(partial(_same, caller), "127.0.0.1", port)
    return caller


async def drive(port: int, request: bytes, count: int, connections: int) -> list[float]:
    """Sends ``count`` requests over as many connections at once; times to the first byte of the body."""
    callers = [await connected(port, request) for _ in range(connections)]
    await asyncio.gather(*(caller.ask(count // connections) for caller in callers))
    for caller in callers:
        caller.close()
    return [seconds for caller in callers for seconds in caller.first_s]
