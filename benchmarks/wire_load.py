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
    """Sends one request after the other on one connection; ``first_s`` gets each time to the first byte of a body."""

    def __init__(self, request: bytes, count: int) -> None:
        self._request, self._left = request, count
        self._parser = httptools.HttpResponseParser(self)
        self._began_s = 0.0
        self._waiting = False
        self.first_s: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        if self._left == 0:
            self._transport.close()
            self.done.set_result(None)
            return
        self._left -= 1
        self._waiting, self._began_s = True, time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self._now_s = time.perf_counter()
        self._parser.feed_data(data)

    def on_headers_complete(self) -> None:
        if self._parser.get_status_code() != 200 and not self.done.done():
            self.done.set_exception(RuntimeError(f"the proxy answered {self._parser.get_status_code()}"))
            self._transport.abort()

    def on_body(self, _: bytes) -> None:
        if self._waiting:
            self.first_s.append(self._now_s - self._began_s)
            self._waiting = False

    def on_message_complete(self) -> None:
        if not self.done.done():
            self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("the proxy closed the connection"))


def _same(caller: Caller) -> Caller:
    return caller


async def drive(port: int, request: bytes, count: int, connections: int) -> list[float]:
    """Sends ``count`` requests; times to the first byte of the body."""
    loop = asyncio.get_running_loop()
    callers = [Caller(request, count // connections) for _ in range(connections)]
    for caller in callers:
        await loop.create_connection(partial(_same, caller), "127.0.0.1", port)
    await asyncio.gather(*(caller.done for caller in callers))
    return [seconds for caller in callers for seconds in caller.first_s]
