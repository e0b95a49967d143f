"""``setpoint eval``: quality of answers, and its comparison with a baseline."""

from pathlib import Path
from typing import Annotated

import typer

from setpoint.cli import options as opt
from setpoint.cli.app import app
from setpoint.cli.output import Json

What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[URL|CARD] | compare BASE CANDIDATE | check SUITE",
        help="An address, or a card (an engine is started unless --url); or two runs; or a suite's controls.",
    ),
]


@app.command("eval")
@opt.takes_target()
def evaluate(
    what: What = None,
    *,
    suite: Annotated[
        list[str] | None,
        typer.Option(help="core, serving (contracts of the server), distributions, or a JSONL file; repeatable."),
    ] = None,
    inspect: Annotated[
        str | None, typer.Option(metavar="TASK", help="A task of Inspect AI (a file or a name) instead of suites.")
    ] = None,
    baseline: Annotated[str | None, typer.Option(metavar="RUN", help="Compare with this evaluation.")] = None,
    variable: Annotated[str | None, typer.Option(help="The one pin that may differ from the baseline.")] = None,
    delta: Annotated[str | None, typer.Option(help='Loss of score that is still "no worse": 5% unless given.')] = None,
    under_load: Annotated[
        bool, typer.Option("--under-load", help="Ask while the card's load is on the target.")
    ] = False,
    duration: Annotated[str | None, typer.Option(help="Longest load with --under-load, instead of the card's.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Answers to each task.")] = 1,
    temperature: Annotated[float, typer.Option(min=0, max=2, help="0 takes the likeliest token.")] = 0.0,
    concurrency: Annotated[int | None, typer.Option(min=1, help="Questions at once: 4, or 1 under load.")] = None,
    answers: Annotated[Path | None, typer.Option(help="Also write every answer as JSONL, to read them.")] = None,
    target: opt.TargetArguments,
    seed: opt.Seed = 1,
    runs: opt.Runs = opt.RUNS,
    json: Json = False,
) -> None:
    """Measure the quality of answers with suites that prove themselves, and compare it with a baseline."""
    from setpoint.cli import judge_quality as verb
    from setpoint.units import parse_share

    words = list(what or ())
    loss = opt.parse("--delta", delta, parse_share)
    if words[:1] == ["compare"]:
        raise typer.Exit(verb.compare_runs(words[1:], runs, delta=loss, variable=variable, json=json))
    if words[:1] == ["check"]:
        raise typer.Exit(verb.check_suites(words[1:], json=json))
    card, address = verb.place(words, target["url"])
    request = verb.Request(
        card=card,
        target=opt.target_options(target, url=address),
        suites=tuple(suite or ()),
        inspect=inspect,
        baseline=baseline,
        variable=variable,
        delta=loss,
        under_load=under_load,
        duration_s=opt.seconds("--duration", duration),
        epochs=epochs,
        temperature=temperature,
        concurrency=concurrency or (1 if under_load else 4),
        answers=answers,
        seed=seed,
        runs=runs,
        json=json,
    )
    raise typer.Exit(verb.evaluate(request))
