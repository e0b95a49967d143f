"""CPU a request and a token of three clients on one null server: Setpoint's, aiohttp's, httpx's.

Setpoint's client parses, judges and journals every exchange. The others do what a load generator on them does: read
the stream by lines (and, for aiohttp, also by raw chunks), decode each event with the same decoder, note each arrival,
check the finish reason. They record nothing. All run in turn, in one process, with the same 32 streams, on uvloop. Two
rows more have aiohttp on asyncio's own loop, which is what it runs on unless told otherwise; one of them decodes with
the standard library, as benchmark clients on aiohttp commonly do. The floor writes the request, reads the answer into
one buffer and looks at nothing: no client in this language can cost less. Only the client's own process is counted,
user and system time; the server is another.

    request   CPU seconds of one exchange whose single token arrives in one write with the rest of the answer
    answer    the same with 64 tokens in the one write
    token     slope: (exchange of 144 paced tokens - exchange of 16 paced tokens) / 128
"""

import argparse
import asyncio
import gc
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
import uvloop
from benchmarks.machine import machine, print_table, shown, spread, take_priority, write

from setpoint.client.client import Client
from setpoint.client.pending import Planned
from setpoint.protocol.answer import AnswerReader
from setpoint.protocol.requests import Asked
from setpoint.protocol.wire import openai_answer
from setpoint.records.exchange import Exchange
from setpoint.records.journal import Journal
from setpoint.records.target import Dialect, Target
from setpoint.testing.serve import running

STREAMS, SHORT, ANSWER, LONG = 32, 16, 64, 144
BODY = Asked(Dialect.CHAT, "null").body([{"role": "user", "content": "word " * 64}], SHORT)
PATH = "/v1/chat/completions"
TYPE = {"content-type": "application/json"}

One = Callable[[int], Awaitable[int | None]]  # tokens of one answer; None where nobody counted
Load = Callable[[str, Callable[[One], Awaitable[None]]], Coroutine[Any, Any, None]]


async def setpoint(url: str, load: Callable[[One], Awaitable[None]]) -> None:
    client = Client(Target(url, Dialect.CHAT, "null"))
    with tempfile.TemporaryDirectory() as folder:
        journal: Journal[Exchange] = Journal(Path(folder) / "journal")

        async def one(index: int) -> int:
            row, _ = await client.exchange(BODY, Planned(index, index, 0, client.clock.now(), 64, SHORT))
            assert row.outcome.answered
            journal.append(row)
            return len(row.chunk_s)

        await load(one)
        journal.close()
    await client.close()


class Lines:
    """What a client that reads lines notes of one answer."""

    def __init__(self, *, plain: bool = False) -> None:
        self.plain = plain
        self.times: list[float] = []
        self.reason: str | None = None
        self.done = False

    def line(self, line: bytes) -> None:
        if line.startswith(b"data: "):
            self.event(line[6:].rstrip(), b"[DONE]")

    def text(self, line: str) -> None:
        if line.startswith("data: "):
            self.event(line[6:], "[DONE]")

    def event(self, payload: bytes | str, done: bytes | str) -> None:
        now = time.monotonic()
        if payload == done:
            self.done = True
            return
        if self.plain:
            for part in json.loads(payload).get("choices") or ():
                if (part.get("delta") or {}).get("content"):
                    self.times.append(now)
                self.reason = part.get("finish_reason") or self.reason
            return
        answer = openai_answer(payload)
        for choice in answer.choices or ():
            if choice.delta is not None and choice.delta.content:
                self.times.append(now)
            self.reason = choice.finish_reason or self.reason

    def tokens(self) -> int:
        assert self.done
        assert self.reason is not None
        return len(self.times)


async def aiohttp_lines(url: str, load: Callable[[One], Awaitable[None]]) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(_: int) -> int:
            seen = Lines()
            async with session.post(url + PATH, data=BODY, headers=TYPE) as response:
                async for line in response.content:
                    seen.line(line)
            return seen.tokens()

        await load(one)


async def aiohttp_json(url: str, load: Callable[[One], Awaitable[None]]) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(_: int) -> int:
            seen = Lines(plain=True)
            async with session.post(url + PATH, data=BODY, headers=TYPE) as response:
                async for line in response.content:
                    seen.line(line)
            return seen.tokens()

        await load(one)


async def aiohttp_chunks(url: str, load: Callable[[One], Awaitable[None]]) -> None:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def one(_: int) -> int:
            reader = AnswerReader(Dialect.CHAT)
            async with session.post(url + PATH, data=BODY, headers=TYPE) as response:
                reader.response(response.status, response.headers["content-type"])
                async for data in response.content.iter_any():
                    reader.feed(data, time.monotonic())
            assert reader.end(time.monotonic()).outcome.answered
            return len(reader.seen.chunk_s)

        await load(one)


