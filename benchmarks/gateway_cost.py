"""What the gateway costs: CPU milliseconds a request and microseconds a streamed chunk, beside the server without it.

``python benchmarks/gateway_cost.py [--requests 4000] [--chunks 200] [--soak 100000]``

One worker process with routing, a key, metering and verdict switched on stands before the null server. Wall time says
little on a shared machine; what is read is the CPU time of the worker process, before and after.
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import cast

import httptools
import psutil
import uvloop
import yaml

from setpoint.gateway.keys import KeyStore
from setpoint.testing.serve import running


class Caller(asyncio.Protocol):
    """Sends one request after the other on one connection."""

    def __init__(self, request: bytes, count: int, done: "asyncio.Future[None]") -> None:
        self.request, self.left, self.done = request, count, done
        self.parser = httptools.HttpResponseParser(self)
        self.first: list[float] = []
        self.began = 0.0
        self.waiting = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.send()

    def send(self) -> None:
        if self.left == 0:
            self.transport.close()
            self.done.set_result(None)
            return
        self.left -= 1
        self.began, self.waiting = time.perf_counter(), True
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        if self.waiting:
            self.first.append(time.perf_counter() - self.began)
            self.waiting = False
        self.parser.feed_data(data)

    def on_headers_complete(self) -> None:
        assert self.parser.get_status_code() == 200, self.parser.get_status_code()

    def on_message_complete(self) -> None:
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(exc or ConnectionError("closed"))


def request_of(key: str, size: int, stream: bool) -> bytes:
    text = "word " * (size // 5)
    body = (
        f'{{"model":"null","stream":{str(stream).lower()},"messages":[{{"role":"user","content":"{text}"}}]}}'.encode()
    )
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def same(caller: Caller) -> Caller:
    return caller


async def drive(port: int, request: bytes, count: int, connections: int) -> list[float]:
    loop = asyncio.get_running_loop()
    callers = []
    for _ in range(connections):
        caller = Caller(request, count // connections, loop.create_future())
        await loop.create_connection(partial(same, caller), "127.0.0.1", port)
        callers.append(caller)
    await asyncio.gather(*(c.done for c in callers))
    return [t for c in callers for t in c.first]


def cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def measure(
    process: psutil.Process, port: int, request: bytes, count: int, connections: int = 8
) -> tuple[float, list[float]]:
    """CPU seconds a request of a process, and times to first byte."""
    asyncio.run(drive(port, request, max(connections, count // 10), connections))
    before = cpu(process)
    first = asyncio.run(drive(port, request, count, connections))
    return (cpu(process) - before) / (count // connections * connections), first


def gateway(folder: Path, upstream: str) -> tuple[subprocess.Popen[str], int, str]:
    config = {
        "apiVersion": "setpoint/v1",
        "kind": "Gateway",
        "state": str(folder / "state"),
        "models": {"null": {"replicas": [{"url": upstream, "name": "a"}, {"url": upstream, "name": "b"}]}},
        "tenants": {"bench": {"limits": {"tokens_per_minute": 10**9, "requests_per_minute": 10**9, "streams": 10**6}}},
    }
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    _, key = KeyStore(folder / "state").create("bench")
    run = folder / "state" / "run"
    run.mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    command = [sys.executable, "-m", "setpoint.gateway.worker", str(path), str(run), "0", "1", str(port)]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == "ready"
    return child, port, key


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=4000)
    parser.add_argument("--chunks", type=int, default=200)
    parser.add_argument("--soak", type=int, default=0, help="further requests over which memory is watched")
    options = parser.parse_args()
    uvloop.install()
    with tempfile.TemporaryDirectory() as name:
        rows = []
        with running("setpoint.testing.null_server", ("--tokens", "1")) as (url, child):
            null = psutil.Process(child.pid)
            proxy, port, key = gateway(Path(name), url)
            process = psutil.Process(proxy.pid)
            direct = int(url.rsplit(":", 1)[1])
            for label, size, count in (
                ("small", 100, options.requests),
                ("200 KB body", 200_000, options.requests // 10),
            ):
                request = request_of(key, size, True)
                rows.append(
                    (
                        label,
                        measure(null, direct, request, count)[0] * 1e3,
                        measure(process, port, request, count)[0] * 1e3,
                        "ms a request",
                    )
                )
            one = measure(null, direct, request_of(key, 100, True), 400, 1)[1]
            two = measure(process, port, request_of(key, 100, True), 400, 1)[1]
            memory = [process.memory_info().rss / 2**20]
            for _ in range(options.soak // 10_000):
                asyncio.run(drive(port, request_of(key, 100, True), 10_000, 16))
                memory.append(process.memory_info().rss / 2**20)
            proxy.terminate()
            proxy.wait(10)
        with running("setpoint.testing.null_server", ("--tokens", str(options.chunks), "--interval", "0.002")) as (
            url,
            child,
        ):
            null = psutil.Process(child.pid)
            proxy, port, key = gateway(Path(tempfile.mkdtemp(dir=name)), url)
            process = psutil.Process(proxy.pid)
            direct = int(url.rsplit(":", 1)[1])
            request = request_of(key, 100, True)
            count = 64
            base, own = measure(null, direct, request, count, 16)[0], measure(process, port, request, count, 16)[0]
            rows.append(("paced stream", base / options.chunks * 1e6, own / options.chunks * 1e6, "µs a chunk"))
            proxy.terminate()
            proxy.wait(10)
    print(f"{'':14}{'server alone':>14}{'gateway':>12}")
    for label, base, own, unit in rows:
        print(f"{label:14}{base:14.3f}{own:12.3f}  {unit}")
    added = [b - a for a, b in zip(sorted(one), sorted(two), strict=False)]
    print(f"added time to first byte, one stream: median {added[len(added) // 2] * 1e3:.3f} ms (ordered differences)")
    shown = " ".join(f"{m:.0f}" for m in memory)
    print(f"memory of the worker, every 10,000 requests: {shown} MiB")
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
