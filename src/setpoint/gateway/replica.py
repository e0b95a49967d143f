"""One engine as a worker process sees it: what is under way there, whether it answers, what its cache holds."""

import asyncio
import os
import time
from hashlib import blake2b
from pathlib import Path

from setpoint.client.address import parse_base_url, tls_context
from setpoint.client.connection import Connection
from setpoint.client.limits import PoolLimits
from setpoint.client.pool import Pool
from setpoint.clock import MonotonicClock
from setpoint.gateway import trace_context
from setpoint.gateway.config import Health
from setpoint.gateway.config import Replica as ReplicaConfig
from setpoint.gateway.kv_events import KvEvents
from setpoint.gateway.policies.policy import Candidate
from setpoint.gateway.prefix import BLOCK_TOKENS, PrefixIndex
from setpoint.gateway.shared import COMMON_CELLS, SharedTable
from setpoint.records.target import Dialect, Target

# common cells
STATE, EJECTED_UNTIL_US, FAILURES, LAST_OK_US, EJECTIONS, OUTSIDE_LOAD, OUTSIDE_AT_US, KV_TOKENS = range(8)
# worker cells
IN_FLIGHT, QUEUED_TOKENS = range(2)
# states; a replica that was never asked may answer
UNKNOWN, UP, LOADING, DOWN, STOPPED = range(5)
STATE_NAMES = ("unknown", "up", "loading", "down", "stopped")
_AWAY = (LOADING, DOWN, STOPPED)
HELD_FOR = (LOADING, STOPPED)  # requests wait for a replica that loads, or that their coming starts

KEPT = PoolLimits(max_idle=512, idle_s=60.0)  # a request on one that the engine closed meanwhile is sent anew
STALE_US = 30_000_000  # the engine's own load was last seen
_PASSED_ON = ("anthropic-version", "anthropic-beta", "idempotency-key")
_ALL_PASSED = trace_context.FIELDS.union(_PASSED_ON)


def now_us() -> int:
    """Microseconds on the clock that all workers share."""
    return time.monotonic_ns() // 1000


