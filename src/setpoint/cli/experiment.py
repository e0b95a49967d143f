"""``setpoint experiment``: propose, run and show one-variable changes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from setpoint.cli import options as opt
from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, pairs, stderr, stdout, table
from setpoint.errors import UsageError
from setpoint.units import format_duration, format_number, format_share, parse_share

if TYPE_CHECKING:
    from setpoint.assess.arms import Candidate, Checks
    from setpoint.assess.target import TargetOptions
    from setpoint.experiments.change import Change
    from setpoint.experiments.plan import Proposal
    from setpoint.experiments.record import ExperimentRecord
    from setpoint.experiments.verdict import Compared

group = typer.Typer(no_args_is_help=True, help="Propose, run and judge one-variable changes.")
app.add_typer(group, name="experiment")

DECIDED, NOT_BETTER, OPEN = 0, 1, 3
DISTRIBUTIONS = "distributions"
SHOWN = 8
Ref = Annotated[str, typer.Argument(metavar="RUN", help="Id, a unique beginning or end of one, a path, or latest.")]


@group.command("plan")
def plan(ref: Ref, *, runs: opt.Runs = opt.RUNS, json: Json = False) -> None:
    """Rank the playbook for a run's bottleneck by expected gain, with what would refute each."""
    from setpoint.records.store import RunStore

    headline, proposals = _proposals(RunStore(runs), ref)
    if json:
        emit_json({"headline": headline, "proposals": proposals})
        return
    console = stdout()
    console.print(headline, soft_wrap=True)
    rows = [
        (str(i), p.change or "", p.title, p.bottleneck, f"{p.gain_share:.0%}" if p.gain_share else "unknown")
        for i, p in enumerate(proposals[:SHOWN], 1)
    ]
    console.print(table(("", "--change", "technique", "for", "gain"), rows))
    for i, p in enumerate(proposals[:SHOWN], 1):
        check = "" if p.quality_check == "none" else f" Check: {p.quality_check}."
        backfires = f" Backfires when {' or '.join(p.backfires)}." if p.backfires else ""
        console.print(f"{i}  {p.expected}. Price: {p.price}.{check}{backfires}", soft_wrap=True)
        console.print(f"   Would be refuted by: {p.refuted_by}", soft_wrap=True)
    if len(proposals) > SHOWN:
        console.print(f"{len(proposals) - SHOWN} more with --json.")


