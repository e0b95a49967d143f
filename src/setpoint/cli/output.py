"""Where output goes: answers to stdout, commentary to stderr, JSON when a machine asked."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from setpoint.metrics.verdict import State

Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]

STATE_STYLE = {State.MET: "green", State.MISSED: "red", State.UNDECIDED: "yellow"}
_ANY_WIDTH = 10_000
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


def _plain(value: Any) -> str:  # noqa: ANN401 - what JSON has no form for
    if isinstance(value, PurePath):
        return str(value)
    raise NotImplementedError(type(value))


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, title: str | None = None) -> Table:
    """A plain table that folds long cells instead of cutting them."""
    out = Table(title=title, box=None, pad_edge=False, header_style="bold", title_justify="left")
    for name in columns:
        out.add_column(name, overflow="fold")
    for row in rows:
        out.add_row(*row)
    return out


def print_rows(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], *, naming: int = 1) -> None:
    """Prints a table, or where it is wider than the console a block a row, so that no cell is cut in two.

    Args:
        console: Where to.
        columns: Headings.
        rows: A cell a column.
        naming: How many cells, from the first, are the heading of a row's block. In a block empty cells are left out.
    """
    rows = list(rows)
    whole = table(columns, rows)
    if console.measure(whole, options=console.options.update_width(_ANY_WIDTH)).maximum <= console.width:
        console.print(whole)
        return
    widest = max(map(len, columns[naming:]))
    for row in rows:
        console.print(" ".join(row[:naming]), style="bold", markup=False, soft_wrap=True)
        for name, cell in zip(columns[naming:], row[naming:], strict=True):
            if cell:
                console.print(f"  {name:<{widest}}  {cell}", markup=False, soft_wrap=True)


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