async def httpx_lines(url: str, load: Callable[[One], Awaitable[None]]) -> None:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(limits=limits, timeout=None) as client:

        async def one(_: int) -> int:
            seen = Lines()
            async with client.stream("POST", url + PATH, content=BODY, headers=TYPE) as response:
                async for line in response.aiter_lines():
                    seen.text(line)
            return seen.tokens()

        await load(one)


class Nothing(asyncio.BufferedProtocol):
    """Reads into one buffer and looks at nothing but the last bytes of a body."""

    buffer = bytearray(2**18)

    def __init__(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002 - asyncio's shape
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self.buffer[nbytes - 5 : nbytes] == b"0\r\n\r\n":
            self.done.set_result(None)


async def floor(url: str, load: Callable[[One], Awaitable[None]]) -> None:
    """One write and the reads of its answer: what the kernel and the event loop cost whoever reads them."""
    loop, where = asyncio.get_running_loop(), urlsplit(url)
    address = (where.hostname or "", where.port or 80)
    request = b"POST %b HTTP/1.1\r\nhost: %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
    request %= (PATH.encode(), where.netloc.encode(), len(BODY), BODY)
    idle: list[tuple[asyncio.Transport, Nothing]] = []

    async def one(_: int) -> None:
        transport, nothing = idle.pop() if idle else await loop.create_connection(Nothing, *address)
        nothing.done = loop.create_future()
        transport.write(request)
        await nothing.done
        idle.append((transport, nothing))

    await load(one)
    for transport, _ in idle:
        transport.abort()


CLIENTS: dict[str, tuple[Load, Callable[[Coroutine[Any, Any, None]], None]]] = {
    "setpoint": (setpoint, uvloop.run),
    "aiohttp, lines": (aiohttp_lines, uvloop.run),
    "aiohttp, chunks": (aiohttp_chunks, uvloop.run),
    "aiohttp, lines, asyncio's loop": (aiohttp_lines, asyncio.run),
    "the same with the standard library's json": (aiohttp_json, asyncio.run),
    "httpx, lines": (httpx_lines, uvloop.run),
    "floor: uvloop, nothing parsed": (floor, uvloop.run),
}


def cpu_of(name: str, url: str, requests: int, tokens: int) -> float:
    """CPU seconds a request, connections warm."""
    measured = 0.0

    async def load(one: One) -> None:
        nonlocal measured

        async def user(count: int) -> None:
            for index in range(count):
                assert await one(index) in (tokens, None)

        await asyncio.gather(*(user(1) for _ in range(STREAMS)))
        gc.collect()
        begun = time.process_time()
        await asyncio.gather(*(user(requests // STREAMS) for _ in range(STREAMS)))
        measured = (time.process_time() - begun) / requests

    client, run = CLIENTS[name]
    run(client(url, load))
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    take_priority()
    before = machine()
    server = "setpoint.testing.null_server"
    cost: dict[str, dict[str, list[float]]] = {name: {"request": [], "answer": [], "token": []} for name in CLIENTS}
    with (
        running(server, ("--tokens", "1")) as (least, _),
        running(server, ("--tokens", str(ANSWER))) as (burst, _),
        running(server, ("--tokens", str(SHORT), "--interval", "0.005")) as (short, _),
        running(server, ("--tokens", str(LONG), "--interval", "0.005")) as (long, _),
    ):
        for repeat in range(options.repeats):
            names = list(CLIENTS)
            for name in names[repeat % len(names) :] + names[: repeat % len(names)]:  # each is first in turn
                cost[name]["request"].append(cpu_of(name, least, 1920, 1))
                cost[name]["answer"].append(cpu_of(name, burst, 1920, ANSWER))
                paced = [cpu_of(name, short, 320, SHORT), cpu_of(name, long, 128, LONG)]
                cost[name]["token"].append((paced[1] - paced[0]) / (LONG - SHORT))
    found = {name: {kind: spread(values) for kind, values in kinds.items()} for name, kinds in cost.items()}
    ratios = {
        name: {k: spread([a / b for a, b in zip(kinds[k], cost["setpoint"][k], strict=True)]) for k in kinds}
        for name, kinds in cost.items()
    }
    kinds = ("request", "answer", "token")
    head = ("client", "µs a request", "µs an answer of 64", "µs a paced token", *(f"{kind}: ratio" for kind in kinds))
    rows = [
        (name, *(shown(found[name][k], 1e6) for k in kinds), *(shown(ratios[name][k]) for k in kinds))
        for name in CLIENTS
    ]
    print_table(head, rows)
    results = {"streams": STREAMS, "repeats": options.repeats, "cpu_s": found, "ratio": ratios, "raw_cpu_s": cost}
    write(options.out, before, results)


if __name__ == "__main__":
    main()
