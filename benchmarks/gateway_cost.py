"""What a request and a streamed chunk cost in CPU at Setpoint's gateway and at other proxies, in one run.

    python -m benchmarks.gateway_cost [--sglang-router PYTHON] [--litellm BINARY] [--nginx BINARY] [--awake] [--out F]

Each proxy stands before the same two mock upstreams and is loaded by the same callers, one proxy at a time, in turn.
What is read is the CPU time, user and system, of the proxy's whole process tree: wall time says little on a shared
machine. ``benchmarks/rivals.txt`` says how the others are installed. The environment variables
``BENCHMARK_SGLANG_ROUTER``, ``BENCHMARK_LITELLM`` and ``BENCHMARK_NGINX`` stand for the options.
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import uvloop
from benchmarks import proxies
from benchmarks.machine import awake, machine, print_table, shown, spread, write
from benchmarks.proxies import Proxy
from benchmarks.wire_load import drive, request_of

from setpoint.testing.serve import running

INTERVAL_S = 0.005
SHORT, LONG = 16, 144  # deltas of the streams whose difference is the cost of a chunk
SETTLE_S = 1.5  # what a proxy does after its answers (accounts, logs) is its cost too


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load.

    Attributes:
        name: In the results.
        prompt_bytes: Of each request.
        tokens: Deltas of the answer.
        stream: Whether it is streamed.
        connections: Requests under way at once.
        share: Of the requests that the small cell gets.
    """

    name: str
    prompt_bytes: int = 100
    tokens: int = 1
    stream: bool = False
    connections: int = 16
    share: float = 1.0


CELLS = (
    Cell("small"),
    Cell("body_200k", prompt_bytes=200_000, share=0.25),
    Cell("short_stream", tokens=SHORT, stream=True, connections=32, share=0.1),
    Cell("long_stream", tokens=LONG, stream=True, connections=32, share=0.05),
)


def cpu_per_request(proxy: Proxy, cell: Cell, requests: int) -> float:
    """CPU seconds of the proxy's process tree."""
    request = request_of(proxy.key, prompt_bytes=cell.prompt_bytes, tokens=cell.tokens, stream=cell.stream)
    connections = min(cell.connections, max(1, int(requests * cell.share)))
    each = max(1, int(requests * cell.share) // connections)
    asyncio.run(drive(proxy.port, request, connections, connections))
    time.sleep(SETTLE_S)
    before = proxy.cpu_s()
    asyncio.run(drive(proxy.port, request, each * connections, connections))
    time.sleep(SETTLE_S)
    return (proxy.cpu_s() - before) / (each * connections)


def measured(proxy: Proxy, requests: int) -> dict[str, float]:
    """CPU seconds a request by cell, and seconds a chunk."""
    found = {cell.name: cpu_per_request(proxy, cell, requests) for cell in CELLS}
    return found | {"chunk": (found["long_stream"] - found["short_stream"]) / (LONG - SHORT)}


def print_results(results: dict[str, dict[str, list[float]]]) -> None:
    """A row a proxy."""
    rows = []
    for name, found in results.items():
        values = {cell: spread(seconds) for cell, seconds in found.items()}
        ms = [shown(values[cell], 1e3, 3) for cell in ("small", "body_200k", "short_stream")]
        rows.append([name, *ms, shown(values["chunk"], 1e6)])
    print_table(["proxy", "small, ms", "200 KB body, ms", f"stream of {SHORT}, ms", "a chunk, µs"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sglang-router", default=os.environ.get("BENCHMARK_SGLANG_ROUTER"), metavar="PYTHON")
    parser.add_argument("--litellm", default=os.environ.get("BENCHMARK_LITELLM"), metavar="BINARY")
    parser.add_argument("--nginx", default=os.environ.get("BENCHMARK_NGINX"), metavar="BINARY")
    parser.add_argument("--requests", type=int, default=8000, help="small requests; LiteLLM gets a fiftieth")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--awake", action="store_true", help="keep the cores from halting")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    uvloop.install()
    before = machine()
    results: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        if options.awake:
            stack.enter_context(awake())
        paced = ("--interval", str(INTERVAL_S))
        urls = [stack.enter_context(running("benchmarks.mock_upstream", paced))[0] for _ in range(2)]
        entries = [(proxies.setpoint_gateway(folder / "setpoint", urls), 1.0)]
        if options.sglang_router:
            for policy, log in (("cache_aware", True), ("cache_aware", False), ("round_robin", False)):
                where = folder / f"{policy}-{log}"
                router = proxies.sglang_router(options.sglang_router, where, urls, policy, request_log=log)
                entries.append((router, 1.0))
        if options.litellm:
            entries.append((proxies.litellm(options.litellm, folder / "litellm", urls), 0.02))
        if options.nginx:
            entries.append((proxies.nginx(options.nginx, folder / "nginx", urls), 1.0))
        served = [(stack.enter_context(proxy), share) for proxy, share in entries]
        for _ in range(options.repeats):
            for proxy, share in served:
                for cell, seconds in measured(proxy, int(options.requests * share)).items():
                    results.setdefault(proxy.name, {}).setdefault(cell, []).append(seconds)
            if options.out:
                write(options.out, before, {"requests": options.requests, "awake": options.awake, "cpu_s": results})
    print_results(results)


if __name__ == "__main__":
    main()
