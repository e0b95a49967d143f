"""An experiment on a live target: each run of each arm on an engine that is started for it alone, or on its server."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from setpoint.assess.arm_quality import ArmQuality
from setpoint.assess.arms import Arms, demand_same
from setpoint.assess.bench import Bench
from setpoint.clock import utc_now
from setpoint.errors import UsageError
from setpoint.experiments.analysis import Block, analyse
from setpoint.experiments.beside import beside_speed
from setpoint.experiments.change import Change
from setpoint.experiments.conclusion import conclude
from setpoint.experiments.design import RUNS_A_BLOCK, Design
from setpoint.experiments.endpoint import endpoints_of, primary_of
from setpoint.experiments.record import ArmRun, ExperimentRecord, QualityRun
from setpoint.experiments.screening import order_of, screen
from setpoint.experiments.verdict import delta_of
from setpoint.load.runner import Outcome
from setpoint.metrics.table import ExchangeTable
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord

DURATION_S = 20.0
LEAST_DURATION_S = 3.0
OVERHEAD_S = 8.0  # of a run: start of the engine, warm-up, last answers; measured anew after the first block
BASELINE = "as it is"
INTERRUPTED = "interrupted"
REPLACEMENT_SEED = 20_000  # of the order in blocks that replace others
SCREENING_SEED = 10_000  # its schedules are none of those that confirm


def run_experiment(arms: Arms, *, search: bool = False, resumed: ExperimentRecord | None = None) -> ExperimentRecord:
    """Runs the blocks, before them the screening of a search, after them the checks of the answers.

    The record is saved after every run. One that was left goes on with the first block that is not whole.

    Raises:
        UsageError: the budget is too small, a name is wrong, or the one to resume was something else.
        PinsDiffer: the arms differ in more than the changes.
        EngineError: an engine cannot be started.
    """
    primary_of(endpoints_of(arms.card), arms.metric)
    arms.card_of(arms.changes[:1])
    if resumed is not None:
        demand_same(resumed, arms)
    work = _Work(arms, search=search, resumed=resumed)
    try:
        if search:
            work.screen()
        if work.confirm():
            work.check_answers()
    except BaseException as error:
        work.close("incomplete", str(error) or type(error).__name__)
        raise
    return work.record


@dataclass(slots=True)
class _Work:
    arms: Arms
    search: bool
    resumed: ExperimentRecord | None = None
    record: ExperimentRecord = field(init=False)
    duration_s: float = field(init=False)
    deadline_s: float | None = field(init=False)
    overhead_s: float = OVERHEAD_S
    chosen: tuple[Change, ...] = ()
    blocks: list[Block] = field(default_factory=list)
    runs: dict[str, list[RunRecord]] = field(default_factory=lambda: {"A": [], "B": []})
    stopped: str | None = None

    def __post_init__(self) -> None:
        arms = self.arms
        budget = arms.budget_s
        self.deadline_s = None if budget is None else time.monotonic() + budget
        self.chosen = () if self.search else arms.changes
        if self.resumed is not None:
            self.duration_s = self.resumed.duration_s
            self.record = msgspec.structs.replace(self.resumed, status="running", reason=None)
            self._restore()
            arms.experiments.save(self.record)
            return
        screening = 3 * (len(arms.changes) + 1) if self.search else 0
        self.duration_s = _duration(arms, screening + RUNS_A_BLOCK * arms.blocks)
        self.record = ExperimentRecord(
            id=arms.experiments.new_id(arms.card.name),
            created=utc_now().isoformat(timespec="seconds"),
            card_name=arms.card.name,
            card=arms.card.to_dict(),
            changes=[str(c) for c in arms.changes],
            blocks=arms.blocks,
            seed=arms.seed,
            orders=list(Design(arms.blocks, arms.seed).orders),
            load="unknown",
            duration_s=self.duration_s,
            asked=arms.asked,
        )
        arms.experiments.save(self.record)

    def _restore(self) -> None:
        """The blocks that are whole; what was measured of another is left out."""
        kept = []
        for block in range(self.record.blocks):
            made = [r for r in self.record.runs if r.block == block]
            if len(made) != RUNS_A_BLOCK:
                break
            kept += made
            self._counts({arm: [self.arms.store.open(r.run) for r in made if r.arm == arm] for arm in ("A", "B")})
        self.record = msgspec.structs.replace(self.record, runs=kept)
        if kept:
            self.arms.note(f"going on after block {len(self.blocks)} of {self.record.blocks}")

    # blocks

    @property
    def wanted(self) -> int:
        """Blocks to make: those asked for; within a budget one more for each that is left out, up to as many again."""
        asked = self.arms.blocks
        left_out = sum(bool(b.doubts) for b in self.blocks)
        return asked if self.deadline_s is None else min(asked + left_out, 2 * asked)

    def confirm(self) -> bool:
        """The blocks, one after another, while the budget lasts; whether all were made."""
        arms = self.arms
        if self.stopped is not None or not (self.chosen or arms.candidate):
            self.close("incomplete" if self.stopped else "complete", self.stopped)
            return False
        orders = (*Design(arms.blocks, arms.seed).orders, *Design(arms.blocks, arms.seed + REPLACEMENT_SEED).orders)
        while (block := len(self.blocks)) < self.wanted:
            replaces = block >= arms.blocks
            if not replaces:
                self._shorten(block)
            if not self._affords(RUNS_A_BLOCK):
                self.stopped = None if replaces else f"the budget was spent after {block} of {arms.blocks} blocks"
                break
            if replaces:
                self._update(blocks=block + 1, orders=list(orders[: block + 1]))
            began_s = time.monotonic()
            if not self._block(block, orders[block], Design(arms.blocks, arms.seed).schedule_seed(block)):
                self.stopped = INTERRUPTED
                break
            self.overhead_s = max((time.monotonic() - began_s) / RUNS_A_BLOCK - self.duration_s, 0.0)
            self._judge()
            assert self.record.analysis is not None
            arms.note(f"block {block + 1} of {self.wanted}: {self.record.analysis.reason}")
        self.close("complete" if self.stopped is None else "incomplete", self.stopped)
        return self.stopped is None

    def _block(self, block: int, order: str, seed: int) -> bool:
        """One block; False when the user ended it."""
        found: dict[str, list[RunRecord]] = {"A": [], "B": []}
        for position, arm in enumerate(order):
            changes = self.chosen if arm == "B" else ()
            outcome = self._run(changes, seed, block, arm, position)
            if outcome.interrupted:
                return False
            found[arm].append(outcome.record)
            if not block and found["A"] and found["B"]:
                self._check(found)
        self._check(found)
        self._counts(found)
        return True

    def _counts(self, found: dict[str, list[RunRecord]]) -> None:
        tables = {arm: tuple(ExchangeTable.from_record(r).measured for r in got) for arm, got in found.items()}
        doubts = tuple(d for got in found.values() for r in got if (d := _doubt(r)) is not None)
        self.blocks.append(Block(tables["A"], tables["B"], doubts))
        for arm, got in found.items():
            self.runs[arm] += got

    def _check(self, found: dict[str, list[RunRecord]]) -> None:
        allowed = self.arms.differences(found["A"], found["B"], self.chosen)
        self._update(before={d.pin: d.a for d in allowed.changes}, after={d.pin: d.b for d in allowed.changes})
        unknown = f"Neither target reports {', '.join(allowed.unknown)}: that they are equal there is an assumption."
        if allowed.unknown and unknown not in self.record.notes:
            self._note_result(unknown)

    def _run(self, changes: Sequence[Change], seed: int, block: int | None, arm: str, position: int) -> Outcome:
        arms = self.arms
        load_average = os.getloadavg()[0]
        place = Series(id=self.record.id, kind="experiment", step=len(self.record.runs))
        with arms.opened(arm, changes) as opened:
            bench = Bench(
                card=arms.card_of(changes), folder=arms.folder, opened=opened, store=arms.store, seed=seed,
                workers=arms.workers, listen=arms.listen, note=arms.note,
            )  # fmt: skip
            outcome = bench.one(rate_per_s=arms.rate_per_s, users=arms.users, duration_s=self.duration_s, series=place)
            load = bench.label(arms.rate_per_s, arms.users)
        made = ArmRun(run=outcome.record.id, block=block, arm=arm, position=position, load_average=load_average)
        self._update(runs=[*self.record.runs, made], load=load)
        return outcome

    # the answers

    def check_answers(self) -> None:
        """Asks both arms what the checks want; the verdict on the change joins speed and answers."""
        arms = self.arms
        if arms.checks is None:
            return
        quality = ArmQuality(
            arms=arms, checks=arms.checks, changes=self.chosen, series=self.record.id, made=self._asked,
            done=self.record.quality_runs,
        )  # fmt: skip
        self.close("incomplete", "the answers were not checked to the end")
        found = quality.compare()
        if quality.interrupted:
            self.close("incomplete", INTERRUPTED)
            return
        self._update(quality=found, agreement=quality.agreement)
        self._judge()
        self.close("complete", None)

    def _asked(self, made: QualityRun) -> None:
        self._update(quality_runs=[*self.record.quality_runs, made])

    # a search

    def screen(self) -> None:
        """Rounds over all values until one is left; the best of them is then confirmed."""
        arms = self.arms
        endpoint = primary_of(endpoints_of(arms.card), arms.metric)
        changes: dict[str, tuple[Change, ...]] = {BASELINE: ()} | {c.value: (c,) for c in arms.changes}
        figures: dict[str, list[float]] = {value: [] for value in changes}
        alive = tuple(changes)
        round_ = 0
        while True:
            if not self._affords(len(alive) + RUNS_A_BLOCK):
                self.stopped = "the budget was spent while values were screened"
                return
            for position, value in enumerate(order_of(alive, round_)):
                outcome = self._run(changes[value], arms.seed + SCREENING_SEED + round_, None, value, position)
                if outcome.interrupted:
                    self.stopped = INTERRUPTED
                    return
                block = Block((table := ExchangeTable.from_record(outcome.record).measured,), (table,))
                found = next(
                    c for c in analyse(arms.card, [block], metric=arms.metric).compared if c.endpoint == endpoint.name
                )
                missing = float("inf") if endpoint.lower_is_better else 0.0
                figures[value].append(missing if found.a is None else found.a)
            state = screen(
                {v: figures[v] for v in alive},
                lower_is_better=endpoint.lower_is_better,
                delta=delta_of(endpoint, arms.delta),
            )
            self._update(screened={v: [_finite(x) for x in xs] for v, xs in figures.items()})
            if state.dropped:
                arms.note(f"dropped after {round_ + 1} rounds: {', '.join(state.dropped)}")
            alive, round_ = state.alive, round_ + 1
            if state.finished:
                break
        best = next((v for v in alive if v != BASELINE), None)
        if best is None:
            self._note_result(f"No value was better than the baseline in {round_} rounds of screening.")
            return
        self.chosen = changes[best]
        arms.note(f"screening leaves {', '.join(alive)}; {self.chosen[0]} is confirmed in fresh blocks")

    # the record

    def _affords(self, runs: int) -> bool:
        if self.deadline_s is None:
            return True
        return time.monotonic() + runs * (self.duration_s + self.overhead_s) <= self.deadline_s

    def _shorten(self, block: int) -> None:
        """Shortens the runs that are left where a run costs more beside its send window than was thought.

        Runs of one block stay alike, which is what its pairs need.
        """
        if self.deadline_s is None or not self.blocks:
            return
        runs, left_s = RUNS_A_BLOCK * (self.arms.blocks - block), self.deadline_s - time.monotonic()
        fits_s = fitting_s(self.duration_s, left_s=left_s, runs=runs, overhead_s=self.overhead_s)
        if fits_s < self.duration_s:
            self.duration_s = fits_s
            beside = f"each takes {self.overhead_s:.1f} s beside that"
            self._note_result(f"From block {block + 1} on runs send for {fits_s:.1f} s: {beside}.")

    def _judge(self) -> None:
        arms = self.arms
        found = analyse(arms.card, self.blocks, metric=arms.metric, delta=arms.delta, seed=arms.seed)
        beside = beside_speed(self.runs["A"], self.runs["B"], arms.price_per_hour)
        check = next((c.quality_check for c in self.chosen if c.quality_check is not None), None)
        self._update(analysis=found, beside=beside, conclusion=conclude(found, self.record.quality, check))

    def _note_result(self, sentence: str) -> None:
        self.arms.note(sentence)
        self._update(notes=[*self.record.notes, sentence])

    def _update(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the record
        self.record = msgspec.structs.replace(self.record, **changes)
        self.arms.experiments.save(self.record)

    def close(self, status: str, reason: str | None) -> None:
        """Says how it ended."""
        self._update(status=status, reason=reason)


def fitting_s(duration_s: float, *, left_s: float, runs: int, overhead_s: float) -> float:
    """The send window with which so many runs fit into what is left; unchanged where they do anyway, or never would."""
    fits_s = left_s / runs - overhead_s
    return fits_s if LEAST_DURATION_S <= fits_s < duration_s else duration_s


def _duration(arms: Arms, runs: int) -> float:
    wanted = arms.duration_s or min(arms.card.traffic.duration, DURATION_S)
    if arms.budget_s is None:
        return wanted
    fits = arms.budget_s / runs - OVERHEAD_S
    if fits < LEAST_DURATION_S:
        needed = runs * (LEAST_DURATION_S + OVERHEAD_S)
        raise UsageError(
            f"--budget allows {max(fits, 0):.1f} s for each of {runs} runs.",
            fix=f"Give at least {needed / 60:.0f}m, or fewer --blocks (fewer than 5 stay undecided).",
        )
    return min(wanted, fits)


def _doubt(record: RunRecord) -> str | None:
    if record.meta.reason is not None:
        return f"a run is incomplete: {record.meta.reason.splitlines()[0]}"
    certificate = record.meta.client or {}
    if not certificate.get("good"):
        reasons = certificate.get("reasons") or ["it is not certified"]
        return f"the client may have been the bottleneck: {'; '.join(reasons)}"
    return None


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None