class Replica:
    """A replica of a model.

    Args:
        model: The model's name in the gateway.
        config: Where it is.
        health: When it counts as failed.
        table: Shared memory.
        folder: Where the prefix index is mapped.
    """

    def __init__(self, model: str, config: ReplicaConfig, health: Health, table: SharedTable, folder: Path) -> None:
        self.config = config
        self.address = parse_base_url(config.url)
        self.name = config.name or self.address.authority
        self._max_in_flight = config.max_in_flight  # read with every request, and a model's fields are slow to read
        self._weight = config.weight
        self._watched = config.metrics_url is not None
        self.model = config.model or model
        self._health = health
        self._table = table
        self.row = table.row(f"replica:{model}:{self.name}")
        mark = blake2b(f"{model}\0{self.name}".encode(), digest_size=8).hexdigest()
        self._kv_tokens = 0
        self.index = PrefixIndex(folder / f"prefix-{mark}", config.kv_tokens)
        self.api_key = os.environ.get(config.api_key_env) if config.api_key_env else None
        target = Target(config.url, Dialect.CHAT, self.model, ca_file=config.ca_file)
        self.events: KvEvents | None = None
        self.pool = Pool(self.address, tls_context(target) if self.address.tls else None, KEPT, MonotonicClock())
        credentials = (
            "" if self.api_key is None else f"authorization: Bearer {self.api_key}\r\nx-api-key: {self.api_key}\r\n"
        )
        self._heads: dict[str, bytes] = {}  # by path
        self._own_fields = (
            f"host: {self.address.authority}\r\ncontent-type: application/json\r\n"
            f"accept: application/json, text/event-stream\r\n{credentials}"
        )

    # load

    @property
    def in_flight(self) -> int:
        """Requests dispatched by all workers and not ended."""
        return self.row.held(IN_FLIGHT)

    @property
    def queued_tokens(self) -> int:
        """Uncached prompt tokens before their first token, dispatched by all workers."""
        return self.row.held(QUEUED_TOKENS)

    def candidate(self, hashes: list[int], tokens: bytes | None, salt: str | None, at_us: int) -> Candidate | None:
        """What a policy is told of it for a prompt (see ``cached_tokens``); None where it cannot take one now."""
        cells = self.row.levels()
        if cells[STATE] in _AWAY or cells[EJECTED_UNTIL_US] > at_us:
            return None
        in_flight = cells[COMMON_CELLS + IN_FLIGHT]
        if in_flight >= self._max_in_flight or (in_flight and cells[EJECTIONS]):
            return None
        stale = self._watched and at_us - cells[OUTSIDE_AT_US] > STALE_US
        cached = self.cached_tokens(hashes, tokens, salt) if hashes or tokens is not None else 0
        load, queued = in_flight + cells[OUTSIDE_LOAD], cells[COMMON_CELLS + QUEUED_TOKENS]
        return Candidate(self.name, load, queued, cached, self._weight, stale)

    def take(self, uncached_tokens: int) -> bool:
        """Counts one more request, exactly: False when the replica is full."""
        with self._table.locked():
            if self.row.held(IN_FLIGHT) >= self._max_in_flight:
                return False
            self.row.hold(IN_FLIGHT, 1)
        self.row.hold(QUEUED_TOKENS, uncached_tokens)
        return True

    def prefilled(self, uncached_tokens: int) -> None:
        """The prompt is computed: it no longer stands in the way of others."""
        self.row.hold(QUEUED_TOKENS, -uncached_tokens)

    def give(self) -> None:
        """One request less."""
        self.row.hold(IN_FLIGHT, -1)

    def cached_tokens(self, hashes: list[int], tokens: bytes | None = None, salt: str | None = None) -> int:
        """Tokens of a prompt that its cache holds, as far as its events tell; else those that it is believed to hold.

        Args:
            hashes: The prompt's block chain.
            tokens: Its token ids, where they are known.
            salt: Cache salt that goes with it.
        """
        known = self.events.cached_tokens(tokens, salt) if tokens is not None and self.events is not None else None
        if known is not None and self.events is not None and self.events.index.complete:
            return known
        return max(known or 0, self._believed_tokens(hashes))

    def _believed_tokens(self, hashes: list[int]) -> int:
        reported = self.row[KV_TOKENS]
        if reported != self._kv_tokens:
            self._kv_tokens = reported
            self.index.limit(reported)
        return self.index.cached_blocks(hashes) * BLOCK_TOKENS

    # health

    @property
    def state(self) -> int:
        """As last seen by anybody."""
        return self.row[STATE]

    @property
    def ejected_for_s(self) -> float:
        """Seconds until it is tried again; 0 when it is not ejected."""
        return max(0.0, (self.row[EJECTED_UNTIL_US] - now_us()) / 1e6)

    def available(self) -> bool:
        """Whether a request may be sent: not down, not ejected, and after an ejection one at a time until one works."""
        if self.row[STATE] in _AWAY or self.row[EJECTED_UNTIL_US] > now_us():
            return False
        return not self.row[EJECTIONS] or self.in_flight == 0

    def ready(self) -> None:
        """It answers: whoever watches it, or started it, has seen so."""
        self.row[STATE] = UP
        self.succeeded()

    def spoke(self) -> None:
        """It sends tokens: alive, however long its answers take."""
        self.row[LAST_OK_US] = now_us()

    def succeeded(self) -> None:
        """It answered a request; one that was under way when its engine was stopped does not bring it back."""
        row = self.row
        cells = row.common()
        row[LAST_OK_US] = now_us()
        if cells[FAILURES] or cells[EJECTIONS] or cells[EJECTED_UNTIL_US]:
            row[FAILURES] = row[EJECTIONS] = row[EJECTED_UNTIL_US] = 0
        if cells[STATE] != UP and cells[STATE] not in HELD_FOR:
            row[STATE] = UP

    def failed(self) -> None:
        """It did not answer as an engine should; enough of that in a row, and it gets no requests for a while."""
        self.row[FAILURES] += 1
        if self.row[FAILURES] >= self._health.failures:
            times = self.row[EJECTIONS] = min(self.row[EJECTIONS] + 1, 10)
            factor = min(2 ** (times - 1), 10)
            self.row[EJECTED_UNTIL_US] = now_us() + int(self._health.cooldown * factor * 1e6)

    def loading(self) -> None:
        """It says that it is not ready yet."""
        self._lost_cache()
        self.row[STATE] = LOADING

    def stopped(self) -> None:
        """Its engine was ended until somebody asks for the model."""
        self._lost_cache()
        self.row[STATE] = STOPPED

    def down(self) -> None:
        """It does not answer the canary, or its engine has died."""
        self._lost_cache()
        self.row[STATE] = DOWN

    def _lost_cache(self) -> None:
        if self.row[STATE] not in _AWAY:
            self.index.clear()

    # requests

    async def connect(self, limit_s: float) -> Connection:
        """A new connection.

        Raises:
            OSError: there is none.
            TimeoutError: nor was there one in time.
        """
        async with asyncio.timeout(limit_s):
            return await self.pool.connect()

    def request(self, path: str, body: bytes, exchange: str, fields: dict[str, str], *, spans: bool) -> bytes:
        """The bytes of a request. Of the client's fields only those pass that tell nothing about who it is.

        Args:
            path: At the engine.
            body: The document.
            exchange: Id of the exchange.
            fields: The client's header fields.
            spans: Whether the exchange becomes a span, which the engine's own then stands below.
        """
        passed = b""
        if spans or not _ALL_PASSED.isdisjoint(fields):
            texts = [f"{name}: {fields[name]}\r\n" for name in _PASSED_ON if name in fields]
            texts.append(trace_context.passed_on(fields, exchange if spans else None))
            passed = "".join(texts).encode("latin-1")
        own = self._heads.get(path)
        if own is None:
            own = f"POST {self.address.prefix}{path} HTTP/1.1\r\n{self._own_fields}".encode("latin-1")
            self._heads[path] = own
        last = f"x-request-id: {exchange}\r\ncontent-length: {len(body)}\r\n\r\n"
        return b"".join((own, passed, last.encode(), body))
