"""What ``setpoint bench`` does with what it parsed: open the target, measure, print."""

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
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.report.build import build
from setpoint.report.context import context_of
from setpoint.report.text import render_text
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
        report = build(records, context_of(request.runs, records))
    if request.json:
        answer: dict[str, Any] = {"runs": [r.id for r in records], "exit_code": code, "report": report.to_dict()}
        emit_json(answer)
        return code
    stdout().print(render_text(report, width=stdout().width))
    if search is not None and search.advice:
        stdout().print(search.advice)
    stderr().print(f"report: setpoint report {records[-1].id}", soft_wrap=True)
    return code


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
