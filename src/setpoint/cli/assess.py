"""``setpoint assess``: the whole loop within one budget."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from setpoint.cli import options as opt
from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, exit_code, stdout

if TYPE_CHECKING:
    from setpoint.assess.assessment import Assessed

BUDGET_S = 260.0


@app.command("assess")
@opt.takes_target()
def assess(
    card: opt.Card,
    *,
    target: opt.TargetArguments,
    budget: opt.Budget = None,
    no_quality: Annotated[bool, typer.Option("--no-quality", help="Grade no answers.")] = False,
    no_experiment: Annotated[bool, typer.Option("--no-experiment", help="Run no experiment.")] = False,
    seed: opt.Seed = 1,
    workers: opt.Workers = None,
    runs: opt.Runs = opt.RUNS,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="HTML report to write.")] = None,
    json: Json = False,
) -> None:
    """The whole loop within one budget: search, diagnosis, quality, the first experiment, the report.

    Without --url an engine is started here (--engine, --model, --flag). Exit codes: 0 a load keeps every promise, and
    so does quality where it is promised; 1 a promise is missed at every load; 3 undecided.
    """
    from setpoint.assess.assessment import Assessed
    from setpoint.cli.progress import Reporter
    from setpoint.experiments.record import ExperimentStore
    from setpoint.records.store import RunStore
    from setpoint.report.write import demand_writable, write_report
    from setpoint.workload.reading import load_card

    if output is not None:
        demand_writable(output)
    with Reporter(quiet=json) as reporter:
        asked = Assessed(
            card=load_card(card),
            folder=card.parent,
            options=opt.target_options(target),
            store=RunStore(runs),
            experiments=ExperimentStore(runs.parent / "experiments"),
            budget_s=opt.seconds("--budget", budget) or BUDGET_S,
            quality=not no_quality,
            experiment=not no_experiment,
            seed=seed,
            workers=workers,
            listen=reporter.run,
            loading=reporter.loading,
            heard=reporter.asked,
            note=reporter.note,
        )
        found, code, report = _assess(asked, runs)
    from setpoint.report.text import render_text

    written = write_report(report, output or runs.parent / "reports" / f"{found.records[0].id}.html")
    if json:
        answer: dict[str, Any] = {
            "runs": [r.id for r in found.records], "exit_code": code, "assessment": found.record, "html": str(written),
            "report": report.to_dict(),
        }  # fmt: skip
        emit_json(answer)
    else:
        stdout().print(render_text(report, width=stdout().width))
        stdout().print(f"report: {written}", soft_wrap=True)
    raise typer.Exit(code)


def _assess(asked: "Assessed", runs: Path) -> tuple[Any, int, Any]:
    """The assessment, its exit code, and the report as any later command rebuilds it."""
    from setpoint.assess.assessment import assess as run_all
    from setpoint.cli import INTERRUPTED
    from setpoint.report.build import build, with_series
    from setpoint.report.context import context_of

    found = run_all(asked)
    records = with_series(asked.store, found.records[:1])
    code = INTERRUPTED if found.interrupted else exit_code(found.states(asked.card))
    return found, code, build(records, context_of(runs, records))
