"""The timer that all exchanges of a client share: one for each would be set and cancelled for nothing."""

import asyncio
from collections.abc import Collection
from typing import Protocol


class Watched(Protocol):
    """Something with limits in time."""

    def check(self) -> float | None:
        """Acts on a limit that has passed; the seconds after which to look again, None for never."""
        ...


class Watch:
    """Looks at whatever is under way when the earliest of its limits could have passed.

    Args:
        under_way: What to look at, as it is at that moment.
    """

    def __init__(self, under_way: Collection[Watched]) -> None:
        self._under_way = under_way
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = float("inf")  # on the loop's clock

    def within(self, delay_s: float, loop: asyncio.AbstractEventLoop) -> None:
        """Looks no later than in ``delay_s`` seconds."""
        due_s = loop.time() + delay_s
        if due_s < self._due_s:
            if self._timer is not None:
                self._timer.cancel()
            self._due_s = due_s
            self._timer = loop.call_at(due_s, self._look, loop)

    def end(self) -> None:
        """Looks no more, until asked to again."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._due_s = None, float("inf")

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self.end()
        delays = [watched.check() for watched in tuple(self._under_way)]
        least = min((delay for delay in delays if delay is not None), default=None)
        if least is not None:
            self.within(least, loop)
