"""An experiment on a live target: each run of each arm on an engine that is started for it alone."""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from setpoint.assess.bench import Bench
from setpoint.assess.target import TargetOptions, open_target
from setpoint.clock import utc_now
from setpoint.engines.supervisor import Loading
from setpoint.errors import UsageError
from setpoint.experiments.analysis import Block, analyse
from setpoint.experiments.beside import beside_speed
from setpoint.experiments.change import Change, changed_flags, changed_model, check_arms
from setpoint.experiments.design import RUNS_A_BLOCK, Design
from setpoint.experiments.endpoint import endpoints_of, primary_of
from setpoint.experiments.record import ArmRun, ExperimentRecord, ExperimentStore
from setpoint.experiments.screening import order_of, screen
from setpoint.experiments.verdict import delta_of
from setpoint.load.progress import Listener
from setpoint.load.runner import Outcome, silent
from setpoint.metrics.table import ExchangeTable
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.workload.card import Workload

DURATION_S = 20.0
LEAST_DURATION_S = 3.0
OVERHEAD_S = 8.0  # of a run: start of the engine, warm-up, last answers; measured anew after the first block
BASELINE = "as it is"
INTERRUPTED = "interrupted"
SCREENING_SEED = 10_000  # its schedules are none of those that confirm


@dataclass(frozen=True, slots=True)
class Arms:
    """What is compared, and how it is measured.

    Attributes:
        card: The card.
        folder: Folder that a card's trace is relative to.
        options: The first arm: an engine to start.
        store: Where runs go.
        experiments: Where the experiment's record goes.
        changes: The second arm's; of a search: the values to try, all of one flag.
        blocks: How many.
        seed: Of order and schedules.
        rate_per_s: Session starts a second, instead of the card's.
        users: Users of a closed loop, instead of the card's arrivals.
        duration_s: Send window of a run; bounded by the budget.
        budget_s: Bound on everything; None has none.
        metric: Name of the primary endpoint.
        delta: Relative change that counts as the same.
        price_per_hour: Of the service, for the cost of a token.
        workers: Client processes.
        listen: Told how a run goes.
        loading: Told how an engine's start goes.
        note: Told a sentence now and then.
    """

    card: Workload
    folder: str
    options: TargetOptions
    store: RunStore
    experiments: ExperimentStore
    changes: tuple[Change, ...]
    blocks: int = 5
    seed: int = 1
    rate_per_s: float | None = None
    users: int | None = None
    duration_s: float | None = None
    budget_s: float | None = None
    metric: str | None = None
    delta: float | None = None
    price_per_hour: float | None = None
    workers: int | None = None
    listen: Listener = silent
    loading: Callable[[Loading], None] = silent
    note: Callable[[str], None] = silent


def run_experiment(arms: Arms, *, search: bool = False) -> ExperimentRecord:
    """Runs the blocks, and before them the screening of a search; the record is saved after every run.

    Raises:
        UsageError: the target is reached by URL, the budget is too small, or a name is wrong.
        PinsDiffer: the arms differ in more than the changes.
        EngineError: an engine cannot be started.
    """
    if arms.options.url is not None:
        raise UsageError(
            "An engine that is reached by URL cannot be changed from here.",
            fix="Let setpoint start it (--engine, --model, --flag).",
        )
    primary_of(endpoints_of(arms.card), arms.metric)
    work = _Work(arms, search=search)
    try:
        if search:
            work.screen()
        work.confirm()
    except BaseException as error:
        work.close("incomplete", str(error) or type(error).__name__)
        raise
    return work.record


