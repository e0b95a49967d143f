"""The tree of verbs."""

import importlib
from typing import Annotated

import typer

from setpoint import __version__

app = typer.Typer(
    name="setpoint",
    help="From what a product promises to a measured inference service that keeps it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"setpoint {__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """From what a product promises to a measured inference service that keeps it."""


def invoke(tree: typer.Typer, argv: list[str]) -> int:
    """Runs the verb that ``argv`` names; returns its exit code. Usage mistakes print themselves and give 2."""
    command = typer.main.get_command(tree)
    try:
        result = command.main(argv, prog_name="setpoint", standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except Exception as error:
        # typer vendors its own click: its usage errors are known by their interface
        show = getattr(error, "show", None)
        if show is None:
            raise
        show()
        return int(getattr(error, "exit_code", 2))
    return result if isinstance(result, int) else 0


def _register() -> None:
    """Each module of verbs adds itself; imported here, since they import the tree."""
    verbs = (
        "card",
        "plan",
        "serve",
        "bench",
        "assess",
        "diagnose",
        "profile",
        "experiment",
        "eval",
        "runs",
        "models",
        "hardware",
        "engines",
        "gateway",
    )
    for name in verbs:
        importlib.import_module(f"setpoint.cli.{name}")


_register()
