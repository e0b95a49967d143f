"""``setpoint models``: fetch, list, and show what a model is."""

from typing import Annotated

import typer

from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, stderr, stdout, table
from setpoint.units import format_bytes

group = typer.Typer(no_args_is_help=True, help="Models: fetch, list, show.")
app.add_typer(group, name="models")


def _say(sentence: str) -> None:
    stderr().print(sentence, soft_wrap=True)


@group.command("pull")
def pull(
    name: Annotated[str, typer.Argument(help="smollm2-135m-instruct, or hf://org/name[@revision].")],
    *,
    json: Json = False,
) -> None:
    """Fetch a model into the cache and check it."""
    from setpoint.engines.store import resolve

    model = resolve(name, (lambda _: None) if json else _say)
    if json:
        emit_json({"name": model.name, "path": str(model.path), "pins": model.pins})
        return
    stdout().print(str(model.path), soft_wrap=True)


@group.command("list")
def list_models(*, json: Json = False) -> None:
    """List the models in the cache and those that can be pulled by name."""
    from setpoint.engines.store import EMBEDDED, cached

    here = list(cached())
    if json:
        emit_json([{"name": n, "path": str(p), "bytes": size} for n, p, size in here])
        return
    rows = [(n, format_bytes(size), str(p)) for n, p, size in here]
    rows += [
        (m.name, format_bytes(m.size), "not here: setpoint models pull " + m.name)
        for m in EMBEDDED.values()
        if m.name not in {n for n, _, _ in here}
    ]
    stdout().print(table(("model", "size", "where"), rows))


@group.command("show")
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="Folder, config.json, *.safetensors, *.gguf, or [hf://]org/name[/file.gguf][@revision].",
        ),
    ],
    *,
    json: Json = False,
) -> None:
    """Show what a model is: layers, parameters, bytes, cache, licence. From the Hub only headers are fetched."""
    from setpoint.engines.hub import model_named
    from setpoint.report.plan_document import model_document
    from setpoint.report.plan_text import render_model

    model = model_named(name)
    if json:
        emit_json(model_document(model))
        return
    stdout().print(render_model(model))
