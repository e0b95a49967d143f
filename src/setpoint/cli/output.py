"""Where output goes: answers to stdout, commentary to stderr, JSON when a machine asked."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from setpoint.metrics.verdict import State

Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]

STATE_STYLE = {State.MET: "green", State.MISSED: "red", State.UNDECIDED: "yellow"}
EXIT = {State.MET: 0, State.MISSED: 1, State.UNDECIDED: 3}


def stdout() -> Console:
    """The console for answers."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=False)


def stderr() -> Console:
    """The console for progress and commentary."""
    return Console(file=sys.stderr, highlight=False)


def emit_json(answer: Any) -> None:  # noqa: ANN401 - anything that JSON can hold
    """Prints the answer as indented JSON."""
    text = msgspec.json.format(msgspec.json.encode(answer, enc_hook=_plain), indent=2).decode()
    sys.stdout.write(text + "\n")


def _plain(value: object) -> str:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value).__name__} has no JSON form")


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, title: str | None = None) -> Table:
    """A plain table that folds long cells instead of cutting them."""
    out = Table(title=title, box=None, pad_edge=False, header_style="bold", title_justify="left")
    for name in columns:
        out.add_column(name, overflow="fold")
    for row in rows:
        out.add_row(*row)
    return out


def exit_code(states: Iterable[State]) -> int:
    """0 when all are met, 1 when one is missed, else 3; 3 for no verdict at all."""
    seen = set(states)
    if State.MISSED in seen:
        return EXIT[State.MISSED]
    if State.UNDECIDED in seen or not seen:
        return EXIT[State.UNDECIDED]
    return EXIT[State.MET]


def pairs(values: Mapping[str, object]) -> Table:
    """Names and values, one a line."""
    return table(("", ""), ((str(k), str(v)) for k, v in values.items()))
