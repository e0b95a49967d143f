"""One run from beginning to end.

Prepare (tokenizer, warm-up), start the workers on a common origin, listen to them while signals are sampled, then
close the record with summary and verdicts. Whatever happens in between (Ctrl-C, a dead worker, a dead engine, a full
disk), the record is closed with what was measured and says why it is incomplete.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

import msgspec
import uvloop

import setpoint
from setpoint.client.client import Client
from setpoint.errors import RecordError, SetpointError
from setpoint.load.certificate import Certificate, Floor, certify, measure_floor, workers_needed
from setpoint.load.crew import Crew
from setpoint.load.messages import Brief, Job, Stop, Tick
from setpoint.load.prepare import Prepared, prepare
from setpoint.load.progress import Listener, Phase, Tally
from setpoint.load.spec import Beside, LoadSpec, Sampler
from setpoint.metrics.judge import Doubt, client_bound, incomplete, judge_all, overall
from setpoint.metrics.summary import Summary, summarise
from setpoint.metrics.table import ExchangeTable
from setpoint.metrics.verdict import State, Verdict
from setpoint.records.environment import environment
from setpoint.records.exchange import Exchange
from setpoint.records.meta import ScheduleFacts, target_facts
from setpoint.records.record import RunRecord, exchange_journal
from setpoint.records.signal import SignalRow, SignalState
from setpoint.records.writer import RunWriter
from setpoint.units import format_duration

HEAD_START_S = 0.5  # workers must be ready before the origin
SAMPLE_S = 1.0
SAMPLE_LIMIT_S = 3.0
INTERRUPTED = "interrupted"


@dataclass(slots=True)
class Outcome:
    """What a run came to.

    Attributes:
        record: The closed record.
        summary: Its figures.
        verdicts: One a promise of the card.
        certificate: Of the client.
        ended_early: Why the look ended it; None when it ran its length.
        interrupted: Whether the user ended it.
    """

    record: RunRecord
    summary: Summary
    verdicts: list[Verdict]
    certificate: Certificate
    ended_early: str | None
    interrupted: bool

    @property
    def state(self) -> State:
        """Met when every promise is that was measured here; a quality promise counts where answers were graded."""
        return overall(v for v in self.verdicts if v.metric != "quality" or v.share is not None)


@dataclass(slots=True)
class _Live:
    """What is known while workers run."""

    tally: Tally = field(default_factory=Tally)
    briefs: list[Brief] = field(default_factory=list)
    ended_early: str | None = None
    reason: str | None = None
    interrupted: bool = False


def silent(_: object) -> None:
    """A listener that does not care."""


def run(spec: LoadSpec, writer: RunWriter, *, listen: Listener = silent, sampler: Sampler | None = None) -> Outcome:
    """Makes one run and closes its record.

    Args:
        spec: The run.
        writer: Of its record; closed when this returns or raises.
        listen: Called about four times a second.
        sampler: Reads engine and host signals.

    Raises:
        TargetError: the target did not answer the warm-up.
        RecordError: the record could not be written to its end.
    """
    try:
        return uvloop.run(_Run(spec, writer, listen, sampler, measure_floor()).make())
    except BaseException as error:
        if not writer.closed:
            reason = str(error) if isinstance(error, SetpointError) else type(error).__name__
            reason = INTERRUPTED if isinstance(error, KeyboardInterrupt) else reason
            with contextlib.suppress(RecordError):  # the first failure is the one to tell
                writer.abort(reason)
        raise


class _Run:
    def __init__(
        self, spec: LoadSpec, writer: RunWriter, listen: Listener, sampler: Sampler | None, floor: Floor
    ) -> None:
        self.spec = spec
        self.writer = writer
        self.listen = listen
        self.sampler = sampler
        self.floor = floor
        self.live = _Live()
        self.phase = Phase.PREPARE
        self.nonce = secrets.token_hex(8)

    async def make(self) -> Outcome:
        spec, writer = self.spec, self.writer
        writer.update(
            card=spec.card.to_dict(),
            target=target_facts(spec.target),
            schedule=ScheduleFacts.of(spec.schedule),
            series=spec.series,
            environment=environment(),
            pins=self._pins(None),
        )
        self._tell("looking at the target")
        started_s = time.monotonic()
        warmup = spec.card.traffic.warmup_requests if spec.warmup_requests is None else spec.warmup_requests
        client = Client(spec.target, timeouts=spec.timeouts, origin_s=started_s)
        self.phase = Phase.WARM_UP
        self._tell(f"{warmup} warm-up requests")
        try:
            prepared = await self._unless_interrupted(
                prepare(client, spec.card, spec.schedule.sessions, spec.schedule.seed, self.nonce, warmup)
            )
        finally:
            await client.close()
        origin_s = time.monotonic() + HEAD_START_S
        crew_size = self._crew_size()
        self._journal_warm_up(prepared, started_s - origin_s, crew_size)
        writer.update(pins=self._pins(prepared), notes=list(prepared.notes))
        await self._measure(prepared, origin_s, crew_size)
        self.phase = Phase.WRITE
        self._tell("writing the record")
        return self._close(prepared, crew_size)

    async def _unless_interrupted(self, work: Coroutine[Any, Any, Prepared]) -> Prepared:
        """Preparation ends at once on Ctrl-C."""
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            return await task
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    # the measured part

    async def _measure(self, prepared: Prepared, origin_s: float, crew_size: int) -> None:
        spec, live = self.spec, self.live
        crew = Crew(self._jobs(prepared, origin_s, crew_size), self._hear)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._interrupt, crew)
        watching = [asyncio.create_task(self._watch(crew))]
        if spec.beside is not None:
            watching.append(asyncio.create_task(self._beside(spec.beside, crew, origin_s)))
        if self.sampler is not None:
            watching.append(asyncio.create_task(self._sample(self.sampler, origin_s)))
        self.phase = Phase.MEASURE
        try:
            await crew.start()
            await crew.finish()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)
            await crew.reap()
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
        if crew.deaths:
            lost = spec.schedule.requests - live.tally.started
            for death in crew.deaths:
                self.writer.log("worker_died", reason=death)
            live.reason = (
                live.reason or f"{'; '.join(crew.deaths)} (at least {max(lost, 0):,} planned requests not sent)"
            )

    def _jobs(self, prepared: Prepared, origin_s: float, crew_size: int) -> list[Job]:
        """Sessions dealt out in turn, so that each worker has its share of any moment."""
        spec = self.spec
        schedule = spec.schedule
        index, first = 0, []
        for session in schedule.sessions:
            first.append(index)
            index += len(session.turns)
        users = schedule.concurrency
        stop_s = schedule.duration_s
        return [
            Job(
                worker=worker,
                journal=str(exchange_journal(self.writer.path, worker)),
                target=spec.target,
                asked=prepared.asked,
                sessions=list(schedule.sessions[worker::crew_size]),
                first_index=first[worker::crew_size],
                whole_tasks=spec.card.traffic.agent is not None,
                users=None if users is None else len(range(worker, users, crew_size)),
                origin_s=origin_s,
                stop_starting_s=stop_s,
                end_s=stop_s + spec.patience_s,
                timeouts=spec.timeouts,
                vocabulary=prepared.vocabulary,
                seed=schedule.seed,
                nonce=self.nonce,
            )
            for worker in range(crew_size)
        ]

    def _crew_size(self) -> int:
        spec = self.spec
        if spec.workers is not None:
            return spec.workers
        if spec.schedule.offered_per_s is None:
            return 1 if (spec.schedule.concurrency or 1) <= 256 else min(2, os.cpu_count() or 1)
        rate = spec.schedule.offered_per_s
        return workers_needed(self.floor, rate, rate * spec.card.traffic.output_tokens.mean, os.cpu_count() or 1)

    def _hear(self, tick: Tick) -> None:
        live, spec = self.live, self.spec
        live.tally.add(tick)
        live.briefs += tick.done
        if tick.failure is not None:
            live.reason = live.reason or tick.failure
        if tick.time_s > spec.schedule.duration_s:
            self.phase = Phase.DRAIN
        self._tell()

    async def _watch(self, crew: Crew) -> None:
        """Ends the run when the target has died, or when a look says that enough is known."""
        live, spec = self.live, self.spec
        while True:
            await asyncio.sleep(0.5)
            died = spec.alive() if spec.alive is not None else None
            if died is not None:
                live.reason = died
                self.writer.log("target_died", reason=died)
                crew.stop(Stop.NOW)
                return
            if spec.look is not None and live.ended_early is None:
                ending = spec.look(live.tally, live.briefs)
                if ending is not None:
                    live.ended_early = ending.reason
                    self.writer.log("ended_early", reason=ending.reason)
                    crew.stop(Stop.DRAIN)
                    if ending.drain_s is not None:
                        asyncio.get_running_loop().call_later(ending.drain_s, crew.stop, Stop.NOW)

    async def _beside(self, beside: Beside, crew: Crew, origin_s: float) -> None:
        """Work on the same target while the load runs; the load ends with it."""
        live = self.live
        await asyncio.sleep(max(0.0, origin_s - time.monotonic()))
        try:
            await beside(origin_s, self.writer)
            live.ended_early = live.ended_early or "what was done beside the load is finished"
        except SetpointError as error:
            live.reason = live.reason or str(error)
        crew.stop(Stop.DRAIN)

    async def _sample(self, sampler: Sampler, origin_s: float) -> None:
        """Reads signals every second; a reading that takes too long is a failed one."""
        due_s = time.monotonic()
        while True:
            try:
                async with asyncio.timeout(SAMPLE_LIMIT_S):  # wait_for of Python 3.11 may lose a cancellation
                    rows = await sampler(origin_s)
            except TimeoutError:
                rows = [_late(time.monotonic() - origin_s)]
            self.writer.signals(rows)
            due_s = max(due_s + SAMPLE_S, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())

    def _interrupt(self, crew: Crew) -> None:
        self.live.interrupted = True
        self.live.reason = self.live.reason or INTERRUPTED
        crew.stop(Stop.NOW)

    # the record

    def _journal_warm_up(self, prepared: Prepared, shift_s: float, worker: int) -> None:
        """Warm-up rows, on the run's own time scale (before its origin)."""
        journal = self.writer.journal(worker)
        for row in prepared.rows:
            journal.append(_shifted(row, shift_s, worker))

    def _close(self, prepared: Prepared, crew_size: int) -> Outcome:
        live, spec, writer = self.live, self.spec, self.writer
        table = ExchangeTable.from_record(RunRecord(writer.path))
        promises = spec.card.promises
        summary = summarise(table, promises)
        certificate = self._certificate(table, crew_size)
        doubts: list[Doubt] = []
        if not certificate.good:
            doubts.append(client_bound("; ".join(certificate.reasons)))
        if live.reason is not None:
            doubts.append(incomplete(live.reason))
        graded = RunRecord(writer.path).quality()
        verdicts = judge_all(promises, table, doubts=doubts, looks=spec.look is not None, quality=graded)
        writer.update(
            client=certificate.record(),
            summary=summary.to_dict(),
            verdicts=[msgspec.to_builtins(v) for v in verdicts],
            notes=self._notes(prepared),
        )
        record = writer.finish() if live.reason is None else writer.abort(live.reason)
        return Outcome(record, summary, verdicts, certificate, live.ended_early, live.interrupted)

    def _certificate(self, table: ExchangeTable, crew_size: int) -> Certificate:
        live, spec = self.live, self.spec
        ticks = live.tally.latest.values()
        cpu_share = max((t.cpu_s / max(t.time_s + HEAD_START_S, 1e-9) for t in ticks), default=0.0)
        measured = table.measured
        whole = live.reason is None and live.ended_early is None and spec.schedule.concurrency is None
        single = all(len(s.turns) == 1 for s in spec.schedule.sessions)
        return certify(
            self.floor,
            (measured.started_s - measured.scheduled_s).tolist(),
            workers=crew_size,
            cpu_share=cpu_share,
            stall_max_s=live.tally.stall_s,
            planned=spec.schedule.requests if whole and single else None,
            limit_s=spec.tightest_limit_s,
        )

    def _notes(self, prepared: Prepared) -> list[str]:
        notes = list(prepared.notes)
        if self.live.ended_early is not None:
            notes.append(f"Ended early: {self.live.ended_early}.")
        cold = prepared.cold
        if cold is not None and cold.first_visible_s is not None:
            took = format_duration(cold.first_visible_s - cold.scheduled_s)
            notes.append(f"The first request of the warm-up waited {took} for its first token.")
        template = prepared.vocabulary.opening_tokens
        short = sum(1 for s in self.spec.schedule.sessions if s.turns[0].prompt_tokens <= template)
        if short:
            share = short / len(self.spec.schedule.sessions)
            notes.append(
                f"{share:.0%} of the planned prompts are no longer than the chat template's own {template} tokens: "
                "these prompts are longer than planned."
            )
        return notes

    def _pins(self, prepared: Prepared | None) -> dict[str, object]:
        spec = self.spec
        pins: dict[str, object] = dict(spec.engine)
        pins |= {
            "model": spec.target.model,
            "dialect": spec.target.dialect.value,
            "card_digest": spec.card.digest(),
            "schedule_seed": spec.schedule.seed,
            "schedule_digest": spec.schedule.digest(),
            "load": spec.label,
            "cache_state": "prompts are new to the target; shared prefixes only by the card",
            "client_version": setpoint.__version__,
        }
        shared = spec.card.traffic.prefix
        if shared is not None:
            pins["prompt_layout"] = f"shared part {shared.position or 'front'}"
        if prepared is not None:
            pins["output_lengths"] = "forced" if prepared.asked.force_length else "free"
            pins["prompt_lengths"] = f"{prepared.vocabulary.origin} tokens"
        return pins

    def _tell(self, note: str = "") -> None:
        schedule = self.spec.schedule
        planned = schedule.requests if schedule.concurrency is None else None
        self.listen(self.live.tally.progress(self.phase, self.spec.label, schedule.duration_s, planned, note))


def _late(time_s: float) -> SignalRow:
    return SignalRow(time_s=time_s, signal="scrape", value=None, state=SignalState.SCRAPE_FAILED, source="timeout")


def _shifted(row: Exchange, shift_s: float, worker: int) -> Exchange:
    """The row with all its times moved, and its writer's number."""
    names = (
        "scheduled_s", "started_s", "connected_s", "sent_s", "headers_s", "first_token_s", "first_visible_s",
        "last_token_s", "done_s",
    )  # fmt: skip
    moved = {n: None if (t := getattr(row, n)) is None else t + shift_s for n in names}
    return msgspec.structs.replace(row, **moved, chunk_s=[t + shift_s for t in row.chunk_s], worker=worker)
