"""What the client adds to the latencies that it reports, at 1, 32 and 256 streams.

The paced null server writes into each token the time at which it wrote it, on the clock that the client reads too.

    TTFT error   arrival of the first token by the client's record, less the time at which the server wrote it
    send lag     last request byte handed to the kernel, less the time for which the send was scheduled
    ITL error    gap between two chunks by the client's record, less the gap between their writes; absolute value

The network is loopback, so the errors hold the kernel's delivery and the wait for a CPU as well as the client.
"""

import argparse
import asyncio
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop
from benchmarks.machine import machine, print_table, shown, spread, take_priority, write

from setpoint.client.client import Client
from setpoint.client.pending import Planned
from setpoint.protocol.requests import Asked
from setpoint.records.target import Dialect, Target
from setpoint.testing.serve import running

QUANTILES = (0.5, 0.99)
MEASURES = ("ttft_error_s", "send_lag_s", "itl_error_s")


@dataclass(frozen=True, slots=True)
class Level:
    """So many streams at once, each with so many requests in a row."""

    streams: int
    requests: int
    tokens: int
    interval_s: float


LEVELS = (Level(1, 600, 4, 0.01), Level(32, 40, 16, 0.02), Level(256, 8, 32, 0.02))


async def measure(url: str, level: Level) -> dict[str, list[float]]:
    """Errors of every exchange after the first of each stream, which opens its connection."""
    client = Client(Target(url, Dialect.CHAT, "null"))
    body = Asked(Dialect.CHAT, "null").body([{"role": "user", "content": "word " * 64}], level.tokens)
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    pause = random.Random(level.streams)

    async def user() -> None:
        for index in range(level.requests + 1):
            due_s = client.clock.now() + pause.uniform(0.001, level.interval_s)
            await asyncio.sleep(due_s - client.clock.now())
            row, answer = await client.exchange(body, Planned(index, 0, 0, due_s, 64, level.tokens), keep_text=True)
            assert row.outcome.answered
            assert answer is not None
            assert row.sent_s is not None
            if index:
                written = np.array([float(word) for word in answer.text.split()])
                arrived = np.array(row.chunk_s)
                found["ttft_error_s"].append(float(arrived[0] - written[0]))
                found["send_lag_s"].append(row.sent_s - due_s)
                found["itl_error_s"].extend(np.abs(np.diff(arrived) - np.diff(written)).tolist())

    await asyncio.gather(*(user() for _ in range(level.streams)))
    await client.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--real-time",
        action="store_true",
        help="run client and server under SCHED_FIFO: what an idle core shows, on a machine that others use too",
    )
    options = parser.parse_args()
    if options.real_time:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    else:
        take_priority()
    before = machine()
    levels: list[dict[str, Any]] = []
    for level in LEVELS:
        repeats = []
        pace = ("--tokens", str(level.tokens), "--interval", str(level.interval_s))
        with running("setpoint.testing.null_server", pace) as (url, _):
            for _ in range(options.repeats):
                found = uvloop.run(measure(url, level))
                repeats.append({name: [float(q) for q in np.quantile(v, QUANTILES)] for name, v in found.items()})
        across = {
            name: {f"p{q * 100:g}": spread([r[name][i] for r in repeats]) for i, q in enumerate(QUANTILES)}
            for name in MEASURES
        }
        levels.append({"streams": level.streams, "requests": level.streams * level.requests} | across)
    print_table(
        ("streams", "requests", *(f"{n.removesuffix('_s')} {p}, µs" for n in MEASURES for p in ("p50", "p99"))),
        [
            (
                str(entry["streams"]),
                str(entry["requests"]),
                *(shown(entry[n][p], 1e6, 0) for n in MEASURES for p in ("p50", "p99")),
            )
            for entry in levels
        ],
    )
    write(options.out, before, {"repeats": options.repeats, "real_time": options.real_time, "levels": levels})


if __name__ == "__main__":
    main()
