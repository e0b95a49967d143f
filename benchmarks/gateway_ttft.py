"""What the gateway adds to the time to first token of one stream.

    python -m benchmarks.gateway_ttft [--requests 2000] [--awake] [--out FILE]

One stream at a time, its first token one interval after the request; each request goes once straight to the mock
upstream and once through the gateway, the two in turn. Added time: the difference of such a pair. The direct requests'
own spread stands beside it: it is what the machine adds.

A virtual core that halts is given back to its host, and comes back milliseconds late. With ``--awake`` none halts, as
with ``idle=poll`` (needs the right to write ``/dev/cpu_dma_latency``).
"""

import argparse
import asyncio
import contextlib
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


async def pairs(direct: int, port: int, key: str, count: int) -> tuple[list[float], list[float]]:
    """Times to first token straight and through the gateway."""
    request = request_of(key, tokens=TOKENS, stream=True)
    straight, through = await connected(direct, request), await connected(port, request)
    for _ in range(WARM_UP + count):
        await straight.ask()
        await through.ask()
    straight.close()
    through.close()
    return straight.first_s[WARM_UP:], through.first_s[WARM_UP:]


def _cell(interval: list[float | None]) -> str:
    low, value, high = ("too few" if v is None else f"{v * 1e3:.3f}" for v in interval)
    return f"{value} ({low}-{high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=3)
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
        url = stack.enter_context(running("benchmarks.mock_upstream", paced))[0]
        proxy = stack.enter_context(proxies.setpoint_gateway(Path(name) / "gateway", [url]))
        for _ in range(options.repeats):
            direct = int(url.rpartition(":")[2])
            straight, through = map(np.asarray, asyncio.run(pairs(direct, proxy.port, proxy.key, options.requests)))
            rows = {"direct": straight, "gateway": through, "added": through - straight}
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
    print_table(["repeat", "ms", "p50", "p90", "p99"], table)
    if options.out:
        write(options.out, before, {"requests": options.requests, "awake": options.awake, "seconds": found})


if __name__ == "__main__":
    main()
