"""The data plane of one worker process: its connections, its requests, and the clock that ends the slow ones."""

import asyncio
import os
import time
from pathlib import Path

from setpoint.gateway.config import Gateway
from setpoint.gateway.downstream import ServerConnection
from setpoint.gateway.exchange import Exchange
from setpoint.gateway.flow import Flow
from setpoint.gateway.idempotency import IdempotencyKeys, IdempotencyStore
from setpoint.gateway.identity import TokenVerifier, cache_salt, keyed_mark, secret_of
from setpoint.gateway.incoming import Request
from setpoint.gateway.journal import Ended, Journal
from setpoint.gateway.keys import KeyStore
from setpoint.gateway.kv_events import KvEvents
from setpoint.gateway.limits import LimitStore
from setpoint.gateway.redis_keys import RedisKeys
from setpoint.gateway.shared import SharedTable
from setpoint.gateway.snapshot import Snapshot, take_snapshot

SWEEP_S = 0.1
LAG_FADES = 0.995  # a sweep: half of a stall is still to be seen after 14 s, about the time between two scrapes
# cells of a worker's row
LAG_US, CONNECTIONS, EXCHANGES, QUEUE_INTERACTIVE, QUEUE_BATCH, BUFFERED, REFUSED = range(7)


class Plane:
    """Implements ``downstream.Host``.

    Args:
        config: What to serve.
        table: Shared memory.
        folder: Of mapped files and journals.
        limits: Allowances.
        tokens: For bearer tokens.
    """

    def __init__(
        self, config: Gateway, table: SharedTable, folder: Path, limits: LimitStore, tokens: TokenVerifier | None
    ) -> None:
        state = Path(config.state)
        self.secret = secret_of(state)
        self.limits = limits
        self.idempotency: IdempotencyStore
        if config.redis is None:
            self._common = self.secret
            self.idempotency = IdempotencyKeys(folder / "idempotency", table, self.secret)
        else:  # gateways that share Redis must come to the same hashes, and share engines with their caches
            self._common = os.environ[config.redis.secret_env].encode()
            self.idempotency = RedisKeys(config.redis, self._common)
        self.connections: set[ServerConnection] = set()
        self.exchanges: set[Exchange] = set()
        self.buffered = 0
        self.draining = self._hurried = False
        self._salts: dict[str, str] = {}
        self._table = table
        self._folder = folder
        self._keys = KeyStore(state)
        self._row = table.row(f"worker:{table.worker}")
        self.journal = Journal(folder / "journal", table.worker)
        self.snapshot = self._snapshot(config, tokens)
        self.http = config.http
        self._sweeper: asyncio.Task[None] | None = None
        self._followers: list[asyncio.Task[None]] = []

    def _snapshot(self, config: Gateway, tokens: TokenVerifier | None) -> Snapshot:
        return take_snapshot(
            config, table=self._table, folder=self._folder, keys=self._keys, tokens=tokens, gauge=self._waiting
        )

    def _waiting(self, rank: int, change: int) -> None:
        self._row[QUEUE_BATCH if rank else QUEUE_INTERACTIVE] += change

    def reload(self, config: Gateway, tokens: TokenVerifier | None) -> None:
        """Puts a configuration in force; requests under way end by the old one."""
        old, self.snapshot = self.snapshot, self._snapshot(config, tokens)
        self.http = config.http
        old.close()
        self._follow()

    def _follow(self) -> None:
        """Follows the KV cache events of the replicas that tell theirs."""
        for follower in self._followers:
            follower.cancel()
        self._followers.clear()
        for route in self.snapshot.routes.values():
            for replica in route.gate.replicas:
                if replica.config.kv_events is not None:
                    replica.events = KvEvents(replica.name, replica.config.kv_events)
                    self._followers.append(asyncio.get_running_loop().create_task(replica.events.run()))

    def salt(self, tenant: str) -> str:
        """The cache salt of a tenant."""
        known = self._salts.get(tenant)
        if known is None:
            if len(self._salts) > 10_000:
                self._salts.clear()
            known = self._salts[tenant] = cache_salt(self._common, tenant)
        return known

    def mark(self, text: str) -> str:
        """See ``keyed_mark``."""
        return keyed_mark(self.secret, text)

    # downstream.Host

    def full(self) -> bool:
        """Whether no further connection is taken."""
        return len(self.connections) >= self.snapshot.config.listen.max_connections

    def start(self, connection: ServerConnection, request: Request) -> Flow:
        """Serves a request; what needs no waiting is done at once."""
        exchange = Exchange(self, connection, request)
        self.exchanges.add(exchange)
        flow = Flow(exchange.run(), exchange.ended)
        flow.start()
        return flow

    def refused(self, code: str) -> None:
        """A request that never became one; counted, and written, since an attack may begin so."""
        self._row[REFUSED] += 1
        now = time.time()
        self.journal.write(
            Ended(
                id="",
                time=now,
                tenant="",
                status=400,
                sent_status=400,
                outcome="refused",
                reason=code,
                prompt_tokens=0,
                completion_tokens=0,
                latency_s=0.0,
            )
        )

    # the clock

    def begin(self) -> None:
        """Starts the clock that ends what is too slow."""
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        self._follow()

    async def _sweep(self) -> None:
        while True:
            due = time.monotonic() + SWEEP_S
            await asyncio.sleep(SWEEP_S)
            now = time.monotonic()
            self._row[LAG_US] = max(int(max(0.0, now - due) * 1e6), int(self._row[LAG_US] * LAG_FADES))
            self._row[CONNECTIONS], self._row[EXCHANGES] = len(self.connections), len(self.exchanges)
            self._row[BUFFERED] = self.buffered
            for connection in tuple(self.connections):
                connection.check(now)
            for exchange in tuple(self.exchanges):
                exchange.prefilled()
                exchange.check(now)

    def hurry(self) -> None:
        """A drain, under way or to come, waits for no request."""
        self._hurried = True

    async def drain(self, seconds: float) -> None:
        """Lets requests under way end, up to a limit; then ends them."""
        self.draining = True
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._hurried:
            for connection in tuple(self.connections):
                if connection.idle:
                    connection.close()
            if not self.exchanges:
                break
            await asyncio.sleep(SWEEP_S / 2)
        for route in self.snapshot.routes.values():
            route.gate.refuse_all()
        for exchange in tuple(self.exchanges):
            if exchange.relay is not None:
                exchange.relay.end_now(time.monotonic())
        await asyncio.sleep(SWEEP_S)
        for connection in tuple(self.connections):
            connection.abort()
        for _ in range(100):  # what they hold and owe is settled before the journal ends
            if not self.exchanges:
                break
            await asyncio.sleep(SWEEP_S / 10)
        if self._sweeper is not None:
            self._sweeper.cancel()
        for follower in self._followers:
            follower.cancel()
        await asyncio.gather(*self._followers, return_exceptions=True)
        self.snapshot.close()
        await self.limits.close()
        await self.idempotency.close()
        self.journal.close()