@group.command("run")
@opt.takes_target("url", "metrics_url", "gpu_metrics_url", "insecure", "ca_file", "port")
def run(
    card: opt.Card,
    *,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--change",
            metavar="engine.FLAG=VALUE",
            help="What arm B changes (or model=NAME); several values with --search.",
        ),
    ] = None,
    plan_of: Annotated[
        str | None, typer.Option("--plan", metavar="RUN", help="Take the top row of `experiment plan RUN`.")
    ] = None,
    combined: Annotated[bool, typer.Option("--combined", help="Allow several --change at once.")] = False,
    base_url: Annotated[str | None, typer.Option(help="Arm A is this server; with --candidate-url.")] = None,
    candidate_url: Annotated[str | None, typer.Option(help="Arm B is this server; with --base-url.")] = None,
    variable: Annotated[
        str | None, typer.Option(help="The one pin in which the two servers may differ, e.g. reported.total_slots.")
    ] = None,
    base_pin: Annotated[
        list[str] | None,
        typer.Option("--base-pin", metavar="NAME=VALUE", help="What A does not report: the pin told.NAME."),
    ] = None,
    candidate_pin: Annotated[
        list[str] | None, typer.Option("--candidate-pin", metavar="NAME=VALUE", help="Likewise of B.")
    ] = None,
    quality: Annotated[
        list[str] | None,
        typer.Option(help="Compare the answers too: core, a JSONL file, distributions; repeatable."),
    ] = None,
    quality_idle: Annotated[
        bool, typer.Option("--quality-idle", help="Ask the suites on an idle engine, not under the load.")
    ] = False,
    quality_delta: Annotated[str | None, typer.Option(help='Loss of score that is still "no worse"; 5%.')] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="EXPERIMENT", help="Go on with one that was left; same options otherwise.")
    ] = None,
    search: Annotated[bool, typer.Option("--search", help="Screen several values, then confirm the best.")] = False,
    blocks: Annotated[int, typer.Option(min=1, max=200, help="Blocks of four runs; fewer than 5 stay undecided.")] = 5,
    metric: Annotated[
        str | None, typer.Option(help='What the verdict is about, e.g. "p95 ttft"; the first latency promise.')
    ] = None,
    delta: Annotated[str | None, typer.Option(help="Relative change that counts as the same; 5%.")] = None,
    rate: Annotated[str | None, typer.Option(help='Session starts, e.g. "2/s".')] = None,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Users in closed loop.")] = None,
    duration: Annotated[str | None, typer.Option(help="Send window of one run; 20 s at most unless given.")] = None,
    budget: opt.Budget = None,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0, help="Of the service, for the cost of a token.")
    ] = None,
    target: opt.TargetArguments,
    seed: opt.Seed = 1,
    workers: opt.Workers = None,
    runs: opt.Runs = opt.RUNS,
    json: Json = False,
) -> None:
    """Run A (the target as given) against B (with one change) in randomised blocks, and judge.

    Exit codes: 0 better, 1 worse or the same, 3 undecided.
    """
    from setpoint.assess.arms import Arms
    from setpoint.assess.experiment import run_experiment
    from setpoint.cli.progress import Reporter
    from setpoint.experiments.record import ExperimentStore
    from setpoint.records.store import RunStore
    from setpoint.workload.reading import load_card

    if rate is not None and concurrency is not None:
        raise UsageError("--rate and --concurrency cannot both be given: open loop or closed loop.")
    options = opt.target_options(target, url=base_url)
    store, experiments = RunStore(runs), ExperimentStore(runs.parent / "experiments")
    candidate = _candidate(options, candidate_url, variable, base_pin, candidate_pin)
    if candidate is not None and (change or plan_of or search or combined):
        raise UsageError(
            "Two servers differ as they are: --change, --plan, --search and --combined are for engines here."
        )
    if resume is not None and search:
        raise UsageError("A search is not resumed: confirm the value that it found with --change.")
    changes = () if candidate else _changes(change, _top_row(store, plan_of), search=search, combined=combined)
    checks = _checks(quality, idle=quality_idle, delta=opt.parse("--quality-delta", quality_delta, parse_share))
    loaded = load_card(card)
    with Reporter(quiet=json) as reporter:
        arms = Arms(
            card=loaded,
            folder=str(card.parent),
            options=options,
            store=store,
            experiments=experiments,
            changes=changes,
            candidate=candidate,
            checks=checks,
            blocks=blocks,
            seed=seed,
            rate_per_s=next(iter(opt.numbers("--rate", rate)), None),
            users=concurrency,
            duration_s=opt.seconds("--duration", duration),
            budget_s=opt.seconds("--budget", budget),
            metric=metric,
            delta=opt.parse("--delta", delta, parse_share),
            price_per_hour=price_per_hour,
            workers=workers,
            listen=reporter.run,
            loading=reporter.loading,
            note=reporter.note,
        )
        left = None if resume is None else experiments.open(resume)
        record = run_experiment(arms, search=search, resumed=left)
    _show(record, runs, json=json)
    raise typer.Exit(_exit(record))


@group.command("show")
def show(
    ref: Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Id, a unique part of one, or latest.")] = "latest",
    *,
    runs: opt.Runs = opt.RUNS,
    json: Json = False,
) -> None:
    """Show an experiment from its record; exit codes as for run."""
    from setpoint.experiments.record import ExperimentStore

    record = ExperimentStore(runs.parent / "experiments").open(ref)
    _show(record, runs, json=json)
    raise typer.Exit(_exit(record))


