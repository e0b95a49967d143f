"""What a tenant or a key may use: reserved before dispatch, settled at the end, exact under concurrency.

A minute's allowance is a bucket that refills evenly; a day's is a UTC calendar day. Tokens are reserved at their most
(estimated prompt and the longest answer) and charged at what was used; the difference is free again at once.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from setpoint.gateway.config import Limits as Allowance
from setpoint.gateway.shared import COMMON_CELLS, Row, SharedTable, TableFullError

DAY_S = 86_400
NO_ROW = "too_many_tenants"
FULL_S = 60.0  # after which a tenant that finds no row may ask again; rows become free with a restart only
KEPT_ROWS = 256  # never given to tenants and keys: replicas and models of a later configuration need theirs
_MILLI = 1000  # levels are kept in thousandths, so that refills of a fraction are not lost
# common cells
REQUESTS, REQUESTS_AT, TOKENS, TOKENS_AT, DAY, DAY_USED = range(6)
# worker cells
STREAMS, RESERVED = range(2)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """Someone with an allowance.

    Attributes:
        name: Unique, e.g. ``tenant:acme`` or ``key:ab12cd34``.
        allowance: What it may use.
    """

    name: str
    allowance: Allowance


class Reservation(NamedTuple):
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
        held: Requests of the holder that are under way, where these are what is limited.
    """

    def __init__(self, limit: str, retry_after_s: float | None, *, held: int = 1) -> None:
        super().__init__(limit)
        self.held = held
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

    async def count(self, holders: Sequence[Holder]) -> None:
        """Counts a request that needs no engine: against requests a minute alone, with nothing to settle.

        Raises:
            LimitReached: one holder's limit; then it counts for none.
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
    whole = limit * _MILLI
    if asked > whole:
        return None
    over = level + asked - whole
    return over / (whole / 60) if over > 0 else 0.0


def drained(level: int, since_us: int, now_us: int, limit: int) -> int:
    """A level after the refill since it was last touched; a mark from before a restart counts as none."""
    if level <= 0 or since_us > now_us + 1_000_000:
        return 0
    return max(0, level - max(0, now_us - since_us) * limit * _MILLI // 60_000_000)


class _Caps(NamedTuple):
    """A holder's row and its allowance, taken apart once."""

    holder: Holder
    row: Row
    streams: int | None
    requests: int | None
    minute: int | None
    day: int | None


class SharedLimits:
    """Allowances in the memory that the workers of one gateway share.

    Args:
        table: The shared memory.
    """

    def __init__(self, table: SharedTable) -> None:
        self._table = table
        self._caps: dict[str, _Caps] = {}  # as many as the table has rows
        self._told = False

    def _caps_of(self, holder: Holder) -> _Caps:
        known = self._caps.get(holder.name)
        if known is None or known.holder is not holder:
            a = holder.allowance
            row = self._row(holder.name)
            known = _Caps(
                holder, row, a.streams, a.requests_per_minute, a.tokens_per_minute, a.tokens_per_day
            )  # fmt: skip
            self._caps[holder.name] = known
        return known

    def _row(self, name: str) -> Row:
        try:
            return self._table.row(name, KEPT_ROWS)
        except TableFullError as full:
            if not self._told:
                self._told = True
                _log.error("%s Further ones are answered 503 until a restart.", full.message)
            raise LimitReached(NO_ROW, FULL_S) from None

    async def count(self, holders: Sequence[Holder]) -> None:
        """See ``LimitStore``."""
        now_us, now_s = time.monotonic_ns() // 1000, time.time()
        every = [self._caps_of(h) for h in holders if h.allowance.requests_per_minute is not None]
        with self._table.locked():
            alone = [caps._replace(streams=None, minute=None, day=None) for caps in every]
            levels = [_requests_after(caps, 0, now_us, now_s) for caps in alone]
            for caps, level in zip(every, levels, strict=True):
                if level is not None:
                    caps.row[REQUESTS], caps.row[REQUESTS_AT] = level, now_us

    async def reserve(self, holders: Sequence[Holder], tokens: int) -> Reservation:
        """See ``LimitStore``."""
        now_us, now_s = time.monotonic_ns() // 1000, time.time()
        every = [self._caps_of(holder) for holder in holders]  # a new row is found under the same lock
        with self._table.locked():
            levels = [_requests_after(caps, tokens, now_us, now_s) for caps in every]
            for caps, level in zip(every, levels, strict=True):
                row, cells = caps.row, caps.row.cells
                if level is not None:
                    cells[row.start + REQUESTS], cells[row.start + REQUESTS_AT] = level, now_us
                cells[row.mine + STREAMS] += 1
                cells[row.mine + RESERVED] += tokens
        return Reservation(tuple(holders), tokens)

    def settle(self, reservation: Reservation, used: int) -> None:
        """See ``LimitStore``."""
        now_us, today = time.monotonic_ns() // 1000, int(time.time() // DAY_S)
        every = [self._caps_of(holder) for holder in reservation.holders]
        with self._table.locked():
            for caps in every:
                row, cells = caps.row, caps.row.cells
                start = row.start
                cells[row.mine + STREAMS] -= 1
                cells[row.mine + RESERVED] -= reservation.tokens
                if caps.minute is not None:
                    level = drained(cells[start + TOKENS], cells[start + TOKENS_AT], now_us, caps.minute)
                    cells[start + TOKENS], cells[start + TOKENS_AT] = level + used * _MILLI, now_us
                if cells[start + DAY] != today:
                    cells[start + DAY], cells[start + DAY_USED] = today, 0
                cells[start + DAY_USED] += used

    async def close(self) -> None:
        """See ``LimitStore``."""


def _requests_after(caps: _Caps, tokens: int, now_us: int, now_s: float) -> int | None:
    """The level of requests with one more; None where they are not limited.

    Raises:
        LimitReached: it does not fit. Nothing has changed.
    """
    _, row, streams, requests, minute, most = caps
    levels = row.levels()
    level, at_us, token_level, token_at_us, day, day_used, *_ = levels
    reserved = levels[COMMON_CELLS + RESERVED]
    if streams is not None and levels[COMMON_CELLS + STREAMS] >= streams:
        raise LimitReached("streams", 1.0, held=levels[COMMON_CELLS + STREAMS])
    after = None
    if requests is not None:
        level = drained(level, at_us, now_us, requests)
        wait_s = per_minute(level, requests, _MILLI)
        if wait_s != 0:
            raise LimitReached("requests_per_minute", wait_s)
        after = level + _MILLI
    if minute is not None:
        level = drained(token_level, token_at_us, now_us, minute)
        wait_s = per_minute(level + reserved * _MILLI, minute, tokens * _MILLI)
        if wait_s != 0:
            raise LimitReached("tokens_per_minute", wait_s)
    if most is not None:
        used = day_used if day == int(now_s // DAY_S) else 0
        if used + reserved + tokens > most:
            left_s = DAY_S - now_s % DAY_S
            raise LimitReached("tokens_per_day", None if tokens > most else left_s)
    return after
