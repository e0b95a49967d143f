"""Watch over the replicas: a token through the engine, since ``/health`` has said yes while nothing came."""

import asyncio
import re
import time

from setpoint.client.client import Client
from setpoint.client.limits import PhaseTimeouts
from setpoint.client.pending import Planned
from setpoint.errors import TargetError
from setpoint.gateway.config import DIALECTS, Model
from setpoint.gateway.demand import Demand
from setpoint.gateway.replica import (
    FAILURES,
    HELD_FOR,
    IN_FLIGHT,
    KV_TOKENS,
    LAST_OK_US,
    LOADING,
    OUTSIDE_AT_US,
    OUTSIDE_LOAD,
    UP,
    Replica,
    now_us,
)
from setpoint.protocol.requests import Asked
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect, Target

SOON_S = 1.0  # how often a replica that is not up is asked
LOAD_S = 10.0  # how often an engine's own figures are read; well below replica.STALE_US


class Watch:
    """Sends canaries to the replicas of one model.

    Args:
        model: Its configuration.
        replicas: Its replicas.
        demand: Learns how long a replica was seen loading.
        managed: Names of replicas whose engines this process starts and ends: while those load or are stopped, that
            is known better than a canary could find out, and none is sent.
    """

    def __init__(
        self, model: Model, replicas: list[Replica], demand: Demand, managed: frozenset[str] = frozenset()
    ) -> None:
        self._model = model
        self._replicas = replicas
        self._demand = demand
        self._managed = managed
        self._asked: set[str] = set()  # replicas that a canary is under way at

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for replica in self._replicas:
                if self._model.health.canary:
                    group.create_task(self._watch(replica))
                if replica.config.metrics_url is not None:
                    group.create_task(self._follow_load(replica))

    async def _watch(self, replica: Replica) -> None:
        interval = self._model.health.canary
        while True:
            since_us = now_us() - replica.row[LAST_OK_US]
            if self._silent(replica):
                pass
            elif replica.state != UP or replica.row[FAILURES] or since_us >= interval * 1e6:
                await self.ask(replica)
            await asyncio.sleep(interval if replica.state == UP else min(interval, SOON_S))

    def _silent(self, replica: Replica) -> bool:
        return replica.name in self._managed and replica.state in HELD_FOR

    async def ask(self, replica: Replica) -> None:
        """One canary, and what it means."""
        health, began_us = self._model.health, now_us()
        limit = health.canary_timeout
        dialect = next(
            (DIALECTS[d] for d in self._model.dialects if DIALECTS[d] is not Dialect.RESPONSES), Dialect.CHAT
        )
        target = Target(replica.config.url, dialect, replica.model, replica.api_key, ca_file=replica.config.ca_file)
        client = Client(target, timeouts=PhaseTimeouts(min(limit, 5.0), limit, limit, limit))
        body = Asked(dialect, replica.model, stream=False).body([{"role": "user", "content": "Say one word."}], 1)
        self._asked.add(replica.name)
        try:
            exchange, _ = await client.exchange(body, Planned(0, 0, 0, time.monotonic(), 4, 1, warmup=True))
        finally:
            self._asked.discard(replica.name)
        await client.close()
        if self._silent(replica):
            return  # its engine was ended or started again meanwhile
        if exchange.outcome in (Outcome.COMPLETE, Outcome.LENGTH, Outcome.EMPTY, Outcome.REASONING_EXHAUSTED):
            replica.ready()
            if replica.name not in self._managed:
                self._demand.loaded()
        elif exchange.outcome is Outcome.REJECTED:
            if exchange.status == 503 and not replica.row.held(IN_FLIGHT):
                self._loading(replica)  # nobody uses it and it has no capacity: it is not ready yet
        elif replica.state in (LOADING, 0) and not replica.row[LAST_OK_US] and exchange.status is None:
            self._loading(replica)  # it never answered: an engine that starts does not listen yet
        elif exchange.outcome is Outcome.TIMEOUT and replica.row[LAST_OK_US] >= began_us:
            pass  # it sent tokens to others meanwhile: the canary stands in its queue
        else:
            replica.failed()
            if replica.row[FAILURES] >= health.failures:
                replica.down()

    def _loading(self, replica: Replica) -> None:
        replica.loading()
        if not any(other.available() for other in self._replicas):
            self._demand.loading()

    async def _follow_load(self, replica: Replica) -> None:
        """Reads it whatever canaries do: one that waits for its answer is when the load matters."""
        while True:
            if not self._silent(replica):
                await self._read_load(replica)
            await asyncio.sleep(LOAD_S if replica.state == UP else SOON_S)

    async def _read_load(self, replica: Replica) -> None:
        """What the engine says that it has to do, ours included."""
        assert replica.config.metrics_url is not None
        base, _, path = replica.config.metrics_url.partition("://")[2].partition("/")
        scheme = replica.config.metrics_url.partition("://")[0]
        key = replica.api_key if base == replica.address.authority else None  # nobody else gets it
        client = Client(Target(f"{scheme}://{base}", Dialect.CHAT, "", key, ca_file=replica.config.ca_file))
        try:
            response = await client.fetch("GET", f"/{path}", timeout_s=5.0)
        except TargetError:
            return
        if response.status != 200:
            return
        ours = replica.row.held(IN_FLIGHT) + (replica.name in self._asked)
        replica.row[OUTSIDE_LOAD] = max(0, _requests(response.body) - ours)
        replica.row[OUTSIDE_AT_US] = now_us()
        capacity = cache_tokens(response.body)
        if capacity:
            replica.row[KV_TOKENS] = capacity


_LOAD_SERIES = (
    b"vllm:num_requests_running", b"vllm:num_requests_waiting", b"sglang:num_running_reqs", b"sglang:num_queue_reqs",
    b"trtllm_num_requests_running", b"trtllm_num_requests_waiting", b"llamacpp:requests_processing",
    b"llamacpp:requests_deferred",
)  # fmt: skip


def _requests(exposition: bytes) -> int:
    """Requests running and waiting at an engine."""
    total = 0.0
    for line in exposition.splitlines():
        if line.startswith(_LOAD_SERIES):
            try:
                total += float(line.rpartition(b" ")[2])
            except ValueError:
                continue
    return int(total)


_LABEL = re.compile(rb'(\w+)="([^"]*)"')


def cache_tokens(exposition: bytes) -> int:
    """Tokens that vLLM's prefix cache holds, from ``vllm:cache_config_info``; 0 where the engine does not say."""
    for line in exposition.splitlines():
        if line.startswith(b"vllm:cache_config_info{"):
            labels = dict(_LABEL.findall(line))
            block, blocks = labels.get(b"block_size", b""), labels.get(b"num_gpu_blocks", b"")
            return int(block) * int(blocks) if block.isdigit() and blocks.isdigit() else 0
    return 0
