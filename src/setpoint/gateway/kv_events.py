"""Follows one engine's KV cache events (vLLM, ``--kv-events-config`` with the ZMQ publisher).

Events come over PUB/SUB, which may lose some, each batch with a number that counts from 0. A gap is asked for at the
engine's replay address; where that no longer has it, what was known is forgotten: a removal may be among the lost. The
engine behind a new connection may be another one: everything is then asked for anew.

Run against vLLM on a CPU (tests/fleet/test_vllm.py), not on a GPU.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from setpoint.errors import UsageError
from setpoint.gateway.config import KvEvents as Source
from setpoint.gateway.kv_index import EventError, KvIndex

if TYPE_CHECKING:
    from zmq.asyncio import Socket

REPLAY_S = 5.0
HEARTBEAT_MS = 2_000
_END = b"\xff" * 8
_log = logging.getLogger(__name__)


class KvEvents:
    """The events of one replica, in one worker process.

    Args:
        name: Of the replica, for messages.
        source: Where its events are.

    Attributes:
        index: What its cache holds.
        fault: Why its events are not used; None while they are.
        losses: Gaps that could not be filled.

    Raises:
        UsageError: pyzmq is not installed.
    """

    def __init__(self, name: str, source: Source) -> None:
        try:
            import zmq  # noqa: PLC0415 - an optional dependency
            import zmq.asyncio  # noqa: PLC0415 - likewise
        except ImportError:
            raise UsageError("kv_events needs pyzmq.", fix="Install setpoint[gateway].") from None
        self.index = KvIndex()
        self.fault: str | None = None
        self.losses = 0
        self._name = name
        self._source = source
        self._zmq = zmq
        self._context = zmq.asyncio.Context()
        self._connected = False
        self._next: int | None = None

    @property
    def live(self) -> bool:
        """Whether what the index says is the engine's state now, but for what is on its way."""
        return self._connected and self._next is not None and self.fault is None

    def cached_tokens(self, tokens: bytes, salt: str | None) -> int | None:
        """See ``KvIndex.cached_tokens``; None also while the events are not followed."""
        return self.index.cached_tokens(tokens, salt) if self.live else None

    async def run(self) -> None:
        """Until cancelled."""
        zmq = self._zmq
        sub = self._context.socket(zmq.SUB)
        try:
            sub.set(zmq.LINGER, 0)
            sub.set(zmq.RCVHWM, 100_000)
            sub.set(zmq.RECONNECT_IVL, 100)
            sub.set(zmq.RECONNECT_IVL_MAX, 2_000)
            sub.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)  # an engine that froze or lost its network has ended, too
            sub.set(zmq.HEARTBEAT_TIMEOUT, 3 * HEARTBEAT_MS)
            sub.set(zmq.SUBSCRIBE, self._source.topic.encode())
            monitor = sub.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
            sub.connect(self._source.endpoint)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._watch(monitor))
                group.create_task(self._follow(sub))
        finally:
            sub.disable_monitor()
            self._context.destroy(linger=0)

    async def _watch(self, monitor: "Socket") -> None:
        from zmq.utils.monitor import recv_monitor_message  # noqa: PLC0415 - see above

        while True:
            message = await recv_monitor_message(monitor)
            self._connected = message["event"] == self._zmq.EVENT_HANDSHAKE_SUCCEEDED
            self._next = None

    async def _follow(self, sub: "Socket") -> None:
        while True:
            frames: list[bytes] = await sub.recv_multipart()
            if len(frames) != 3 or len(frames[1]) != 8:
                self._failed("it sends messages of another kind")
                continue
            if self.fault is not None and self._next is not None:
                continue  # until it connects anew: it may be another version then
            number = int.from_bytes(frames[1], "big")
            with self._checked():
                await self._take(number, frames[2])

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except EventError as error:
            self._failed(error.message)

    def _failed(self, why: str) -> None:
        """What was known is of no use: a removal may be what was not understood."""
        self.index.clear(complete=False)
        self._next = self._next or 0
        if self.fault is None:
            self.fault = why
            _log.error("the KV cache events of %s are not used: %s", self._name, why)

    async def _take(self, number: int, payload: bytes) -> None:
        if self._next is None or number < self._next:  # the first of a connection, or of an engine that began again
            self.index.clear(complete=True)
            self.fault = None
            await self._fill(0, number)
        elif number > self._next:
            await self._fill(self._next, number)
        self.index.apply(payload)
        self._next = number + 1

    async def _fill(self, first: int, before: int) -> None:
        """Takes the batches of a gap, or forgets what was known."""
        missed = await self._replayed(first, before) if before > first else []
        if [number for number, _ in missed] != list(range(first, before)):
            self.losses += 1
            self.index.clear(complete=False)
        for _, payload in missed:
            self.index.apply(payload)

    async def _replayed(self, first: int, before: int) -> list[tuple[int, bytes]]:
        """What the engine still has of its batches from ``first`` until ``before``, in order."""
        if self._source.replay is None:
            return []
        found: list[tuple[int, bytes]] = []
        dealer = self._context.socket(self._zmq.DEALER)
        try:
            dealer.set(self._zmq.LINGER, 0)
            dealer.connect(self._source.replay)
            async with asyncio.timeout(REPLAY_S):
                await dealer.send_multipart([b"", first.to_bytes(8, "big")])
                while (frames := await dealer.recv_multipart())[-2] != _END:
                    number = int.from_bytes(frames[-2], "big")
                    if first <= number < before:
                        found.append((number, frames[-1]))
        except (TimeoutError, self._zmq.ZMQError, IndexError):
            return []  # a part without its end may lack anything
        finally:
            dealer.close()
        return found
