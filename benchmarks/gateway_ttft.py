"""What the gateway, and other proxies, add to the time to first token of one stream.

    python -m benchmarks.gateway_ttft [--requests 2000] [--sglang-router PYTHON] [--nginx BINARY] [--awake] [--out FILE]

One stream at a time, its first token one interval after the request; each request goes once straight to the mock
upstream and once through each proxy, all in turn. The upstream tells with the token how long it took for it, since its
timer varies by a millisecond; what is left is the *way*: of the request there, of the token back. Added time: the way
through a proxy less the direct one of the same turn. The direct requests' own spread stands beside it: it is what the
machine adds. Every hop is exposed to the machine's delays once more, so a proxy that computes next to nothing (nginx)
shows how much of a tail is not the proxy's.

A virtual core that halts is given back to its host, and comes back milliseconds late. With ``--awake`` none halts, as
with ``idle=poll`` (needs the right to write ``/dev/cpu_dma_latency``).
"""

import argparse
import asyncio
import contextlib
import re
import tempfile
from pathlib import Path

import numpy as np
import uvloop
from benchmarks import proxies
from benchmarks.machine import awake, machine, print_table, write
from benchmarks.wire_load import connected, request_of

from setpoint.metrics.percentile import percentiles
from setpoint.testing.serve import running

INTERVAL_S = 0.002
TOKENS = 2
WARM_UP = 100
QUANTILES = (0.5, 0.9, 0.99)
_TOLD = re.compile(rb'"content":\s*" ?([\d.]+)/([\d.]+)"')


async def in_turn(ways: list[tuple[int, str]], count: int) -> list[np.ndarray]:
    """Times to first token less the upstream's own, in seconds, by each way: a port and a key."""
    callers = [await connected(port, request_of(key, tokens=TOKENS, stream=True)) for port, key in ways]
    taken: list[list[float]] = [[] for _ in ways]
    for _ in range(WARM_UP + count):
        for caller, times in zip(callers, taken, strict=True):
            await caller.ask()
            times.append(caller.first_s[-1] - _upstreams_s(caller.first))
    for caller in callers:
        caller.close()
    return [np.asarray(times[WARM_UP:]) for times in taken]


def _upstreams_s(delta: bytes) -> float:
    """Between the request's arrival at the upstream and its first delta, as that says itself."""
    told = _TOLD.search(delta)
    if told is None:
        raise RuntimeError(f"the first token does not say when it was written: {delta[:200]!r}")
    return float(told.group(2)) - float(told.group(1))


def _cell(interval: list[float | None]) -> str:
    low, value, high = ("too few" if v is None else f"{v * 1e3:.3f}" for v in interval)
    return f"{value} ({low}-{high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sglang-router", metavar="PYTHON")
    parser.add_argument("--nginx", metavar="BINARY")
    parser.add_argument("--awake", action="store_true", help="keep the cores from halting")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    uvloop.install()
    before = machine()
    found: list[dict[str, dict[str, list[float | None]]]] = []
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        if options.awake:
            stack.enter_context(awake())
        paced = ("--interval", str(INTERVAL_S))
        url, folder = stack.enter_context(running("benchmarks.mock_upstream", paced))[0], Path(name)
        entries = [proxies.setpoint_gateway(folder / "setpoint", [url])]
        if options.sglang_router:
            where = folder / "sglang"
            entries.append(proxies.sglang_router(options.sglang_router, where, [url], "cache_aware", request_log=True))
        if options.nginx:
            entries.append(proxies.nginx(options.nginx, folder / "nginx", [url]))
        served = [stack.enter_context(entry) for entry in entries]
        ways = [(int(url.rpartition(":")[2]), "none"), *((proxy.port, proxy.key) for proxy in served)]
        for _ in range(options.repeats):
            straight, *through = asyncio.run(in_turn(ways, options.requests))
            rows = {"direct": straight}
            for proxy, times in zip(served, through, strict=True):
                rows[proxy.name] = times
                rows[f"added by {proxy.name}"] = times - straight
            found.append(
                {
                    row: {f"p{q.quantile * 100:g}": [q.low, q.value, q.high] for q in percentiles(values, QUANTILES)}
                    for row, values in rows.items()
                }
            )
    table = []
    for i, repeat in enumerate(found):
        for row, quantiles in repeat.items():
            table.append([str(i + 1), row, *map(_cell, quantiles.values())])
    print_table(["repeat", "way of request and token, ms", "p50", "p90", "p99"], table)
    if options.out:
        write(options.out, before, {"requests": options.requests, "awake": options.awake, "seconds": found})


if __name__ == "__main__":
    main()
