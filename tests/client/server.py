"""A server whose every byte a test decides, and what the tests send to it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from setpoint.client.client import Client
from setpoint.client.pending import Planned
from setpoint.records.exchange import Exchange
from setpoint.records.target import Dialect, Target

Run = Callable[[Coroutine[Any, Any, None]], None]
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
BODY = b'{"model":"m","messages":[{"role":"user","content":"hello"}],"stream":true}'


async def until(condition: Callable[[], bool]) -> None:
    """Waits for something that nothing announces."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - bounded
            await asyncio.sleep(0.001)


def chunk(data: bytes) -> bytes:
    """One HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def whole(body: bytes, status: int = 200, kind: str = "application/json", extra: str = "") -> bytes:
    """A response with a length."""
    head = f"HTTP/1.1 {status} x\r\ncontent-type: {kind}\r\n{extra}content-length: {len(body)}\r\n\r\n"
    return head.encode() + body


@dataclass(slots=True)
class Wire:
    """The server's side of one request.

    Attributes:
        head: Request line and header fields.
        body: Request body.
        number: Of the request on its connection, from 0.
        connection: Number of the connection, from 0.
    """

    head: bytes
    body: bytes
    number: int
    connection: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *data: bytes) -> None:
        """Writes and waits until the kernel has it."""
        self.writer.write(b"".join(data))
        await self.writer.drain()

    async def gone(self) -> None:
        """Returns when the client has closed its side."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass

    def reset(self) -> None:
        """Closes at once."""
        self.writer.transport.abort()


Answer = Callable[[Wire], Awaitable[None]]


@dataclass(slots=True)
class Server:
    """A listening server.

    Attributes:
        port: Where.
        url: Base URL.
        connections: Accepted so far.
        requests: Whole requests so far.
        closed: Connections that ended, from whichever side.
    """

    port: int = 0
    url: str = ""
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    closed: int = 0

    async def until_closed(self, count: int) -> None:
        """Waits until so many connections have ended."""
        await until(lambda: self.closed >= count)


async def _serve_one(
    server: Server, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    connection, number = server.connections, 0
    server.connections += 1
    try:
        while not writer.is_closing():
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            server.requests.append(head + body)
            await answer(Wire(head, body, number, connection, reader, writer))
            number += 1
    except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
        pass
    finally:
        server.closed += 1
        writer.transport.abort()


@contextlib.asynccontextmanager
async def serving(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serves until the block ends."""
    server = Server()
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_serve_one(server, answer, reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls, backlog=1024)
    server.port = listener.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def saying(*data: bytes) -> Answer:
    """Always the same bytes."""

    async def answer(wire: Wire) -> None:
        await wire.send(*data)

    return answer


def target(url: str, dialect: Dialect = Dialect.CHAT, **more: Any) -> Target:  # noqa: ANN401
    """A target for a model named m."""
    return Target(url, dialect, "m", **more)


def planned(client: Client, index: int = 0, tokens: int = 2) -> Planned:
    """A request for so many tokens, scheduled for now."""
    return Planned(index, index, 0, client.clock.now(), 4, tokens)


async def ask(client: Client, index: int = 0, body: bytes = BODY, tokens: int = 2) -> Exchange:
    """One exchange."""
    row, _ = await client.exchange(body, planned(client, index, tokens))
    return row


@contextlib.asynccontextmanager
async def client_of(url: str, dialect: Dialect = Dialect.CHAT, **more: Any) -> AsyncIterator[Client]:  # noqa: ANN401
    """A client that is closed when the block ends."""
    client = Client(target(url, dialect), **more)
    try:
        yield client
    finally:
        await client.close()