@dataclass(slots=True)
class _Work:
    arms: Arms
    search: bool
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
        screening = 3 * (len(arms.changes) + 1) if self.search else 0
        self.duration_s = _duration(arms, screening + RUNS_A_BLOCK * arms.blocks)
        self.chosen = () if self.search else arms.changes
        design = Design(arms.blocks, arms.seed)
        self.record = ExperimentRecord(
            id=arms.experiments.new_id(arms.card.name),
            created=utc_now().isoformat(timespec="seconds"),
            card_name=arms.card.name,
            card=arms.card.to_dict(),
            changes=[str(c) for c in arms.changes],
            blocks=arms.blocks,
            seed=arms.seed,
            orders=list(design.orders),
            load="unknown",
            duration_s=self.duration_s,
        )
        arms.experiments.save(self.record)

    # blocks

    def confirm(self) -> None:
        """The blocks, one after another, while the budget lasts."""
        arms, design = self.arms, Design(self.arms.blocks, self.arms.seed)
        if self.stopped is not None or not self.chosen:
            self.close("incomplete" if self.chosen else "complete", self.stopped)
            return
        for block, order in enumerate(design.orders):
            if not self._affords(RUNS_A_BLOCK):
                self.stopped = f"the budget was spent after {block} of {arms.blocks} blocks"
                break
            began_s = time.monotonic()
            if not self._block(block, order, design.schedule_seed(block)):
                self.stopped = INTERRUPTED
                break
            self.overhead_s = max((time.monotonic() - began_s) / RUNS_A_BLOCK - self.duration_s, 0.0)
            self._judge()
            assert self.record.analysis is not None
            arms.note(f"block {block + 1} of {arms.blocks}: {self.record.analysis.reason}")
        self.close("complete" if self.stopped is None else "incomplete", self.stopped)

    def _block(self, block: int, order: str, seed: int) -> bool:
        """One block; False when the user ended it."""
        found: dict[str, list[Outcome]] = {"A": [], "B": []}
        for position, arm in enumerate(order):
            changes = self.chosen if arm == "B" else ()
            outcome = self._run(changes, seed, block, arm, position)
            if outcome.interrupted:
                return False
            found[arm].append(outcome)
            if not block and found["A"] and found["B"]:
                self._check(found)
        self._check(found)
        tables = {arm: tuple(ExchangeTable.from_record(o.record).measured for o in got) for arm, got in found.items()}
        doubts = tuple(d for got in found.values() for o in got if (d := _doubt(o)) is not None)
        self.blocks.append(Block(tables["A"], tables["B"], doubts))
        for arm, got in found.items():
            self.runs[arm] += [o.record for o in got]
        return True

    def _check(self, found: dict[str, list[Outcome]]) -> None:
        a, b = ([o.record for o in found[arm]] for arm in ("A", "B"))
        differences = check_arms(a, b, self.chosen)
        self._update(before={d.pin: d.a for d in differences}, after={d.pin: d.b for d in differences})

    def _run(self, changes: Sequence[Change], seed: int, block: int | None, arm: str, position: int) -> Outcome:
        arms = self.arms
        options = replace(
            arms.options,
            flags=changed_flags(arms.options.flags, changes),
            model=changed_model(arms.options.model, changes),
        )
        load_average = os.getloadavg()[0]
        place = Series(id=self.record.id, kind="experiment", step=len(self.record.runs))
        with open_target(arms.card, options, loading=arms.loading) as opened:
            bench = Bench(
                card=arms.card, folder=arms.folder, opened=opened, store=arms.store, seed=seed, workers=arms.workers,
                listen=arms.listen, note=arms.note,
            )  # fmt: skip
            outcome = bench.one(rate_per_s=arms.rate_per_s, users=arms.users, duration_s=self.duration_s, series=place)
            load = bench.label(arms.rate_per_s, arms.users)
        made = ArmRun(run=outcome.record.id, block=block, arm=arm, position=position, load_average=load_average)
        self._update(runs=[*self.record.runs, made], load=load)
        return outcome

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

    def _judge(self) -> None:
        arms = self.arms
        found = analyse(arms.card, self.blocks, metric=arms.metric, delta=arms.delta, seed=arms.seed)
        beside = beside_speed(self.runs["A"], self.runs["B"], arms.price_per_hour)
        self._update(analysis=found, beside=beside)

    def _note_result(self, sentence: str) -> None:
        self.arms.note(sentence)
        self._update(notes=[*self.record.notes, sentence])

    def _update(self, **changes: Any) -> None:  # noqa: ANN401 - fields of the record
        self.record = msgspec.structs.replace(self.record, **changes)
        self.arms.experiments.save(self.record)

    def close(self, status: str, reason: str | None) -> None:
        """Says how it ended."""
        self._update(status=status, reason=reason)


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


def _doubt(outcome: Outcome) -> str | None:
    if outcome.record.meta.reason is not None:
        return f"a run is incomplete: {outcome.record.meta.reason.splitlines()[0]}"
    if not outcome.certificate.good:
        return f"the client may have been the bottleneck: {'; '.join(outcome.certificate.reasons)}"
    return None


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None
