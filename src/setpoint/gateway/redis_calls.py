"""Scripts in Redis or Valkey, called for requests that may end at any moment."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from setpoint.errors import UsageError
from setpoint.gateway.config import Redis

T = TypeVar("T")


class RedisCalls:
    """One client of one worker process.

    Args:
        config: Where it is.

    Attributes:
        client: Of redis-py.
        errors: What a call raises that was not answered in time.

    Raises:
        UsageError: the client library is missing.
    """

    def __init__(self, config: Redis) -> None:
        try:
            import redis.asyncio  # noqa: PLC0415 - an extra
            import redis.exceptions  # noqa: PLC0415 - an extra
        except ImportError:
            raise UsageError("What is kept in Redis needs its client.", fix="Install setpoint[gateway].") from None
        self.errors = (redis.exceptions.RedisError, OSError, TimeoutError)
        self.client: Any = redis.asyncio.from_url(
            os.environ[config.url_env], socket_timeout=config.timeout, socket_connect_timeout=config.timeout
        )
        self._later: set[asyncio.Task[None]] = set()

    async def answer(self, call: Coroutine[Any, Any, T], undo: Callable[[], Coroutine[Any, Any, None]]) -> T:
        """Waits for a call; what it did for a request that ended meanwhile is undone, once that is known.

        Args:
            call: The call, in a task of its own: a request's flow is none, and may be cancelled.
            undo: Gives back what the call took, and changes nothing where it took nothing.
        """
        asked = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            self.later(self._undone(asked, undo))
            raise

    async def _undone(self, asked: "asyncio.Future[Any]", undo: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with contextlib.suppress(*self.errors):
            await asked
        await undo()

    def later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Does something that no request waits for."""
        task = asyncio.get_running_loop().create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)
        return task

    async def surely(self, call: Callable[[], Awaitable[object]]) -> None:
        """Calls again until it is answered, for about a quarter of a minute."""
        for pause_s in (0.1, 0.5, 2.0, 10.0, 0.0):
            try:
                await call()
            except self.errors:
                await asyncio.sleep(pause_s)
            else:
                return

    async def settled(self) -> None:
        """Waits until nothing is left to be done later."""
        while self._later:
            await asyncio.wait(self._later)

    async def close(self) -> None:
        """Does what is left, and ends."""
        await self.settled()
        await self.client.aclose()
