"""A client of one target: a pool of connections and the exchanges under way on them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from setpoint.client.address import describe_failure, failure_remedy, parse_base_url, tls_context
from setpoint.client.connection import Connection
from setpoint.client.limits import PhaseTimeouts, PoolLimits
from setpoint.client.pending import Pending, Planned
from setpoint.client.pool import Pool
from setpoint.client.watch import Watch
from setpoint.clock import Clock, MonotonicClock
from setpoint.errors import TargetError, UsageError
from setpoint.protocol.judgement import Answer
from setpoint.protocol.requests import PATHS, headers
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.target import Target


@dataclass(frozen=True, slots=True)
class Response:
    """A buffered response: status, lower-case header fields, body."""

    status: int
    fields: dict[str, str]
    body: bytes


class Client:
    """Sends requests to one target on one event loop.

    Args:
        target: Where to.
        timeouts: Phase limits.
        limits: Pool limits.
        origin_s: Times of exchanges count from here, on ``clock``.
        clock: Monotonic.

    Raises:
        UsageError: the target's URL, authority file or key cannot be used.
    """

    def __init__(
        self,
        target: Target,
        *,
        timeouts: PhaseTimeouts | None = None,
        limits: PoolLimits | None = None,
        origin_s: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self.target = target
        self.timeouts = timeouts or PhaseTimeouts()
        self.limits = limits or PoolLimits()
        self.origin_s = origin_s
        self.clock = clock or MonotonicClock()
        self._address = parse_base_url(target.base_url)
        tls = tls_context(target) if self._address.tls else None
        self._pool = Pool(self._address, tls, self.limits, self.clock)
        self._active: set[Pending] = set()
        self._watch = Watch(self._active)
        self._slots = None if self.limits.max_connections is None else asyncio.Semaphore(self.limits.max_connections)
        fields = headers(target.dialect, target.api_key)
        self._head = self._request_head("POST", PATHS[target.dialect], fields)

    @property
    def in_flight(self) -> int:
        """Exchanges under way."""
        return len(self._active)

    async def exchange(
        self, body: bytes, planned: Planned, *, keep_text: bool = False
    ) -> tuple[Exchange, Answer | None]:
        """One request and its answer; failures are outcomes, never exceptions.

        Args:
            body: JSON of the request.
            planned: The request as scheduled, ``scheduled_s`` on this client's clock.
            keep_text: Also return the answer's text.
        """
        pending = Pending(
            planned,
            self.target.dialect,
            self.timeouts,
            started_s=self.clock.now(),
            keep_text=keep_text,
            loop=asyncio.get_running_loop(),
            now=self.clock.now,
            watch=self._watch,
        )
        self._active.add(pending)
        try:
            if self._slots is None:
                await self._carry(pending, body)
            else:
                await self._carry_in_slot(self._slots, pending, body)
        finally:
            pending.cancel()  # where this task itself was cancelled: the server must not go on
            self._active.discard(pending)
        return pending.exchange(self.origin_s), pending.reader.answer()

    async def _carry_in_slot(self, slots: asyncio.Semaphore, pending: Pending, body: bytes) -> None:
        def release(acquired: asyncio.Future[Any]) -> None:
            if _succeeded(acquired):
                slots.release()

        acquiring: asyncio.Future[Any] = asyncio.ensure_future(slots.acquire())
        if not await _unless_ended(pending, acquiring, release):
            return
        try:
            await self._carry(pending, body)
        finally:
            slots.release()

    async def _carry(self, pending: Pending, body: bytes) -> None:
        request = b"%b%d\r\n\r\n%b" % (self._head, len(body), body)
        fresh = False
        while not pending.settled():
            connection = None if fresh else self._pool.take()
            if connection is None:
                connection = await self._connect_for(pending)
                if connection is None:
                    return
            pending.attach(connection)
            connection.send(request, pending)
            await pending.done
            if pending.stale:
                pending.renew()
                fresh = True
            elif connection.usable:
                self._pool.give_back(connection)

    async def _connect_for(self, pending: Pending) -> Connection | None:
        """A new connection, or None when the exchange failed or was cancelled meanwhile."""
        connecting = asyncio.ensure_future(self._pool.connect())
        if not await _unless_ended(pending, connecting, _discard, self.timeouts.connect_s):
            if not pending.settled():
                pending.fail(Outcome.TIMEOUT, "connect limit passed", within="connect")
            return None
        try:
            return connecting.result()
        except OSError as error:
            pending.fail(Outcome.ERROR, describe_failure(error))
            return None

    def cancel_all(self) -> None:
        """Ends every exchange under way as ``cancelled``; their callers get their rows."""
        for pending in tuple(self._active):
            pending.cancel()

    async def fetch(
        self, method: str, path: str, body: bytes = b"", *, timeout_s: float = 10.0, max_bytes: int = 16 * 2**20
    ) -> Response:
        """One buffered call on a connection of its own (metrics, models, tokenize).

        Args:
            method: HTTP method.
            path: Absolute path below the base URL's prefix.
            body: Request body, JSON.
            timeout_s: Bound on the whole call.
            max_bytes: Bound on the body.

        Raises:
            TargetError: not reachable, too slow, too large or not HTTP; says which.
        """
        sink = _Buffer(max_bytes)
        connection: Connection | None = None
        where = f"{method} {self.target.base_url}{path}"
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._pool.connect()
                fields = headers(self.target.dialect, self.target.api_key) | {"connection": "close"}
                head = self._request_head(method, path, fields)
                connection.send(b"%b%d\r\n\r\n%b" % (head, len(body), body), sink)
                await sink.done
        except TimeoutError:
            raise TargetError(f"{where}: no whole answer within {timeout_s:g} s.") from None
        except OSError as error:
            reason = describe_failure(error)
            raise TargetError(f"{where}: {reason}.", fix=failure_remedy(reason)) from None
        finally:
            if connection is not None:
                connection.abort()
        if sink.fault is not None:
            raise TargetError(f"{where}: {sink.fault}.", fix=failure_remedy(sink.fault))
        return Response(sink.status, sink.fields, b"".join(sink.parts))

    async def close(self) -> None:
        """Closes idle connections and cancels exchanges under way; returns when their sockets are closed."""
        self.cancel_all()
        self._watch.end()
        await self._pool.close()

    def _request_head(self, method: str, path: str, fields: dict[str, str]) -> bytes:
        if not all(value.isascii() and value.isprintable() for value in fields.values()):
            raise UsageError(
                "The key holds a character that an HTTP header cannot carry, such as the end of a line.",
                fix="Set the variable that holds it again, without that character.",
            )
        lines = [f"{method} {self._address.prefix}{path} HTTP/1.1", f"host: {self._address.authority}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join([*lines, "accept: */*", "accept-encoding: identity", "content-length: "]).encode("ascii")


_Result = TypeVar("_Result")


async def _unless_ended(
    pending: Pending,
    work: asyncio.Future[_Result],
    undo: Callable[[asyncio.Future[_Result]], None],
    limit_s: float | None = None,
) -> bool:
    """Waits for work that an exchange needs. False: the exchange ended or the limit passed first, and it is undone."""
    either: list[asyncio.Future[Any]] = [work, pending.done]
    ready = False
    try:
        await asyncio.wait(either, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        ready = work.done() and not pending.settled()
    finally:
        if not ready:
            work.cancel()
            work.add_done_callback(undo)
    return ready


def _succeeded(work: asyncio.Future[Any]) -> bool:
    return not work.cancelled() and work.exception() is None


def _discard(connecting: asyncio.Future[Connection]) -> None:
    """Closes a connection that came too late."""
    if _succeeded(connecting):
        connecting.result().abort()


class _Buffer:
    """A sink that keeps a bounded body."""

    def __init__(self, max_bytes: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.status = 0
        self.fields: dict[str, str] = {}
        self.parts: list[bytes] = []
        self.fault: str | None = None
        self._left = max_bytes

    def on_sent(self, now_s: float) -> None:
        """Nothing to note."""

    def on_head(self, status: int, fields: dict[str, str], now_s: float) -> None:  # noqa: ARG002 - the Sink's shape
        """Keeps status and fields."""
        self.status, self.fields = status, fields

    def on_body(self, data: bytes, now_s: float) -> None:
        """Keeps what fits."""
        self._left -= len(data)
        if self._left >= 0:
            self.parts.append(data)
        else:
            self.on_lost("the body is too large", now_s)

    def on_end(self, now_s: float) -> None:  # noqa: ARG002 - the Sink's shape
        """Whole."""
        if not self.done.done():
            self.done.set_result(None)

    def on_lost(self, reason: str, now_s: float) -> None:
        """Not whole."""
        self.fault = self.fault or reason
        self.on_end(now_s)

    def on_garbled(self, reason: str, now_s: float) -> None:
        """Not HTTP."""
        self.on_lost(reason, now_s)
