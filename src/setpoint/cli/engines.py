"""``setpoint engines``."""

from typing import Annotated

import typer

from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, stderr, stdout, table

engines = typer.Typer(no_args_is_help=True, help="Engines on this machine.")
app.add_typer(engines, name="engines")


def _say(sentence: str) -> None:
    stderr().print(sentence, soft_wrap=True)


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
