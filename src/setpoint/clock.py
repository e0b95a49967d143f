"""The one source of time.

Latencies come from the monotonic clock only: a wall clock may step while a request is in flight and yield
negative times. On Linux the monotonic clock is shared by all processes of one boot, so times that several
workers take are comparable. The wall clock names records and nothing else.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Something that tells seconds on a monotonic scale with an arbitrary origin."""

    def now(self) -> float:
        """Seconds; never decreases."""
        ...


class MonotonicClock:
    """The machine's monotonic clock."""

    now = staticmethod(time.monotonic)  # seconds since an arbitrary origin shared by the processes of this boot


def utc_now() -> datetime:
    """The wall clock in UTC: for names and dates in records, never for durations."""
    return datetime.now(UTC)
