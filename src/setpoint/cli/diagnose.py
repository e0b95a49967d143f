"""``setpoint diagnose``: why promises are broken, proved by probes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from setpoint.cli import options as opt
from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, pairs, stdout, table
from setpoint.errors import UsageError

if TYPE_CHECKING:
    from setpoint.assess.probe import Diagnosed
    from setpoint.diagnosis.diagnosis import Diagnosis

BUDGET_S = 120.0
CAUSE_FOUND, UNDECIDED = 1, 3


@app.command("diagnose")
@opt.takes_target("url", "engine")
def diagnose(
    subject: Annotated[
        str, typer.Argument(metavar="TARGET|RUN", help="URL of a server, engine to start here, or a recorded run.")
    ],
    *,
    card: Annotated[Path | None, typer.Option("--card", help="Workload card; a recorded run brings its own.")] = None,
    direct: Annotated[
        str | None, typer.Option("--direct", metavar="URL", help="The engine itself, if TARGET is a gateway.")
    ] = None,
    budget: opt.Budget = None,
    target: opt.TargetArguments,
    seed: opt.Seed = 1,
    workers: opt.Workers = None,
    runs: opt.Runs = opt.RUNS,
    json: Json = False,
) -> None:
    """Rank bottleneck hypotheses and probe them.

    Exit codes: 0 no promise is broken, 1 a cause is supported, 3 undecided.
    """
    from setpoint.cli import INTERRUPTED
    from setpoint.engines.registry import ENGINES

    live = subject.startswith(("http://", "https://")) or subject in ENGINES
    if not live:
        if direct is not None or budget is not None:
            raise UsageError(
                f"{subject} is a recorded run: no probe is run, so --direct and --budget mean nothing.",
                fix="Leave them out, or give the URL of a server to probe.",
            )
        found = _from_record(subject, runs, card)
        _show(found, {}, json=json)
        raise typer.Exit(exit_of(found))
    if card is None:
        raise UsageError("A live target is diagnosed under a card's traffic.", fix="Give --card CARD.")
    url = None if subject in ENGINES else subject
    chosen = opt.target_options(target, url=url, engine=subject if url is None else "llamacpp")
    budget_s = opt.seconds("--budget", budget) or BUDGET_S
    done = _live(card, chosen, direct, budget_s=budget_s, seed=seed, workers=workers, runs=runs, quiet=json)
    _show(done.diagnosis, done.not_run, json=json)
    raise typer.Exit(INTERRUPTED if done.interrupted else exit_of(done.diagnosis))


def exit_of(diagnosis: "Diagnosis") -> int:
    """0 when nothing is broken, 1 when a cause is supported, else 3."""
    if not diagnosis.broken:
        return 0
    return CAUSE_FOUND if diagnosis.supported else UNDECIDED


def _from_record(ref: str, runs: Path, card: Path | None) -> "Diagnosis":
    """A recorded run, explained with the rest of its series; a card that is given must be the run's own."""
    from setpoint.assess.probe import save
    from setpoint.diagnosis.diagnosis import diagnose_records
    from setpoint.records.store import RunStore
    from setpoint.report.build import with_series
    from setpoint.workload.reading import load_card

    store = RunStore(runs)
    record = store.open(ref)
    if card is not None and load_card(card).digest() != record.meta.pins.get("card_digest"):
        raise UsageError(
            f"{card} is not the card that {record.id} was made with.",
            fix="Leave --card out, since a recorded run brings its own, or give a server to diagnose under this card.",
        )
    others = [r for r in with_series(store, [record]) if r.id != record.id]
    found = diagnose_records(record, others)
    save(found, record)
    return found


def _live(
    card_path: Path,
    chosen: Any,  # noqa: ANN401 - TargetOptions, imported late
    direct: str | None,
    *,
    budget_s: float,
    seed: int,
    workers: int | None,
    runs: Path,
    quiet: bool,
) -> "Diagnosed":
    from contextlib import ExitStack
    from dataclasses import replace

    from setpoint.assess.bench import Bench
    from setpoint.assess.probe import diagnose_target
    from setpoint.assess.target import open_target
    from setpoint.cli.progress import Reporter
    from setpoint.records.store import RunStore
    from setpoint.workload.reading import load_card

    card = load_card(card_path)
    with Reporter(quiet=quiet) as reporter, ExitStack() as stack:
        note = reporter.note
        opened = stack.enter_context(open_target(card, chosen, note=note, loading=reporter.loading))
        engine = None
        if direct is not None:
            engine = stack.enter_context(open_target(card, replace(chosen, url=direct), note=note))

        bench = Bench(
            card=card, folder=str(card_path.parent), opened=opened, store=RunStore(runs), seed=seed, workers=workers,
            listen=reporter.run, note=note,
        )  # fmt: skip
        return diagnose_target(bench, budget_s=budget_s, direct=engine)


def _show(found: "Diagnosis", not_run: dict[str, str], *, json: bool) -> None:
    from setpoint.diagnosis.probes import PROBES
    from setpoint.diagnosis.wording import by_reason

    open_probes = {name: not_run.get(name, "not run") for name in (*found.wanted, *not_run)}
    if json:
        emit_json(found.to_dict() | {"exit_code": exit_of(found), "not_run": open_probes})
        return
    console = stdout()
    console.print(found.headline, soft_wrap=True)
    style = {"supported": "red", "undecided": "yellow", "refuted": "dim"}
    rows = [
        (
            f"[{style[f.conclusion]}]{f.conclusion}[/]",
            ", ".join(a.title for a in (f, *alike)),
            "" if f.share is None else f"{f.share.value:.0%}",
            f.reason,
        )
        for f, *alike in by_reason(found.findings)
        if found.broken
    ]
    console.print(table(("verdict", "hypothesis", "share", "why"), rows))
    for finding in found.supported:
        console.print(table(("", ""), [("", line) for line in finding.evidence], title=f"{finding.title}: evidence"))
        console.print(f"It would be refuted by this: {finding.refutation}", soft_wrap=True)
    _show_figures(found)
    if open_probes:
        console.print("Would decide more:")
        console.print(table(("probe", "why not"), [(PROBES[n].title, why) for n, why in open_probes.items()]))
    console.print(f"runs: {', '.join(found.runs)}", soft_wrap=True)


def _show_figures(found: "Diagnosis") -> None:
    from setpoint.diagnosis.wording import attribution_words, budget_rows, model_words

    console = stdout()
    console.print(pairs(dict(model_words(found.model))))
    if found.budget is not None:
        budget = found.budget
        columns = ("part", "allowed", "measured", "by")
        console.print(table(columns, budget_rows(budget), title=f"budget: {budget.promise}"))
    for attribution in found.attribution:
        console.print(attribution_words(attribution), soft_wrap=True)
