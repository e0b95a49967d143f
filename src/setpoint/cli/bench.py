"""``setpoint bench``: one load, a sweep, or the search for maximum goodput."""

from typing import Annotated

import typer

from setpoint.cli import options as opt
from setpoint.cli.app import app
from setpoint.cli.output import Json


@app.command("bench")
@opt.takes_target()
def bench(
    card: opt.Card,
    *,
    rate: Annotated[
        str | None, typer.Option(help='Session starts, e.g. "2/s"; several with commas are a sweep.')
    ] = None,
    concurrency: Annotated[
        str | None, typer.Option(help="Users in closed loop; several with commas are a sweep.")
    ] = None,
    find_goodput: Annotated[
        bool, typer.Option("--find-goodput", help="Search for the highest load that keeps every promise.")
    ] = False,
    duration: Annotated[str | None, typer.Option(help="Send window of one run, instead of the card's.")] = None,
    budget: opt.Budget = None,
    target: opt.TargetArguments,
    seed: opt.Seed = 1,
    workers: opt.Workers = None,
    runs: opt.Runs = opt.RUNS,
    json: Json = False,
) -> None:
    """Run a card against a target: one load, a sweep, or the search for maximum goodput.

    Without --url an engine is started here (--engine, --model, --flag).
    """
    from setpoint.cli.measure import Request, measure

    request = Request(
        card=card,
        target=opt.target_options(target),
        rates=opt.numbers("--rate", rate),
        users=[int(u) for u in opt.numbers("--concurrency", concurrency, opt.whole_users)],
        search=find_goodput,
        duration_s=opt.seconds("--duration", duration),
        budget_s=opt.seconds("--budget", budget),
        seed=seed,
        workers=workers,
        runs=runs,
        json=json,
    )
    raise typer.Exit(measure(request))
