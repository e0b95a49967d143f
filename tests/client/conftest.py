"""Each test of the client runs on both event loops and must leave neither a task nor a socket behind."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop
from tests.client.server import Run

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def sockets() -> set[str]:
    """This process's open sockets, by inode."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            link = str(entry.readlink())
        except FileNotFoundError:  # the listing's own descriptor
            continue
        if link.startswith("socket:"):
            found.add(link)
    return found


async def _checked(work: Coroutine[Any, Any, None]) -> None:
    before = sockets()  # the loop's own are open by now
    async with asyncio.timeout(60):
        await work
    for _ in range(100):  # a closed transport is gone a few turns of the loop later
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        if not tasks and sockets() <= before:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"left behind: {tasks}, {sockets() - before}")


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a test's coroutine to its end."""

    def runner(work: Coroutine[Any, Any, None]) -> None:
        faults: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as loops:
            loops.get_loop().set_exception_handler(lambda _, context: faults.append(context))
            loops.run(_checked(work))
        gc.collect()
        assert not faults

    return runner
