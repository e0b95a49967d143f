"""A coroutine that goes on within the callbacks of what it waits for: no task, and no turn of the event loop between.

A request waits once in nearly every case, for its engine. As a task that takes two futures and three turns of the loop.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Generator
from typing import Any

_log = logging.getLogger(__name__)


class Moment:
    """Something that comes once, and that one coroutine waits for.

    Attributes:
        come: It has come.
    """

    __slots__ = ("_then", "come")

    def __init__(self) -> None:
        self.come = False
        self._then: Callable[[], None] | None = None

    def __await__(self) -> Generator["Moment", None, None]:
        if not self.come:
            yield self

    def then(self, call: Callable[[], None] | None) -> None:
        """What is called when it comes; None forgets it."""
        self._then = call

    def set(self) -> None:
        """It has come: whoever waits goes on before this returns."""
        if not self.come:
            self.come = True
            then, self._then = self._then, None  # kept no longer: whoever waits holds this moment, too
            if then is not None:
                then()


class Flow:
    """Runs a coroutine that awaits moments, futures and tasks.

    What asks for ``asyncio.current_task`` (``asyncio.timeout`` does) must stand in a task of its own.

    Args:
        work: The coroutine.
        ended: Called once at its end; told whether it was cancelled.
    """

    __slots__ = ("_cancelled", "_ended", "_waits", "_work")

    def __init__(self, work: Coroutine[Any, None, None], ended: Callable[[bool], None]) -> None:
        self._work = work
        self._ended = ended
        self._waits: Any = None
        self._cancelled = False

    def start(self) -> None:
        """Runs up to the first wait."""
        self._step()

    def cancel(self) -> None:
        """Raises ``CancelledError`` where the coroutine waits, or at its next wait where what it waits for has come."""
        self._cancelled = True
        if self._waits is not None:
            self._stop()

    def _stop(self) -> None:
        waits = self._waits
        if isinstance(waits, Moment):
            waits.then(None)
            self._cancelled = False
            self._step(asyncio.CancelledError())
        elif waits.cancel():
            self._cancelled = False  # its callback raises it

    def _goes_on(self, _: object = None) -> None:
        self._step()

    def _step(self, error: BaseException | None = None) -> None:
        self._waits = None
        try:
            waits = self._work.send(None) if error is None else self._work.throw(error)
        except StopIteration:
            self._ended(False)
            return
        except asyncio.CancelledError:
            self._ended(True)
            return
        except Exception as failure:  # noqa: BLE001 - the supervision boundary: the callback that led here is another's
            _log.error("a request failed at its end: %s", type(failure).__name__)
            self._ended(True)
            return
        self._waits = waits
        if isinstance(waits, Moment):
            waits.then(self._step)
        elif waits is None:  # as ``asyncio.sleep(0)`` does: one turn of the loop
            asyncio.get_running_loop().call_soon(self._step)
            return
        else:
            waits._asyncio_future_blocking = False  # noqa: SLF001 - how whoever drives a coroutine answers a future
            waits.add_done_callback(self._goes_on)
        if self._cancelled:
            self._stop()
