"""``setpoint runs`` and ``setpoint report``: what was measured, from records alone."""

from pathlib import Path
from typing import Annotated

import typer

from setpoint.cli import options as opt
from setpoint.cli.app import app
from setpoint.cli.output import STATE_STYLE, Json, emit_json, exit_code, stderr, stdout, table
from setpoint.metrics.verdict import State

group = typer.Typer(invoke_without_command=True, help="List, show and compare runs.")
app.add_typer(group, name="runs")

RunsHere = Annotated[Path | None, typer.Option("--runs", help="Folder of run records.")]
Ref = Annotated[str, typer.Argument(metavar="RUN", help="Id, a unique beginning or end of one, a path, or latest.")]


@group.callback()
def runs(context: typer.Context, *, runs: opt.Runs = opt.RUNS, json: Json = False) -> None:
    """List runs, newest first."""
    context.obj = runs
    if context.invoked_subcommand is not None:
        return
    from setpoint.records.store import RunStore

    listings = RunStore(runs).list()
    if json:
        emit_json(listings)
        return
    if not listings:
        stderr().print(f"No runs in {runs}. `setpoint bench CARD` makes one.")
        return
    rows = []
    for run in listings:
        states = [State(state) for _, state in run.verdicts]
        verdict = " ".join(f"[{STATE_STYLE[s]}]{states.count(s)} {s}[/]" for s in State if s in states)
        series = "" if run.series is None else f"{run.series.id}#{run.series.step}"
        rows.append((run.id, str(run.status or run.error), verdict or "no promise", series))
    stdout().print(table(("run", "status", "verdicts", "series"), rows))


@group.command("show")
def show(context: typer.Context, ref: Ref, *, runs: RunsHere = None, json: Json = False) -> None:
    """Show one run: its verdicts, figures and pins."""
    from setpoint.records.store import RunStore
    from setpoint.report.build import build
    from setpoint.report.text import render_text

    record = RunStore(runs or context.obj).open(ref)
    if json:
        emit_json(record.meta)
        return
    stdout().print(render_text(build([record]), width=stdout().width))
    raise typer.Exit(exit_code(State(v["state"]) for v in record.meta.verdicts))


@group.command("compare")
def compare(
    context: typer.Context,
    first: Ref,
    second: Ref,
    *,
    variable: Annotated[str, typer.Option(help="The one pin that may differ, e.g. engine_flags.n_parallel.")],
    runs: RunsHere = None,
    json: Json = False,
) -> None:
    """Compare two runs that differ in exactly one variable; refused, with the differences, when they do not."""
    from setpoint.records.pins import compare as compare_pins
    from setpoint.records.store import RunStore
    from setpoint.report.compare import comparison

    store = RunStore(runs or context.obj)
    a, b = store.open(first), store.open(second)
    allowed = compare_pins(a, b, variable)
    rows = comparison(a, b)
    if json:
        emit_json({"variable": variable, "changes": allowed.changes, "unknown": allowed.unknown, "metrics": rows})
        return
    console = stdout()
    for change in allowed.changes:
        console.print(str(change), soft_wrap=True)
    console.print(
        table(("metric", a.id[-6:], b.id[-6:], "ratio"), ((r.metric, r.first, r.second, r.ratio) for r in rows))
    )
    if allowed.unknown:
        console.print(f"Not known of either run, so assumed equal: {', '.join(allowed.unknown)}", soft_wrap=True)
    console.print(
        "Two runs show no more than this: for a verdict on a change, repeat both arms interleaved.", soft_wrap=True
    )


@group.command("import")
def import_(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Result file of another load generator.")],
    *,
    pin: Annotated[
        list[str] | None,
        typer.Option("--pin", metavar="NAME=VALUE", help="What you know of the target, e.g. engine_flags.slots=8."),
    ] = None,
    runs: RunsHere = None,
    json: Json = False,
) -> None:
    """Import a result of vllm bench serve, GuideLLM, AIPerf or inference-perf, marked with what it lacks."""
    from setpoint.experiments.imports import import_file
    from setpoint.records.store import RunStore

    records = import_file(file, RunStore(runs or context.obj), opt.flags(pin, option="--pin"))
    if json:
        emit_json([{"run": r.id, "exchanges": r.exchanges(["index"]).height, "notes": r.meta.notes} for r in records])
        return
    console = stdout()
    for record in records:
        console.print(f"{record.id}: {record.exchanges(['index']).height:,} exchanges", soft_wrap=True)
    for note in records[0].meta.notes:
        console.print(f"  {note}", soft_wrap=True)


@app.command("report")
def report(
    refs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Runs; one step of a series brings the whole series.")
    ],
    *,
    runs: opt.Runs = opt.RUNS,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="File: .html, .md or .json.")] = None,
    only: Annotated[bool, typer.Option("--only", help="Do not bring the rest of the series.")] = False,
    json: Json = False,
) -> None:
    """Rebuild the report from records alone."""
    from setpoint.records.store import RunStore
    from setpoint.report.build import build, with_series
    from setpoint.report.context import context_of
    from setpoint.report.text import render_text
    from setpoint.report.write import write_report

    store = RunStore(runs)
    records = [store.open(ref) for ref in refs]
    if not only:
        records = with_series(store, records)
    built = build(records, context_of(runs, records))
    if json:
        emit_json(built.to_dict())
        return
    if output is None:
        stdout().print(render_text(built, width=stdout().width))
        output = runs.parent / "reports" / f"{records[0].id}.html"
    stdout().print(f"report: {write_report(built, output)}", soft_wrap=True)
