"""The client certificate: what a run says about its own load generator (law 5).

Before a run the client measures its floor: what a request and a token cost it, and how soon it sees the first token,
against a server that answers at once. During the run it measures the lag of every send, its CPU share and how late its
event loop comes round. When any of these could have made a fast server look slow, the run is undecided.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import uvloop

from setpoint.client.client import Client
from setpoint.client.pending import Planned
from setpoint.protocol.requests import Asked
from setpoint.records.target import Dialect, Target
from setpoint.testing.serve import running

FLOOR_REQUESTS = 240
FLOOR_TOKENS = 16
FLOOR_STREAMS = 4

# Each limit is where the client's own share of a measured latency stops being negligible.
LAG_SHARE = 0.05  # of the tightest latency limit of the card
LAG_LEAST_S = 0.010  # below this no card's limit is sensitive to it
CPU_SHARE = 0.80  # of one core: above, sends queue behind parsing (M/D/1 at 0.8 waits twice its service time)
FLOOR_SHARE = 0.10  # of the tightest latency limit
DELIVERED = 0.99  # of planned sends must have been made, each within the lag limit


@dataclass(frozen=True, slots=True)
class Floor:
    """The client against a null server on this machine, measured just before the run.

    Attributes:
        requests: Exchanges measured.
        cpu_s_per_request: CPU seconds an exchange costs, its tokens apart.
        cpu_s_per_token: CPU seconds a streamed token costs when it comes in a read of its own.
        ttft_p50_s: Time to first token.
        ttft_p99_s: Likewise.
    """

    requests: int
    cpu_s_per_request: float
    cpu_s_per_token: float
    ttft_p50_s: float
    ttft_p99_s: float


@dataclass(frozen=True, slots=True)
class Certificate:
    """What the client found out about itself.

    Attributes:
        floor: Its floor; None when it was not measured.
        workers: Client processes.
        lag_p50_s: Lag of sends: begun minus scheduled.
        lag_p99_s: Likewise.
        lag_max_s: Likewise.
        cpu_share: CPU seconds per second of the busiest worker.
        stall_max_s: Longest time an event loop did not turn.
        delivered: Share of planned sends that were made on time.
        limit_s: Lag and floor are judged against this latency limit, the tightest of the card.
        reasons: Why the client may have been the bottleneck; empty when it was not.
    """

    floor: Floor | None
    workers: int
    lag_p50_s: float | None
    lag_p99_s: float | None
    lag_max_s: float | None
    cpu_share: float
    stall_max_s: float
    delivered: float | None
    limit_s: float | None
    reasons: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether the client is above suspicion."""
        return not self.reasons

    def record(self) -> dict[str, object]:
        """As ``run.json`` keeps it."""
        return asdict(self) | {"reasons": list(self.reasons), "good": self.good}


def certify(
    floor: Floor | None,
    lags_s: Sequence[float],
    *,
    workers: int,
    cpu_share: float,
    stall_max_s: float,
    planned: int | None,
    limit_s: float | None,
) -> Certificate:
    """Judges the client of one run.

    Args:
        floor: Its floor.
        lags_s: Lag of each measured send, seconds.
        workers: Client processes.
        cpu_share: Of the busiest worker.
        stall_max_s: Longest stall of an event loop.
        planned: Sends planned by the schedule; None in closed loop, where the client paces itself.
        limit_s: The tightest latency limit of the card.
    """
    lag_limit = max(LAG_LEAST_S, LAG_SHARE * limit_s) if limit_s is not None else 0.050
    p50, p99, worst = np.quantile(lags_s, (0.5, 0.99, 1.0)) if len(lags_s) else (None, None, None)
    delivered = None
    reasons = []
    if planned:
        delivered = float(np.count_nonzero(np.asarray(lags_s) <= lag_limit)) / planned
    if p99 is not None and p99 > lag_limit:
        reasons.append(f"sends were late: p99 lag {p99 * 1e3:.1f} ms, allowed {lag_limit * 1e3:.1f} ms")
    elif delivered is not None and delivered < DELIVERED:
        reasons.append(f"only {delivered:.1%} of the planned sends were made on time")
    if cpu_share > CPU_SHARE:
        reasons.append(f"a client process used {cpu_share:.0%} of a core, allowed {CPU_SHARE:.0%}")
    if floor is not None and limit_s is not None and floor.ttft_p99_s > FLOOR_SHARE * limit_s:
        reasons.append(
            f"the client alone needs {floor.ttft_p99_s * 1e3:.1f} ms to a first token, "
            f"more than {FLOOR_SHARE:.0%} of the tightest limit"
        )
    return Certificate(
        floor=floor,
        workers=workers,
        lag_p50_s=None if p50 is None else float(p50),
        lag_p99_s=None if p99 is None else float(p99),
        lag_max_s=None if worst is None else float(worst),
        cpu_share=cpu_share,
        stall_max_s=stall_max_s,
        delivered=delivered,
        limit_s=limit_s,
        reasons=tuple(reasons),
    )


def workers_needed(floor: Floor, requests_per_s: float, tokens_per_s: float, cores: int) -> int:
    """Client processes that keep each below half a core, at least one, at most one a core."""
    share = requests_per_s * floor.cpu_s_per_request + tokens_per_s * floor.cpu_s_per_token
    return int(np.clip(np.ceil(share / 0.5), 1, max(cores, 1)))


_measured: list[tuple[float, Floor]] = []


def measure_floor(max_age_s: float = 60.0) -> Floor:
    """The client's floor, measured now or at most ``max_age_s`` ago in this process."""
    if _measured and time.monotonic() - _measured[-1][0] < max_age_s:
        return _measured[-1][1]
    with running("setpoint.testing.null_server", ("--tokens", str(FLOOR_TOKENS))) as (url, _):
        burst_s, ttfts = uvloop.run(_burst(url, FLOOR_REQUESTS, FLOOR_STREAMS))
    with running("setpoint.testing.null_server", ("--tokens", str(FLOOR_TOKENS), "--interval", "0.005")) as (url, _):
        paced_s, _ = uvloop.run(_burst(url, FLOOR_STREAMS * 4, FLOOR_STREAMS))
    per_request = burst_s
    per_token = max(paced_s - burst_s, 0.0) / FLOOR_TOKENS
    p50, p99 = np.quantile(ttfts, (0.5, 0.99))
    floor = Floor(FLOOR_REQUESTS, per_request, per_token, float(p50), float(p99))
    _measured[:] = [(time.monotonic(), floor)]
    return floor


async def _burst(url: str, requests: int, streams: int) -> tuple[float, list[float]]:
    """CPU seconds a request, and times to first token, over ``requests`` exchanges on ``streams`` connections."""
    client = Client(Target(url, Dialect.CHAT, "null"))
    body = Asked(Dialect.CHAT, "null").body([{"role": "user", "content": "word " * 64}], FLOOR_TOKENS)
    ttfts: list[float] = []

    async def user(count: int) -> None:
        for index in range(count):
            row, _ = await client.exchange(body, Planned(index, 0, 0, client.clock.now(), 64, FLOOR_TOKENS))
            if row.first_visible_s is not None:
                ttfts.append(row.first_visible_s - row.scheduled_s)

    await user(4)  # connections and caches
    ttfts.clear()
    cpu_s = time.process_time()
    await asyncio.gather(*(user(requests // streams) for _ in range(streams)))
    cpu_s = time.process_time() - cpu_s
    await client.close()
    return cpu_s / requests, ttfts
