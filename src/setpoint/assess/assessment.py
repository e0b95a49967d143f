"""The whole loop within one budget: search, diagnosis, quality, the first experiment.

Each part is bounded, and what it came to is kept in ``assessment.json`` as soon as it is known. A part that cannot run,
or whose time does not decide it, says what it would take; Ctrl-C ends the part under way and leaves the later ones.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from setpoint.assess.arms import Arms
from setpoint.assess.bench import Bench
from setpoint.assess.evaluation import evaluate_idle, evaluate_under_load, suites_of
from setpoint.assess.experiment import INTERRUPTED, run_experiment
from setpoint.assess.probe import Diagnosed, explain
from setpoint.assess.share import DIAGNOSIS, EXPERIMENT, EXPERIMENT_S, LEAST_BUDGET_S, QUALITY, SEARCH, Shares
from setpoint.assess.target import TargetOptions, open_target
from setpoint.diagnosis.probes import PROBES
from setpoint.engines.supervisor import Loading
from setpoint.errors import SetpointError, UsageError
from setpoint.experiments.change import parse_changes
from setpoint.experiments.endpoint import endpoint_of
from setpoint.experiments.plan import Proposal, rank
from setpoint.experiments.record import ExperimentRecord, ExperimentStore
from setpoint.experiments.verdict import Judgement
from setpoint.load.progress import Listener
from setpoint.load.runner import silent
from setpoint.load.search import Search
from setpoint.metrics.quality import score_suites
from setpoint.metrics.verdict import State
from setpoint.quality.questions import Sampling
from setpoint.quality.suite import Suite, load_suite
from setpoint.records.assessment import AssessmentRecord, Part, Stage, save_assessment
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.records.target import Dialect
from setpoint.report.hypothesis import subject_of
from setpoint.report.quality import contracts_words, score_words, verdicts_of
from setpoint.report.step import in_order
from setpoint.report.under_load import against_idle, own_answers, paired_words
from setpoint.units import format_duration
from setpoint.workload.card import Workload

IDLE_SHARE = 0.45  # of quality's time, the serving checks included; the rest is under load
LEAST_LOADED_S = 5.0
RUN_OVERHEAD_S = 5.0  # of a run under load: warm-up, last answers
KIND = "assess"


@dataclass(frozen=True, slots=True)
class Assessed:
    """What is assessed, and how.

    Attributes:
        card: The card.
        folder: Where it lies.
        options: How the target is reached or made.
        store: Where runs go.
        experiments: Where an experiment's record goes.
        budget_s: Bound on all measurement.
        quality: Whether answers are graded.
        experiment: Whether the first experiment is run.
        seed: Of schedules.
        workers: Client processes.
        listen: Told how a run goes.
        loading: Told how an engine's start goes.
        heard: Told how many of how many questions are answered.
        note: Told a sentence now and then.
    """

    card: Workload
    folder: Path
    options: TargetOptions
    store: RunStore
    experiments: ExperimentStore
    budget_s: float
    quality: bool = True
    experiment: bool = True
    seed: int = 1
    workers: int | None = None
    listen: Listener = silent
    loading: Callable[[Loading], None] = silent
    heard: Callable[[int, int], None] = lambda _done, _all: None
    note: Callable[[str], None] = silent


@dataclass(slots=True)
class Assessment:
    """What an assessment came to.

    Attributes:
        search: The loads that were tried.
        records: All runs of the series: loads, probes, evaluations.
        record: As kept.
        experiment: The first one; None where none was begun.
        interrupted: Whether the user ended it.
    """

    search: Search
    records: list[RunRecord]
    record: AssessmentRecord
    experiment: ExperimentRecord | None = None
    interrupted: bool = False

    def states(self, card: Workload) -> list[State]:
        """Of the search and of each quality promise: what the exit code is made of."""
        graded = verdicts_of([r for r in self.records if r.meta.quality is not None])
        promised = [p.label for p in card.promises if p.metric == "quality"]
        return [self.search.state, *(graded[p][1].state if p in graded else State.UNDECIDED for p in promised)]


def assess(asked: Assessed) -> Assessment:
    """Runs all parts that are wanted.

    Raises:
        TargetError: the target cannot be reached or does not answer.
        EngineError: it cannot be started.
        UsageError: the budget is too small for one step, or the card promises nothing.
        SuiteError: a promised suite is not there or is refused.
    """
    suites = _suites(asked)
    work = _Work(asked)
    with open_target(asked.card, asked.options, note=asked.note, loading=asked.loading) as opened:
        bench = Bench(
            card=asked.card, folder=str(asked.folder), opened=opened, store=asked.store, seed=asked.seed,
            workers=asked.workers, listen=asked.listen, note=asked.note,
        )  # fmt: skip
        found = work.search(bench)
        diagnosed = work.diagnose(found, bench)
        work.judge_quality(found, bench, suites)
    work.try_first(found, diagnosed)
    return found


def _suites(asked: Assessed) -> list[Suite]:
    """What is asked: the promised suites, or ``core``; read before anything is measured."""
    promised = suites_of(asked.card, asked.folder)
    if not asked.quality:
        return []
    return promised or [load_suite("core")]


@dataclass(slots=True)
class _Report:
    """What a part says of itself when it is over."""

    stage: Stage = Stage.DONE
    words: str = ""
    takes: str = ""


@dataclass(slots=True)
class _Work:
    asked: Assessed
    shares: Shares = field(init=False)

    def __post_init__(self) -> None:
        asked = self.asked
        wanted = [SEARCH, DIAGNOSIS]
        wanted += [QUALITY] if asked.quality else []
        wanted += [EXPERIMENT] if asked.experiment and asked.options.url is None else []
        self.shares = Shares(asked.budget_s, wanted)

    # parts

    def search(self, bench: Bench) -> Assessment:
        """The loads that keep the promises, and those that break them."""
        self.shares = Shares(self.shares.budget_s, self.shares.parts)  # the clock starts with the measurement
        allotted_s, begun_s = self.shares.of(SEARCH), time.monotonic()
        self.asked.note(f"search: {format_duration(allotted_s)} of {format_duration(self.asked.budget_s)}")
        search = bench.search(budget_s=allotted_s)
        if not search.steps:
            raise UsageError("The budget is too small for one step of the search.", fix="Give at least --budget 40s.")
        record = AssessmentRecord(series=search.series, budget_s=self.asked.budget_s)
        found = Assessment(search, [s.outcome.record for s in search.steps], record, interrupted=search.interrupted)
        open_ = bool(search.advice) and search.state is not State.MISSED
        stage = Stage.INTERRUPTED if search.interrupted else Stage.UNDECIDED if open_ else Stage.DONE
        self._keep(found, Part(
            name=SEARCH, stage=stage, words=_found_words(search), allotted_s=allotted_s,
            spent_s=time.monotonic() - begun_s, takes=search.advice,
        ))  # fmt: skip
        return found

    def diagnose(self, found: Assessment, bench: Bench) -> Diagnosed | None:
        """Why the lowest missed load broke its promises."""
        with self._part(found, DIAGNOSIS) as (report, allotted_s):
            if report.stage is not Stage.DONE:
                return None
            steps = in_order([s.outcome.record for s in found.search.steps])
            subject = subject_of(steps)
            if subject.state is State.MET:
                report.stage, report.words = Stage.NOT_RUN, "no load broke a promise, so there is nothing to explain"
                report.takes = found.search.advice
                return None
            load = next(s.load for s in found.search.steps if s.outcome.record.id == subject.record.id)
            others = [s.record for s in steps if s is not subject]

            done = explain(
                bench, subject.record, others, budget_s=allotted_s, series=found.search.series, load=load,
            )  # fmt: skip
            known = {r.id for r in found.records}
            found.records += [r for r in done.records if r.id not in known]
            found.interrupted = done.interrupted
            report.words = done.diagnosis.headline
            wanted = {name: done.not_run.get(name, "not run") for name in done.diagnosis.wanted}
            if done.interrupted:
                report.stage = Stage.INTERRUPTED
            elif wanted or not done.diagnosis.supported:
                report.stage = Stage.UNDECIDED
            report.takes = "; ".join(f"{PROBES[name].title.lower()}: {why}" for name, why in wanted.items())
            return done

    def judge_quality(self, found: Assessment, bench: Bench, suites: list[Suite]) -> None:
        """Contracts and suites while nothing else is asked, then the suites under the highest load that was met."""
        if not self.asked.quality:
            self._skip(found, QUALITY, "not wanted (--no-quality)")
            return
        with self._part(found, QUALITY) as (report, allotted_s):
            if report.stage is not Stage.DONE:
                return
            if bench.opened.target.dialect is Dialect.EMBEDDINGS:
                report.stage, report.words = Stage.NOT_RUN, "the target makes embeddings, and suites grade answers"
                return
            begun_s, sampling = time.monotonic(), Sampling(seed=self.asked.seed, concurrency=1)
            idle = evaluate_idle(
                bench.opened, bench.store, suites, sampling=sampling, card=bench.card,
                serving=bench.opened.target.dialect is Dialect.CHAT, series=self._place(found),
                heard=self.asked.heard, note=bench.note, budget_s=IDLE_SHARE * allotted_s,
            )  # fmt: skip
            found.records.append(idle.record)
            words = [contracts_words(idle.record), *(f"{score_words(s)} idle" for s in idle.scores)]
            left_s = allotted_s - (time.monotonic() - begun_s) - RUN_OVERHEAD_S
            step = found.search.met or min(found.search.steps, key=lambda s: s.load)
            if left_s >= LEAST_LOADED_S:
                load = bench.label(None, int(step.load)) if bench.closed else bench.label(step.load, None)
                bench.note(f"asking {', '.join(s.name for s in suites)} under {load}")
                outcome = evaluate_under_load(
                    bench, suites, sampling=sampling, rate_per_s=None if bench.closed else step.load,
                    users=int(step.load) if bench.closed else None, duration_s=left_s, heard=self.asked.heard,
                    series=self._place(found), sample=True,
                )  # fmt: skip
                found.records.append(outcome.record)
                found.interrupted = outcome.interrupted
                words += [f"{score_words(s)} under {load}" for s in score_suites(outcome.record.quality())]
                words += [paired_words(p) for p in against_idle([idle.record], [outcome.record])]
                words.append(own_answers(outcome.record)[1])
            else:
                report.stage, report.takes = Stage.UNDECIDED, "answers under load: a larger --budget"
            report.words = "; ".join(w for w in words if w)
            self._say_what_is_open(found, report, suites)

    def _say_what_is_open(self, found: Assessment, report: _Report, suites: list[Suite]) -> None:
        if found.interrupted:
            report.stage = Stage.INTERRUPTED
            return
        graded = [r for r in found.records if r.meta.quality is not None]
        open_ones = [p for p, (_, v) in verdicts_of(graded).items() if v.state is State.UNDECIDED]
        tasks = sum(len(s.tasks) for s in suites)
        short = [r for r in graded if r.quality().height < tasks]
        if open_ones or short:
            report.stage = Stage.UNDECIDED
            all_of_them = f"all {tasks:,} tasks, idle and under load: setpoint eval CARD, then with --under-load"
            report.takes = "; ".join([x for x in (report.takes, all_of_them) if x])

    def try_first(self, found: Assessment, diagnosed: Diagnosed | None) -> None:
        """The first row of the playbook that is one flag of this engine, in both arms."""
        if not self.asked.experiment:
            self._skip(found, EXPERIMENT, "not wanted (--no-experiment)")
            return
        with self._part(found, EXPERIMENT) as (report, allotted_s):
            if report.stage is not Stage.DONE:
                return
            first = self._first(found, diagnosed, report)
            if first is None or diagnosed is None:
                report.stage = Stage.NOT_RUN
                return
            assert first.change is not None
            if self.asked.options.url is not None:
                report.stage, report.words = Stage.NOT_RUN, f"{first.change} ({first.title}) is the first to try"
                report.takes = "an engine that Setpoint starts: one that is reached by URL cannot be changed from here"
                return
            if allotted_s < EXPERIMENT_S:
                report.stage, report.words = Stage.NOT_RUN, f"{first.change} ({first.title}) is the first to try"
                minutes, least = -(-EXPERIMENT_S // 60), -(-LEAST_BUDGET_S // 60)
                subject = diagnosed.diagnosis.subject
                report.takes = (
                    f"about {minutes:.0f} min, and {format_duration(allotted_s)} were left: "
                    f"setpoint experiment run CARD --plan {subject}, or --budget {least:.0f}m or more"
                )
                return
            self._run_first(found, diagnosed, first, allotted_s, report)

    def _first(self, found: Assessment, diagnosed: Diagnosed | None, report: _Report) -> Proposal | None:
        if diagnosed is None:
            failed = any(p.name == DIAGNOSIS and p.stage is Stage.FAILED for p in found.record.parts)
            what = "the diagnosis failed" if failed else "no load broke a promise"
            report.words = f"{what}, so there is nothing to try first"
            return None
        proposals = rank(diagnosed.diagnosis, diagnosed.records[0].meta.pins)
        first = next((p for p in proposals if p.change is not None), None)
        if first is None:
            report.words = "no row of the playbook is one flag of this engine for this diagnosis"
            report.takes = proposals[0].title if proposals else "a diagnosis that supports a cause"
        return first

    def _run_first(
        self, found: Assessment, diagnosed: Diagnosed, first: Proposal, allotted_s: float, report: _Report
    ) -> None:
        asked, subject = self.asked, diagnosed.records[0]
        step = next(s for s in found.search.steps if s.outcome.record.id == subject.id)
        broken = {b.promise for b in diagnosed.diagnosis.broken}
        endpoints = [e for p in asked.card.promises if p.label in broken and (e := endpoint_of(p)) is not None]
        closed = found.search.unit == "users"
        assert first.change is not None
        asked.note(f"first experiment: {first.change} ({first.title})")
        arms = Arms(
            card=asked.card,
            folder=str(asked.folder),
            options=asked.options,
            store=asked.store,
            experiments=asked.experiments,
            changes=parse_changes(first.change),
            seed=asked.seed,
            rate_per_s=None if closed else step.load,
            users=int(step.load) if closed else None,
            budget_s=allotted_s,
            metric=endpoints[0].name if endpoints else None,
            workers=asked.workers,
            listen=asked.listen,
            loading=asked.loading,
            note=asked.note,
        )
        record = run_experiment(arms)
        found.experiment = record
        found.record = msgspec.structs.replace(found.record, experiment=record.id)
        found.interrupted = record.reason == INTERRUPTED
        said = record.conclusion
        judgement = Judgement.UNDECIDED if said is None else said.judgement
        report.words = f"{first.change} ({first.title}): {judgement}" + (
            "" if said is None or record.analysis is None else f": {said.reason}; {record.analysis.reason}"
        )
        if found.interrupted:
            report.stage = Stage.INTERRUPTED
        elif judgement is Judgement.UNDECIDED:
            report.stage, report.takes = (
                Stage.UNDECIDED,
                f"more blocks: setpoint experiment run CARD --change {first.change} --blocks 12"
                + ("" if first.quality_check == "none" else " --quality core"),
            )

    # bookkeeping

    @contextlib.contextmanager
    def _part(self, found: Assessment, name: str) -> Iterator[tuple[_Report, float]]:
        """Bounds a part and keeps what it says; a failure or Ctrl-C ends the part, not the assessment's records."""
        report, allotted_s, begun_s = _Report(), self.shares.of(name), time.monotonic()
        if found.interrupted:
            report.stage, report.words = Stage.NOT_RUN, "the assessment was interrupted before"
        else:
            self.asked.note(f"{name}: {format_duration(allotted_s)}")
        try:
            yield report, allotted_s
        except SetpointError as error:
            report.stage, report.words, report.takes = Stage.FAILED, error.message, error.fix
        except KeyboardInterrupt:
            found.interrupted = True
            report.stage, report.words = Stage.INTERRUPTED, report.words or "interrupted"
        spent_s = time.monotonic() - begun_s
        self._keep(found, Part(
            name=name, stage=report.stage, words=report.words, allotted_s=allotted_s, spent_s=spent_s,
            takes=report.takes,
        ))  # fmt: skip
        if report.stage is not Stage.DONE:
            self.asked.note(f"{name} {report.stage}: {report.words}")

    def _skip(self, found: Assessment, name: str, why: str) -> None:
        self._keep(found, Part(name=name, stage=Stage.NOT_RUN, words=why, allotted_s=0.0, spent_s=0.0))

    def _keep(self, found: Assessment, part: Part) -> None:
        found.record = msgspec.structs.replace(found.record, parts=[*found.record.parts, part])
        save_assessment(found.record, found.records[0].path)

    def _place(self, found: Assessment) -> Series:
        return Series(id=found.search.series, kind=KIND, step=len(found.records))


def _found_words(search: Search) -> str:
    """How many loads were tried, and what came of them."""
    loads = {step.load for step in search.steps}
    kept = {step.load for step in search.steps if step.state is State.MET}
    tried = f"{len(loads)} load{'' if len(loads) == 1 else 's'} tried in {len(search.steps)} run"
    tried += "" if len(search.steps) == 1 else "s"
    if kept:
        return f"{tried}, every promise kept at {len(kept)}"
    lowest = search.state is State.MISSED
    return f"{tried}, {'even the lowest breaks a promise' if lowest else 'none could be shown to keep every promise'}"