def _proposals(store: object, ref: str) -> tuple[str, tuple["Proposal", ...]]:
    from setpoint.diagnosis.diagnosis import diagnose_records
    from setpoint.experiments.plan import rank
    from setpoint.records.store import RunStore
    from setpoint.report.build import with_series

    assert isinstance(store, RunStore)
    record = store.open(ref)
    others = [r for r in with_series(store, [record]) if r.id != record.id]
    found = diagnose_records(record, others)
    return found.headline, rank(found, record.meta.pins)


def _top_row(store: object, ref: str | None) -> str | None:
    """The first proposal that is one flag of the engine."""
    if ref is None:
        return None
    headline, proposals = _proposals(store, ref)
    found = next((p for p in proposals if p.change is not None), None)
    if found is None:
        raise UsageError(
            f"No row of the playbook is one flag of this engine for this diagnosis. {headline}", fix="Give --change."
        )
    stderr().print(f"{found.change}: {found.title} ({found.expected})", soft_wrap=True)
    return found.change


def _changes(given: list[str] | None, top: str | None, *, search: bool, combined: bool) -> "tuple[Change, ...]":
    from setpoint.experiments.change import parse_changes

    if bool(given) == (top is not None):
        raise UsageError("Give either --change engine.FLAG=VALUE or --plan RUN.")
    parsed = [parse_changes(text) for text in (given or [str(top)])]
    if search:
        if len(parsed) != 1 or len(parsed[0]) < 2:
            raise UsageError(
                "--search takes one --change with several values.", fix="For example engine.n_parallel=2,4,8."
            )
        return parsed[0]
    if any(len(values) > 1 for values in parsed):
        raise UsageError("--change names several values of one flag.", fix="Add --search, or give one value.")
    changes = tuple(values[0] for values in parsed)
    if len({c.flag for c in changes}) < len(changes):
        raise UsageError("--change names one flag twice.")
    if len(changes) > 1 and any(c.flag is None for c in changes):
        raise UsageError("A model is changed alone: much else follows from it.")
    if len(changes) > 1 and not combined:
        raise UsageError(
            "One variable at a time: the effect of several changes cannot be told apart.",
            fix="Run them one by one, then all of them with --combined.",
        )
    return changes


def _candidate(
    base: "TargetOptions", url: str | None, variable: str | None, base_pin: list[str] | None, pin: list[str] | None
) -> "Candidate | None":
    """The second server, where both arms are servers."""
    from dataclasses import replace

    from setpoint.assess.arms import Candidate

    if url is None:
        if base.url is not None or variable is not None or base_pin or pin:
            raise UsageError("--base-url, --variable and pins of the arms go with --candidate-url.")
        return None
    if base.url is None or variable is None:
        raise UsageError("--candidate-url needs --base-url and --variable, the one pin that may differ.")
    told = opt.flags(base_pin, "--base-pin"), opt.flags(pin, "--candidate-pin")
    return Candidate(replace(base, url=url), variable, told)


def _checks(names: list[str] | None, *, idle: bool, delta: float | None) -> "Checks | None":
    """What is to be asked about the answers."""
    from setpoint.assess.arms import Checks
    from setpoint.quality.compare import DELTA
    from setpoint.quality.suite import load_suite

    if not names:
        if idle or delta is not None:
            raise UsageError("--quality-idle and --quality-delta go with --quality.", fix="For example --quality core.")
        return None
    suites = tuple(load_suite(name) for name in dict.fromkeys(names) if name != DISTRIBUTIONS)
    return Checks(suites, DISTRIBUTIONS in names, idle, delta=DELTA if delta is None else delta)


def _exit(record: "ExperimentRecord") -> int:
    from setpoint.cli import INTERRUPTED
    from setpoint.experiments.verdict import Judgement

    if record.reason == "interrupted":
        return INTERRUPTED
    said = record.conclusion or record.analysis
    judgement = Judgement.UNDECIDED if said is None else said.judgement
    if judgement is Judgement.UNDECIDED:
        return OPEN
    return DECIDED if judgement is Judgement.BETTER else NOT_BETTER


