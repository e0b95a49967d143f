"""A worker process: sends its share of the schedule and journals every exchange.

``python -m setpoint.load.worker`` reads a job from standard input. It ends by itself when the job is done, when it is
told to stop, or when standard input closes because its parent has died.
"""

import asyncio
import contextlib
import gc
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from setpoint.client.client import Client
from setpoint.client.limits import raise_open_files
from setpoint.client.pending import Planned
from setpoint.errors import SetpointError
from setpoint.load.halt import Halt
from setpoint.load.messages import Brief, Command, FrameReader, Job, Stop, Tick, frame
from setpoint.protocol.requests import Message
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.journal import Journal
from setpoint.workload.prompts import PromptWriter
from setpoint.workload.schedule import Session, Turn

TICK_S = 0.25
HEARTBEAT_S = 0.02
TIMER_S = 0.001  # resolution of the loop's timers
NICENESS = -5  # a client that waits for the CPU measures itself; taken only where it is allowed


class Worker:
    """Runs one job on the running event loop.

    Args:
        job: What to send.
        ticks: File descriptor that takes the frames for the parent.
    """

    def __init__(self, job: Job, ticks: int) -> None:
        self.job = job
        self._ticks = ticks
        self._client = Client(job.target, timeouts=job.timeouts, origin_s=job.origin_s)
        self._prompts = PromptWriter(job.vocabulary, job.seed, job.nonce)
        self._journal: Journal[Exchange] = Journal(Path(job.journal))
        self._waiting = deque(zip(job.sessions, job.first_index, strict=True))
        self._tasks: set[asyncio.Task[None]] = set()
        self._done: list[Brief] = []
        self._started = 0
        self._stall_s = 0.0
        self._failure: str | None = None
        self._closed = Halt()  # the send window is over: no further turn, no further session of a user
        self._draining = Halt()  # told to start nothing more, not even what was planned earlier and is late
        self._ending = Halt()
        self._cpu_s = time.process_time()

    def _now(self) -> float:
        return time.monotonic() - self.job.origin_s

    async def run(self) -> None:
        """Sends everything, or until told to stop; the last tick says that it is over."""
        pulse = asyncio.create_task(self._pulse())
        deadline = asyncio.create_task(self._at(self.job.end_s, self.stop, Stop.NOW))
        closing = asyncio.create_task(self._at(self.job.stop_starting_s, self._closed.set))
        if self.job.users is None:
            await self._open_loop()
        else:
            await self._closed_loop(self.job.users)
        while self._tasks:
            await asyncio.wait(self._tasks)
        for task in (pulse, deadline, closing):
            task.cancel()
        await self._client.close()
        self._journal.close()
        self._tick(final=True)

    def stop(self, how: Stop) -> None:
        """Starts nothing more; with ``now`` also ends what is under way. May be called twice."""
        self._closed.set()
        self._draining.set()
        if how is Stop.NOW:
            self._ending.set()
            self._waiting.clear()
            self._client.cancel_all()  # their callers record them and end

    # pacing

    async def _open_loop(self) -> None:
        """Starts each session at its time, whatever became of the earlier ones."""
        while self._waiting:
            session, index = self._waiting.popleft()
            assert session.start_s is not None
            opening = self._opening(session)  # built while there is time, so that it does not delay the send
            if not await self._until(session.start_s):
                return
            self._spawn(self._converse(session, index, session.start_s, opening))

    async def _closed_loop(self, users: int) -> None:
        """Keeps each user busy with one session at a time."""
        for _ in range(users):
            self._spawn(self._user())
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _user(self) -> None:
        while self._waiting and not self._closed.is_set():
            session, index = self._waiting.popleft()
            opening = self._opening(session)
            wait_s = session.turns[0].wait_s
            if wait_s and not await self._until(self._now() + wait_s, self._closed):
                return
            await self._converse(session, index, self._now(), opening)

    async def _until(self, moment_s: float, stop: Halt | None = None) -> bool:
        """Waits for a time since the origin; False when told to start nothing more (or when ``stop`` is set).

        The loop's timers count whole milliseconds and may ring early: what is left is turned over, so that no send
        is before its time.
        """
        stop = stop or self._draining
        while (delay_s := moment_s - self._now()) > 0 and not stop.is_set():
            if delay_s < TIMER_S:
                await asyncio.sleep(0)
                continue
            await stop.wait(delay_s - TIMER_S / 2)
        return not stop.is_set()

    async def _at(self, moment_s: float, action: Any, *arguments: object) -> None:  # noqa: ANN401
        await asyncio.sleep(max(0.0, moment_s - self._now()))
        action(*arguments)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # conversations

    def _opening(self, session: Session) -> list[Message]:
        return [{"role": "user", "content": self._prompts.text(session, 0)}]

    async def _converse(self, session: Session, index: int, start_s: float, messages: list[Message]) -> None:
        """One session: each later turn waits for the answer and its think or tool time, and carries the history."""
        several = len(session.turns) > 1
        scheduled_s, context_tokens = start_s, 0
        stop = self._ending if self.job.whole_tasks else self._closed
        row: Exchange | None = None
        for position, turn in enumerate(session.turns):
            if position:
                if not await self._until(scheduled_s, stop):
                    if self.job.whole_tasks and row is not None:
                        self._lose(row, index + position, position, turn, Outcome.CANCELLED, "the run has ended")
                    return
                messages.append({"role": "user", "content": self._prompts.text(session, position)})
            context_tokens += turn.prompt_tokens
            planned = Planned(
                index=index + position,
                session=session.index,
                turn=position,
                scheduled_s=scheduled_s + self.job.origin_s,
                prompt_tokens=context_tokens,
                output_tokens=turn.output_tokens,
                worker=self.job.worker,
            )
            body = self.job.asked.body(messages, turn.output_tokens)
            self._started += 1
            row, answer = await self._client.exchange(body, planned, keep_text=several)
            self._record(row)
            if not several:
                return
            if not row.outcome.answered:
                self._lose_rest(session, index, position, row)
                return
            assert answer is not None
            messages.append({"role": "assistant", "content": answer.text})
            context_tokens += row.completion_tokens or len(row.chunk_s)
            scheduled_s = row.done_s + _wait_after(session.turns, position)

    def _record(self, row: Exchange) -> None:
        try:
            self._journal.append(row)
        except SetpointError as error:
            if self._failure is None:
                self._failure = str(error)
                self.stop(Stop.NOW)
            return
        self._done.append(Brief.of(row))

    def _lose_rest(self, session: Session, index: int, failed: int, row: Exchange) -> None:
        """Turns that could not be asked because an earlier one failed: they count as errors, not as never planned."""
        if row.outcome is Outcome.CANCELLED:
            return
        for position in range(failed + 1, len(session.turns)):
            why = "an earlier turn of the session failed"
            self._lose(row, index + position, position, session.turns[position], Outcome.ERROR, why)

    def _lose(self, row: Exchange, index: int, position: int, turn: Turn, outcome: Outcome, why: str) -> None:
        """A turn that was never sent, after the turn ``row``."""
        self._started += 1
        self._record(
            msgspec.structs.replace(
                row, index=index, turn=position, scheduled_s=row.done_s, started_s=row.done_s, connected_s=None,
                sent_s=None, headers_s=None, first_token_s=None, first_visible_s=None,
                last_token_s=None, chunk_s=[], chunk_tokens=[], chunk_kinds="", outcome=outcome, status=None,
                finish_reason=None, error=f"not sent: {why}", retry_after_s=None,
                planned_prompt_tokens=turn.prompt_tokens, planned_output_tokens=turn.output_tokens,
                prompt_tokens=None, completion_tokens=None, cached_tokens=None, reasoning_tokens=None,
                tokens_source="chunks", visible_chars=0, reasoning_chars=0, tool_calls=0, server_prefill_s=None,
                server_decode_s=None, draft_tokens=None, accepted_tokens=None, within=None,
            )
        )  # fmt: skip

    # reporting

    async def _pulse(self) -> None:
        """Ticks to the parent, and measures how late the loop comes round."""
        loop = asyncio.get_running_loop()
        next_tick_s = loop.time() + TICK_S
        while True:
            due_s = loop.time() + HEARTBEAT_S
            await asyncio.sleep(HEARTBEAT_S)
            self._stall_s = max(self._stall_s, loop.time() - due_s)
            if loop.time() >= next_tick_s:
                next_tick_s = loop.time() + TICK_S
                self._tick()

    def _tick(self, *, final: bool = False) -> None:
        done, self._done = self._done, []
        stall_s, self._stall_s = self._stall_s, 0.0
        tick = Tick(
            worker=self.job.worker,
            time_s=self._now(),
            started=self._started,
            in_flight=self._client.in_flight,
            cpu_s=time.process_time() - self._cpu_s,
            stall_s=stall_s,
            done=done,
            failure=self._failure,
            final=final,
        )
        data = memoryview(frame(tick))
        try:
            while data:
                data = data[os.write(self._ticks, data) :]
        except BrokenPipeError:
            self.stop(Stop.NOW)  # the parent has gone


