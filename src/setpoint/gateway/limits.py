"""What a tenant or a key may use: reserved before dispatch, settled at the end, exact under concurrency.

A minute's allowance is a bucket that refills evenly; a day's is a UTC calendar day. Tokens are reserved at their most
(estimated prompt and the longest answer) and charged at what was used; the difference is free again at once.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from setpoint.gateway.config import Limits as Allowance
from setpoint.gateway.shared import Row, SharedTable

DAY_S = 86_400
_MILLI = 1000  # levels are kept in thousandths, so that refills of a fraction are not lost
# common cells
REQUESTS, REQUESTS_AT, TOKENS, TOKENS_AT, DAY, DAY_USED = range(6)
# worker cells
STREAMS, RESERVED = range(2)


@dataclass(frozen=True, slots=True)
class Holder:
    """Someone with an allowance.

    Attributes:
        name: Unique, e.g. ``tenant:acme`` or ``key:ab12cd34``.
        allowance: What it may use.
    """

    name: str
    allowance: Allowance


@dataclass(frozen=True, slots=True)
class Reservation:
    """Tokens set aside for one exchange.

    Attributes:
        holders: Whose.
        tokens: How many.
        mark: Identifies it where reservations outlive a process.
    """

    holders: tuple[Holder, ...]
    tokens: int
    mark: str = ""


class LimitReached(Exception):  # noqa: N818 - a fact about an allowance
    """An allowance is used up.

    Attributes:
        limit: Name of the limit, e.g. ``tokens_per_minute``.
        retry_after_s: When the same request could be admitted; None: never, it is larger than the allowance.
    """

    def __init__(self, limit: str, retry_after_s: float | None) -> None:
        super().__init__(limit)
        self.limit = limit
        self.retry_after_s = retry_after_s


class LimitStore(Protocol):
    """Where allowances are kept."""

    async def reserve(self, holders: Sequence[Holder], tokens: int) -> Reservation:
        """Sets tokens and a stream aside for all holders, or for none.

        Raises:
            LimitReached: one holder's limit.
        """
        ...

    def settle(self, reservation: Reservation, used: int) -> None:
        """Gives the reservation back and charges what was used. Never fails, never waits."""
        ...

    async def close(self) -> None:
        """Ends, once everything is settled."""
        ...


def per_minute(level: int, limit: int, asked: int) -> float | None:
    """Seconds until ``asked`` fits into a minute's allowance that stands at ``level`` (both in thousandths).

    0: it fits now. None: it is more than the whole allowance.
    """
    if asked > limit * _MILLI:
        return None
    over = level + asked - limit * _MILLI
    return max(0.0, over / (limit * _MILLI / 60))


def drained(level: int, since_us: int, now_us: int, limit: int) -> int:
    """A level after the refill since it was last touched; a mark from before a restart counts as none."""
    if since_us > now_us + 1_000_000:
        return 0
    return max(0, level - max(0, now_us - since_us) * limit * _MILLI // 60_000_000)


class SharedLimits:
    """Allowances in the memory that the workers of one gateway share.

    Args:
        table: The shared memory.
    """

    def __init__(self, table: SharedTable) -> None:
        self._table = table

    async def reserve(self, holders: Sequence[Holder], tokens: int) -> Reservation:
        """See ``LimitStore``."""
        now_us, now_s = time.monotonic_ns() // 1000, time.time()
        rows = [(self._table.row(h.name), h.allowance) for h in holders]
        with self._table.locked():
            for row, allowance in rows:
                _check(row, allowance, tokens, now_us, now_s)
            for row, allowance in rows:
                if allowance.requests_per_minute is not None:
                    row[REQUESTS] += _MILLI
                row.hold(STREAMS, 1)
                row.hold(RESERVED, tokens)
        return Reservation(tuple(holders), tokens)

    def settle(self, reservation: Reservation, used: int) -> None:
        """See ``LimitStore``."""
        now_us = time.monotonic_ns() // 1000
        rows = [(self._table.row(h.name), h.allowance) for h in reservation.holders]
        with self._table.locked():
            for row, allowance in rows:
                row.hold(STREAMS, -1)
                row.hold(RESERVED, -reservation.tokens)
                if allowance.tokens_per_minute is not None:
                    row[TOKENS] = drained(row[TOKENS], row[TOKENS_AT], now_us, allowance.tokens_per_minute)
                    row[TOKENS] += used * _MILLI
                    row[TOKENS_AT] = now_us
                _turn_day(row, time.time())
                row[DAY_USED] += used

    async def close(self) -> None:
        """See ``LimitStore``."""


def _turn_day(row: Row, now_s: float) -> None:
    today = int(now_s // DAY_S)
    if row[DAY] != today:
        row[DAY], row[DAY_USED] = today, 0


def _check(row: Row, allowance: Allowance, tokens: int, now_us: int, now_s: float) -> None:
    """Refills the row's levels and refuses what does not fit."""
    if allowance.streams is not None and row.held(STREAMS) >= allowance.streams:
        raise LimitReached("streams", 1.0)
    if allowance.requests_per_minute is not None:
        limit = allowance.requests_per_minute
        row[REQUESTS] = drained(row[REQUESTS], row[REQUESTS_AT], now_us, limit)
        row[REQUESTS_AT] = now_us
        wait_s = per_minute(row[REQUESTS], limit, _MILLI)
        if wait_s != 0:
            raise LimitReached("requests_per_minute", wait_s)
    if allowance.tokens_per_minute is not None:
        limit = allowance.tokens_per_minute
        row[TOKENS] = drained(row[TOKENS], row[TOKENS_AT], now_us, limit)
        row[TOKENS_AT] = now_us
        wait_s = per_minute(row[TOKENS] + row.held(RESERVED) * _MILLI, limit, tokens * _MILLI)
        if wait_s != 0:
            raise LimitReached("tokens_per_minute", wait_s)
    if allowance.tokens_per_day is not None:
        _turn_day(row, now_s)
        if row[DAY_USED] + row.held(RESERVED) + tokens > allowance.tokens_per_day:
            left_s = DAY_S - now_s % DAY_S
            raise LimitReached("tokens_per_day", None if tokens > allowance.tokens_per_day else left_s)
