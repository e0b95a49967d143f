"""Whether the gateway's memory stays flat over many requests and many open streams, and nothing is left behind.

    python -m benchmarks.gateway_soak [--requests 1000000] [--streams 2000] [--out FILE]

Resident memory of each of the gateway's processes is read at even steps. Its growth is the slope of a line through
the second half of the readings, with a 95% interval by Student's t; in the first half pools, caches and the allocator
fill up. At the end the gateway says how many requests are under way, and the shared table how many tokens are
reserved.
"""

import argparse
import asyncio
import contextlib
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from benchmarks import proxies
from benchmarks.machine import machine, write
from benchmarks.proxies import Proxy
from benchmarks.wire_load import connected, drive, request_of
from scipy.special import stdtrit

from setpoint.client.limits import raise_open_files
from setpoint.gateway.limits import RESERVED, STREAMS
from setpoint.gateway.shared import SharedTable
from setpoint.testing.serve import running

STEPS = 100
CONNECTIONS = 16
STREAM_TOKENS, STREAM_INTERVAL_S = 60, 0.5
SETTLE_S = 3.0


def slope(requests: Sequence[int], rss: Sequence[int]) -> dict[str, float]:
    """Bytes a request, with a 95% interval."""
    x, y = np.asarray(requests, float), np.asarray(rss, float)
    x = x - x.mean()
    value = float((x * (y - y.mean())).sum() / (x**2).sum())
    residual = y - y.mean() - value * x
    error = float(np.sqrt((residual**2).sum() / (len(x) - 2) / (x**2).sum()))
    reach = float(stdtrit(len(x) - 2, 0.975)) * error
    return {"value": value, "low": value - reach, "high": value + reach}


def memory(proxy: Proxy) -> dict[str, int]:
    """Resident bytes of the supervisor and the worker."""
    supervisor, worker = sorted(proxy.tree(), key=lambda one: one.pid)
    return {"supervisor": supervisor.memory_info().rss, "worker": worker.memory_info().rss}


def left_behind(folder: Path, admin: int) -> dict[str, int]:
    """What the gateway still holds: requests under way, streams and tokens reserved; and what it has counted."""
    time.sleep(SETTLE_S)
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/status", timeout=10) as answer:
        status = json.load(answer)
    table = SharedTable(folder / "state" / "run" / "table", 1, -1)
    row = table.row("tenant:benchmark")
    found = {"in_flight": status["in_flight"], "streams": row.held(STREAMS), "reserved_tokens": row.held(RESERVED)}
    found["replicas_in_flight"] = sum(one["in_flight"] for one in status["replicas"])
    found["accounted"] = sum(one["requests"] for one in status["usage"])
    table.close()
    return found


def many_requests(proxy: Proxy, count: int) -> dict[str, Any]:
    """Readings at even steps, and the slopes."""
    request = request_of(proxy.key, prompt_bytes=100)
    each = count // STEPS // CONNECTIONS * CONNECTIONS
    done, readings = [0], [memory(proxy)]
    began = time.monotonic()
    for step in range(STEPS):
        asyncio.run(drive(proxy.port, request, each, CONNECTIONS))
        done.append((step + 1) * each)
        readings.append(memory(proxy))
        print(f"{done[-1]:,} requests, {time.monotonic() - began:.0f} s, {readings[-1]}", file=sys.stderr, flush=True)
    half = len(done) // 2
    slopes = {name: slope(done[half:], [one[name] for one in readings[half:]]) for name in readings[0]}
    return {"requests": done, "rss_bytes": readings, "slope_bytes_per_request": slopes}


async def _hold(proxy: Proxy, count: int) -> dict[str, int]:
    request = request_of(proxy.key, tokens=STREAM_TOKENS, stream=True)
    callers = [await connected(proxy.port, request) for _ in range(count)]
    asked = asyncio.gather(*(caller.ask() for caller in callers))
    await asyncio.sleep(STREAM_TOKENS * STREAM_INTERVAL_S / 2)
    assert all(caller.first_s for caller in callers), "not every stream is open"
    assert not asked.done(), "the streams have ended"
    open_now = memory(proxy)
    await asked
    for caller in callers:
        caller.close()
    return open_now


def many_streams(proxy: Proxy, count: int) -> dict[str, Any]:
    """Memory before, with all streams open, and after; every one of them ends as it should."""
    before = memory(proxy)
    held = asyncio.run(_hold(proxy, count))
    time.sleep(SETTLE_S)
    return {
        "streams": count,
        "before": before,
        "open": held,
        "after": memory(proxy),
        "bytes_per_stream": (held["worker"] - before["worker"]) / count,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--streams", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    uvloop.install()
    raise_open_files(4 * options.streams + 1000)
    before = machine()
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        paced = ("--interval", str(STREAM_INTERVAL_S))
        urls = [stack.enter_context(running("benchmarks.mock_upstream", paced))[0] for _ in range(2)]
        folder = Path(name) / "gateway"
        proxy = stack.enter_context(proxies.setpoint_gateway(folder, urls))
        results = {
            "first": many_streams(proxy, options.streams),
            "requests": many_requests(proxy, options.requests),
            "second": many_streams(proxy, options.streams),
        }
        results["left"] = left_behind(folder, proxies.admin_port(folder))
    for when in ("first", "second"):
        found = results[when]
        print(f"{found['streams']} open streams, {when} time: {found['bytes_per_stream'] / 1024:.1f} KiB each")
    for name, found in results["requests"]["slope_bytes_per_request"].items():
        print(f"{name}: {found['value']:.3f} bytes a request ({found['low']:.3f} to {found['high']:.3f})")
    print(f"left behind: {results['left']}")
    if options.out:
        write(options.out, before, results)


if __name__ == "__main__":
    main()
