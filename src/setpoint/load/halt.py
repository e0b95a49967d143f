"""An event that is waited for with a limit: a future and a timer a wait, and no task as in ``asyncio.wait_for``."""

import asyncio


class Halt:
    """Set once; whoever waits then goes on at once."""

    def __init__(self) -> None:
        self._set = False
        self._waiting: set[asyncio.Future[None]] = set()

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set

    def set(self) -> None:
        """May be called twice."""
        self._set = True
        for waiter in self._waiting:
            _release(waiter)

    async def wait(self, limit_s: float) -> None:
        """Returns when it is set, or after ``limit_s`` seconds."""
        if self._set:
            return
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(limit_s, _release, waiter)
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiting.discard(waiter)


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
