"""The worker processes of one run: started, listened to, told to stop, reaped."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Sequence

import msgspec

from setpoint.load.messages import Command, FrameReader, Job, Stop, Tick, frame

GRACE_S = 5.0


class Crew:
    """Runs jobs in child processes until all are done.

    Args:
        jobs: One a worker.
        hear: Called with each tick.
    """

    def __init__(self, jobs: Sequence[Job], hear: Callable[[Tick], None]) -> None:
        self._jobs = jobs
        self._hear = hear
        self._children: list[asyncio.subprocess.Process] = []
        self.deaths: list[str] = []
        self._stderr: dict[int, bytes] = {}

    async def start(self) -> None:
        """Starts all workers and hands each its job."""
        for job in self._jobs:
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "setpoint.load.worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            self._children.append(child)
            assert child.stdin is not None
            with contextlib.suppress(ConnectionError):
                child.stdin.write(frame(job))
                await child.stdin.drain()

    async def finish(self) -> None:
        """Returns when every worker has ended; how the dead ones died is in ``deaths``."""
        listening = [self._listen(i, child) for i, child in enumerate(self._children)]
        await asyncio.gather(*listening)

    async def _listen(self, number: int, child: asyncio.subprocess.Process) -> None:
        reader, final = FrameReader(), False
        assert child.stdout is not None
        assert child.stderr is not None
        draining = asyncio.create_task(_tail(child.stderr))
        while data := await child.stdout.read(1 << 16):
            for body in reader.feed(data):
                tick = msgspec.msgpack.decode(body, type=Tick)
                final = final or tick.final
                self._hear(tick)
        code = await child.wait()
        last = await draining
        if not final:
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            said = last.decode("utf-8", "replace").strip().splitlines()
            self.deaths.append(f"client worker {number} died ({how}){': ' + said[-1] if said else ''}")

    def stop(self, how: Stop) -> None:
        """Tells all workers to end."""
        for child in self._children:
            if child.returncode is None and child.stdin is not None and not child.stdin.is_closing():
                child.stdin.write(frame(Command(how)))

    async def reap(self) -> None:
        """Leaves no worker behind, however the run ended."""
        for child in self._children:
            if child.stdin is not None:
                child.stdin.close()
        for child in self._children:
            if child.returncode is None:
                try:
                    await asyncio.wait_for(child.wait(), GRACE_S)
                except TimeoutError:
                    child.kill()
                    await child.wait()


async def _tail(stream: asyncio.StreamReader, keep: int = 4096) -> bytes:
    last = b""
    while data := await stream.read(1 << 14):
        last = (last + data)[-keep:]
    return last
