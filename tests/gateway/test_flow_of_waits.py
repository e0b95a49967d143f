"""A coroutine that goes on within callbacks behaves as in a task, and sooner."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from setpoint.gateway.flow import Flow, Moment


class Run:
    """One flow, and how it ended."""

    def __init__(self, work: Coroutine[Any, None, None]) -> None:
        self.ends: list[bool] = []
        self.flow = Flow(work, self._ended)
        self.flow.start()

    def _ended(self, cancelled: bool) -> None:
        self.ends.append(cancelled)


def test_it_goes_on_before_the_moment_returns() -> None:
    said: list[str] = []
    moment = Moment()

    async def work() -> None:
        await moment
        said.append("after")

    run = Run(work())
    assert run.ends == []
    moment.set()
    moment.set()
    assert (said, run.ends) == (["after"], [False])


def test_a_moment_that_has_come_is_not_waited_for() -> None:
    moment = Moment()
    moment.set()

    async def work() -> None:
        await moment

    assert Run(work()).ends == [False]


def test_cancelling_ends_it_where_it_waits_and_runs_what_must_be_given_back() -> None:
    moment, given = Moment(), []

    async def work() -> None:
        try:
            await moment
        finally:
            given.append(1)

    run = Run(work())
    run.flow.cancel()
    moment.set()
    assert (given, run.ends) == ([1], [True])


async def _settle(done: Callable[[], bool]) -> None:
    for _ in range(100):
        if done():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not end")


def test_futures_and_tasks_are_waited_for_and_cancelled() -> None:
    async def go() -> None:
        loop = asyncio.get_running_loop()
        inner: list[str] = []

        async def slow() -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                inner.append("cancelled")
                raise

        async def work() -> None:
            assert await future == 3
            await asyncio.create_task(slow())

        future: asyncio.Future[int] = loop.create_future()
        run = Run(work())
        future.set_result(3)
        await asyncio.sleep(0.01)
        assert run.ends == []
        run.flow.cancel()
        await _settle(lambda: run.ends != [])
        assert (run.ends, inner) == ([True], ["cancelled"])

    asyncio.run(go())


def test_what_came_before_it_was_cancelled_is_received_and_given_back() -> None:
    async def go() -> None:
        got: list[int] = []
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        never = Moment()

        async def work() -> None:
            place = await future
            try:
                await never
            finally:
                got.append(place)

        run = Run(work())
        future.set_result(7)
        run.flow.cancel()
        await _settle(lambda: run.ends != [])
        assert (got, run.ends) == ([7], [True])

    asyncio.run(go())


def test_it_gives_way_for_a_turn_of_the_loop() -> None:
    async def go() -> None:
        async def work() -> None:
            await asyncio.sleep(0)

        run = Run(work())
        assert run.ends == []
        await _settle(lambda: run.ends != [])
        assert run.ends == [False]

    asyncio.run(go())


def test_what_it_held_is_free_at_its_end_without_a_collector() -> None:
    """The moment that it waited for does not hold on to it, nor to who is told of its end."""

    class Exchange:
        def __init__(self) -> None:
            self.done = Moment()

        async def run(self) -> None:
            await self.done

        def ended(self, cancelled: bool) -> None:
            """Told."""

    exchange = Exchange()
    done, gone = exchange.done, weakref.ref(exchange)
    Flow(exchange.run(), exchange.ended).start()
    del exchange
    assert gone() is not None
    gc.disable()
    try:
        done.set()
        assert gone() is None
    finally:
        gc.enable()


def test_what_fails_at_its_end_ends_and_harms_no_other() -> None:
    async def work() -> None:
        raise OSError

    assert Run(work()).ends == [True]
