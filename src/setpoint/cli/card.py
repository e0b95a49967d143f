"""``setpoint init`` and ``setpoint card``: make, check or derive a card."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, pairs, stderr, stdout

group = typer.Typer(no_args_is_help=True, help="Make, check or derive a workload card.")
app.add_typer(group, name="card")

Output = Annotated[Path | None, typer.Option("--output", "-o", help="File to write; standard output unless given.")]


@app.command("init")
def init(
    use_case: Annotated[str, typer.Argument(help="chat, coding-agent, rag, batch-extraction or embeddings.")],
    *,
    output: Output = None,
    force: Annotated[bool, typer.Option(help="Overwrite the file.")] = False,
    json: Json = False,
) -> None:
    """Write a commented card for a use case."""
    from setpoint.workload.reading import parse_card
    from setpoint.workload.templates import template

    text = template(use_case)
    if json:
        if output is not None:
            _write(text, output, force=force)
        emit_json({"use_case": use_case, "card": parse_card(text.encode(), use_case).to_dict(), "yaml": text})
        return
    _write(text, output, force=force)


@group.command("check")
def check(card: Annotated[Path, typer.Argument(metavar="FILE")], *, json: Json = False) -> None:
    """Explain every mistake in a card: file, line, field, what was found, what was expected."""
    from setpoint.errors import CardError
    from setpoint.workload.card import Replay
    from setpoint.workload.reading import load_card
    from setpoint.workload.replay import read_recorded

    try:
        loaded = load_card(card)
    except CardError as error:
        if json:
            emit_json({"ok": False, "mistakes": error.mistakes})
            raise typer.Exit(error.exit_code) from None
        raise
    arrivals = loaded.traffic.arrivals
    if isinstance(arrivals, Replay):
        read_recorded(arrivals.trace, str(card.parent))
    if json:
        emit_json({"ok": True, "name": loaded.name, "digest": loaded.digest(), "card": loaded.to_dict()})
        return
    promises = ", ".join(p.label for p in loaded.promises) or "none"
    stdout().print(f"{card}: a good card. Promises: {promises}", markup=False, soft_wrap=True)


@group.command("from-trace")
def from_trace(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="File or folder; no text of it is kept.")],
    *,
    output: Output = None,
    force: Annotated[bool, typer.Option(help="Overwrite the file.")] = False,
    json: Json = False,
) -> None:
    """Derive a card from a trace: Azure CSV, Mooncake JSONL, coding-agent JSON, or an access log (JSONL)."""
    from setpoint.workload.derive import card_from_trace

    derived = card_from_trace(trace)
    if json:
        emit_json({"card": derived.card.to_dict(), "facts": dict(derived.facts), "unknown": derived.unknown})
        if output is not None:
            _write(derived.card.to_yaml(), output, force=force)
        return
    console = stderr()
    console.print(pairs({name: escape(value) for name, value in derived.facts}))
    for sentence in derived.unknown:
        console.print(f"unknown: {sentence}", soft_wrap=True, markup=False)
    _write(derived.card.to_yaml(), output, force=force)


@group.command("schema")
def schema() -> None:
    """Print the JSON Schema of a card, for editors."""
    from setpoint.workload.card import json_schema

    emit_json(json_schema())


def _write(text: str, output: Path | None, *, force: bool) -> None:
    from setpoint.errors import UsageError

    if output is None:
        typer.echo(text, nl=False)
        return
    if output.exists() and not force:
        raise UsageError(f"{output} exists.", fix="Give another name, or --force to overwrite it.")
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {(error.strerror or 'no').lower()}.") from None
    stderr().print(f"wrote {output}", soft_wrap=True, markup=False)