def _show(record: "ExperimentRecord", runs: Path, *, json: bool) -> None:
    from setpoint.experiments.analysis import change_words
    from setpoint.experiments.record import ExperimentStore

    path = ExperimentStore(runs.parent / "experiments").path_of(record.id)
    if json:
        emit_json({"exit_code": _exit(record), "path": path, "experiment": record})
        return
    console = stdout()
    found = record.analysis
    arm = ", ".join(f"{pin}: {record.before.get(pin)} → {value}" for pin, value in record.after.items())
    what = arm or ", ".join(record.changes)
    verdict = "no verdict" if found is None else f"{str(found.judgement).upper()} in {found.primary}: {found.reason}"
    console.print(f"{what}. {verdict}", soft_wrap=True)
    if record.conclusion is not None:
        console.print(
            f"On the whole {str(record.conclusion.judgement).upper()}: {record.conclusion.reason}.", soft_wrap=True
        )
    if record.reason is not None:
        console.print(f"Incomplete: {record.reason}", soft_wrap=True)
    for sentence in record.notes:
        console.print(sentence, soft_wrap=True)
    if record.screened:
        rows = [(v, *("failed" if x is None else format_number(x) for x in xs)) for v, xs in record.screened.items()]
        width = max(len(row) for row in rows)
        names = ("value", *(f"round {i}" for i in range(1, width)))
        console.print(table(names, (row + ("",) * (width - len(row)) for row in rows), title="screening"))
    if found is not None:
        if found.worse:
            console.print(f"At a price: {', '.join(found.worse)} got worse.", soft_wrap=True)
        rows = [
            (str(c.judgement), c.endpoint, _figure(c, c.a), _figure(c, c.b), change_words(c)) for c in found.compared
        ]
        console.print(table(("verdict", "endpoint", "A", "B", "B against A [95%]"), rows))
        noise = "unknown" if found.noise is None else f"{found.noise:.1%}"
        console.print(
            f"A/A control ({found.primary}, nothing changed): {change_words(found.control)}; a typical block differs "
            f"by {noise}.", soft_wrap=True,
        )  # fmt: skip
        for sentence in found.left_out:
            console.print(f"Left out: {sentence}", soft_wrap=True)
        if found.unbounded:
            needs = ", ".join(f"{name} (needs {n:,})" for name, n in found.unbounded.items())
            console.print(f"Too few exchanges an arm and block for: {needs}", soft_wrap=True)
    if record.beside:
        console.print(table(("beside speed", "A", "B"), ((b.name, b.shown(b.a), b.shown(b.b)) for b in record.beside)))
    _show_quality(record)
    loads = [r.load_average for r in record.runs]
    console.print(
        pairs(
            {
                "load": f"{record.load}, {format_duration(record.duration_s)} a run",
                "blocks": f"{len({r.block for r in record.runs if r.block is not None})} of {record.blocks}, "
                f"{' '.join(record.orders)}, {len(record.runs)} runs",
                "load average when runs began": f"{min(loads):.1f} to {max(loads):.1f}" if loads else "unknown",
                "record": str(path),
            }
        )
    )


def _show_quality(record: "ExperimentRecord") -> None:
    from setpoint.cli.judge_quality import print_comparison

    for found in record.quality:
        print_comparison(found)
    said = record.agreement
    if said is not None:
        stdout().print(
            f"{said.answers} answers of both arms: {said.same:.0%} are the same text; on average they part after "
            f"{said.until:.0%} of it. Reported, never judged.", soft_wrap=True,
        )  # fmt: skip


def _figure(found: "Compared", value: float | None) -> str:
    if value is None:
        return "unknown"
    if not found.ratio:
        return format_share(value)
    return format_duration(value) if found.lower_is_better else format_number(value)