def _wait_after(turns: tuple[Turn, ...], position: int) -> float:
    return turns[position + 1].wait_s if position + 1 < len(turns) else 0.0


async def _serve(ticks: int) -> None:
    """Takes the job, runs it, and listens for commands and for the end of the parent."""
    loop = asyncio.get_running_loop()
    reader = FrameReader()
    worker: Worker | None = None
    arrived = asyncio.Event()
    bodies: deque[bytes] = deque()

    def readable() -> None:
        data = os.read(0, 1 << 20)
        if not data:
            loop.remove_reader(0)
            if worker is None:
                arrived.set()
            else:
                worker.stop(Stop.NOW)
            return
        for body in reader.feed(data):
            if worker is None:
                bodies.append(body)
                arrived.set()
            else:
                worker.stop(msgspec.msgpack.decode(body, type=Command).stop)

    loop.add_reader(0, readable)
    await arrived.wait()
    if not bodies:
        return
    job = msgspec.msgpack.decode(bodies.popleft(), type=Job)
    raise_open_files(job.users or min(len(job.sessions), 20_000))
    worker = Worker(job, ticks)
    loop.add_signal_handler(signal.SIGTERM, worker.stop, Stop.NOW)
    for body in bodies:
        worker.stop(msgspec.msgpack.decode(body, type=Command).stop)
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    await worker.run()


def main() -> None:
    """Entry point of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal; the parent decides
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    ticks = os.dup(1)
    os.dup2(2, 1)
    try:
        uvloop.run(_serve(ticks))
    except SetpointError as error:
        tick = Tick(
            worker=-1, time_s=0, started=0, in_flight=0, cpu_s=0, stall_s=0, done=[], failure=str(error), final=True
        )
        os.write(ticks, frame(tick))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
