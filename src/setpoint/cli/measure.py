"""What ``bench`` and ``assess`` have in common: open the target, measure, print, write the report."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from setpoint.assess.bench import Bench
from setpoint.assess.target import TargetOptions, open_target
from setpoint.cli import INTERRUPTED
from setpoint.cli.output import emit_json, exit_code, stderr, stdout
from setpoint.cli.progress import Reporter
from setpoint.errors import UsageError
from setpoint.load.search import Search
from setpoint.metrics.verdict import State
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.report.build import build, planned
from setpoint.report.text import render_text
from setpoint.report.write import write_report
from setpoint.workload.reading import load_card

SEARCH_BUDGET_S = 240.0


@dataclass(frozen=True, slots=True)
class Request:
    """What the user asked for.

    Attributes:
        card: Path of the card.
        target: How to reach or make the target.
        rates: Session starts a second; more than one is a sweep.
        users: Users in closed loop, likewise.
        search: Search for maximum goodput.
        duration_s: Of one run.
        budget_s: Of everything.
        seed: Of schedules.
        workers: Client processes.
        runs: Folder of records.
        json: Answer as JSON.
        report: Write the HTML report.
        output: Where to.
    """

    card: Path
    target: TargetOptions
    rates: list[float] = field(default_factory=list)
    users: list[int] = field(default_factory=list)
    search: bool = False
    duration_s: float | None = None
    budget_s: float | None = None
    seed: int = 1
    workers: int | None = None
    runs: Path = Path(".setpoint/runs")
    json: bool = False
    report: bool = False
    output: Path | None = None


def measure(request: Request) -> int:
    """Does it, prints the answer, and returns the exit code."""
    if request.rates and request.users:
        raise UsageError("--rate and --concurrency cannot both be given: open loop or closed loop.")
    if request.search and (len(request.rates) > 1 or len(request.users) > 1):
        raise UsageError("--find-goodput takes one --rate or --concurrency to begin with, or none.")
    card = load_card(request.card)
    with Reporter(quiet=request.json) as reporter:
        note = reporter.note
        with open_target(card, request.target, note=note, loading=reporter.loading) as opened:
            bench = Bench(
                card=card,
                folder=str(request.card.parent),
                opened=opened,
                store=RunStore(request.runs),
                seed=request.seed,
                workers=request.workers,
                listen=reporter.run,
                note=note,
            )
            records, code, search = _measure(bench, request)
            if request.report and code != INTERRUPTED:
                code = _with_quality(bench, records, code, search)
        report = build(records, planned(request.runs, records))
    written = write_report(report, request.output or _report_path(request.runs, records)) if request.report else None
    if request.json:
        answer: dict[str, Any] = {"runs": [r.id for r in records], "exit_code": code, "report": report.to_dict()}
        if written is not None:
            answer["html"] = str(written)
        emit_json(answer)
        return code
    stdout().print(render_text(report, width=stdout().width))
    if search is not None and search.advice:
        stdout().print(search.advice)
    shown = written if written is not None else f"setpoint report {records[-1].id}"
    (stdout() if written else stderr()).print(f"report: {shown}", soft_wrap=True)
    return code


def _with_quality(bench: Bench, records: list[RunRecord], code: int, search: Search | None) -> int:
    """The card's quality promises, on the target that was just measured: adds the record, returns the exit code."""
    if not any(p.metric == "quality" for p in bench.card.promises):
        return code
    from setpoint.assess.evaluation import evaluate_idle, suites_of

    suites = suites_of(bench.card, Path(bench.folder))
    bench.note(f"asking the suites {', '.join(s.name for s in suites)}")
    series = None if search is None else Series(id=search.series, kind="goodput", step=len(records))
    found = evaluate_idle(bench.opened, bench.store, suites, card=bench.card, series=series, note=bench.note)
    records.append(found.record)
    loads = State.UNDECIDED if search is None else search.state
    return exit_code([loads, *(v.state for v in found.verdicts)])


def _measure(bench: Bench, request: Request) -> tuple[list[RunRecord], int, Search | None]:
    if request.search:
        start = request.rates[0] if request.rates else float(request.users[0]) if request.users else None
        closed = True if request.users else False if request.rates else None
        search = bench.search(budget_s=request.budget_s or SEARCH_BUDGET_S, start=start, closed=closed)
        if not search.steps:
            raise UsageError("The budget is too small for one step.", fix="Give at least --budget 20s.")
        unmeasured = [State.UNDECIDED for p in bench.card.promises if p.metric == "quality"]
        code = INTERRUPTED if search.interrupted else exit_code([search.state, *unmeasured])
        return [s.outcome.record for s in search.steps], code, search
    if len(request.rates) > 1 or len(request.users) > 1:
        outcomes = bench.sweep(
            rates=request.rates, users=request.users, duration_s=request.duration_s, budget_s=request.budget_s
        )
    else:
        length = request.duration_s
        if request.budget_s is not None:
            length = min(length or bench.card.traffic.duration, request.budget_s)
        rate = request.rates[0] if request.rates else None
        users = request.users[0] if request.users else None
        outcomes = [bench.one(rate_per_s=rate, users=users, duration_s=length)]
    if any(o.interrupted for o in outcomes):
        return [o.record for o in outcomes], INTERRUPTED, None
    return [o.record for o in outcomes], exit_code(v.state for o in outcomes for v in o.verdicts), None


def _report_path(runs: Path, records: list[RunRecord]) -> Path:
    return runs.parent / "reports" / f"{records[0].id}.html"
