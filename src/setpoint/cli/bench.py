"""``setpoint bench`` and ``setpoint assess``."""

from pathlib import Path
from typing import Annotated

import typer

from setpoint.cli import options as opt
from setpoint.cli.app import app
from setpoint.cli.output import Json


@app.command("bench")
def bench(
    card: opt.Card,
    *,
    url: opt.Url = None,
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
    model: opt.Model = None,
    api: opt.Api = None,
    api_key_env: opt.KeyEnv = None,
    metrics_url: opt.MetricsUrl = None,
    insecure: opt.Insecure = False,
    ca_file: opt.CaFile = None,
    engine: opt.EngineName = "llamacpp",
    flag: opt.FlagList = None,
    port: opt.Port = None,
    seed: opt.Seed = 1,
    workers: opt.Workers = None,
    runs: opt.Runs = opt.RUNS,
    json: Json = False,
) -> None:
    """Run a card against a target: one load, a sweep, or the search for maximum goodput.

    Without --url an engine is started here (--engine, --model, --flag).
    """
    from setpoint.cli.measure import Request, measure

    chosen = opt.target_options(
        url=url, model=model, api=api, api_key_env=api_key_env, metrics_url=metrics_url, insecure=insecure,
        ca_file=ca_file, engine=engine, flag=flag, port=port,
    )  # fmt: skip
    request = Request(
        card=card,
        target=chosen,
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


@app.command("assess")
def assess(
    card: opt.Card,
    *,
    url: opt.Url = None,
    budget: opt.Budget = None,
    model: opt.Model = None,
    api: opt.Api = None,
    api_key_env: opt.KeyEnv = None,
    metrics_url: opt.MetricsUrl = None,
    insecure: opt.Insecure = False,
    ca_file: opt.CaFile = None,
    engine: opt.EngineName = "llamacpp",
    flag: opt.FlagList = None,
    port: opt.Port = None,
    seed: opt.Seed = 1,
    workers: opt.Workers = None,
    runs: opt.Runs = opt.RUNS,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="HTML report to write.")] = None,
    json: Json = False,
) -> None:
    """The whole loop: start or reach the engine, search for maximum goodput, judge, write the report."""
    from setpoint.cli.measure import Request, measure

    chosen = opt.target_options(
        url=url, model=model, api=api, api_key_env=api_key_env, metrics_url=metrics_url, insecure=insecure,
        ca_file=ca_file, engine=engine, flag=flag, port=port,
    )  # fmt: skip
    request = Request(
        card=card,
        target=chosen,
        search=True,
        budget_s=opt.seconds("--budget", budget),
        seed=seed,
        workers=workers,
        runs=runs,
        json=json,
        report=True,
        output=output,
    )
    raise typer.Exit(measure(request))
