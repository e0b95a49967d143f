"""``setpoint models`` and ``setpoint engines``."""

from typing import Annotated

import typer

from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, stderr, stdout, table
from setpoint.units import format_bytes

models = typer.Typer(no_args_is_help=True, help="Models on this machine.")
engines = typer.Typer(no_args_is_help=True, help="Engines on this machine.")
app.add_typer(models, name="models")
app.add_typer(engines, name="engines")


def _say(sentence: str) -> None:
    stderr().print(sentence, soft_wrap=True)


@models.command("pull")
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


@models.command("list")
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


@engines.command("list")
def list_engines(*, json: Json = False) -> None:
    """List the engines that can be started here."""
    from setpoint.engines.registry import ENGINES

    rows = [(e.name, e.version(), e.missing) for e in ENGINES.values()]
    if json:
        emit_json([{"name": name, "version": version} for name, version, _ in rows])
        return
    stdout().print(table(("engine", "version", ""), ((n, v or "not installed", "" if v else m) for n, v, m in rows)))


@engines.command("install")
def install(name: Annotated[str, typer.Argument(help="vllm")]) -> None:
    """Install an engine into a Python environment of its own."""
    from setpoint.engines.environments import install as install_engine

    stdout().print(str(install_engine(name, _say)), soft_wrap=True)
