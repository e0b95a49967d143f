"""Where output goes: answers to stdout, commentary to stderr, JSON when a machine asked."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from setpoint.metrics.verdict import State

Json = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]

STATE_STYLE = {State.MET: "green", State.MISSED: "red", State.UNDECIDED: "yellow"}
_ANY_WIDTH = 10_000
_BETWEEN = 2  # columns of a table
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


class Rows:
    """A plain table; on a console that is too narrow for it a block a row, so that nothing is cut.

    Args:
        columns: Headings.
        rows: A cell a column.
        title: Above it.
        naming: How many cells, from the first, are the heading of a row's block. In a block empty cells are left out.
        whole: No cell is folded, nor read as markup; else one is folded, between two words.
    """

    def __init__(
        self,
        columns: Iterable[str],
        rows: Iterable[Iterable[str]],
        *,
        title: str | None = None,
        naming: int = 1,
        whole: bool = False,
    ) -> None:
        self.columns = list(columns)
        self.rows = [list(row) for row in rows]
        self.title = title
        self.naming = naming
        self.whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or its blocks."""
        rows = [[Text(cell) if self.whole else console.render_str(cell) for cell in row] for row in self.rows]
        heads = [Text(name, style="bold") for name in self.columns]
        wide = options.update_width(_ANY_WIDTH)
        needs = [[Measurement.get(console, wide, cell) for cell in column] for column in zip(heads, *rows, strict=True)]
        most = [max(need.maximum for need in column) for column in needs]
        least = most if self.whole else [max(need.minimum for need in column) for column in needs]
        left = options.max_width - sum(least) - _BETWEEN * (len(heads) - 1)
        if left < 0:
            yield from self._blocks()
            return
        out = Table(title=self.title, box=None, pad_edge=False, title_justify="left")
        for head, width in zip(heads, _shared(left, least, most), strict=True):
            out.add_column(head, width=width)
        for row in rows:
            out.add_row(*row)
        yield out

    def _blocks(self) -> Iterator[RenderableType]:
        if self.title:
            yield Text(self.title, style="italic")
        names = self.columns[self.naming :]
        widest = max(map(len, names), default=0)
        for row in self.rows:
            heading = " ".join(row[: self.naming])
            cells = [(f"  {n:<{widest}}", c) for n, c in zip(names, row[self.naming :], strict=True) if c]
            if self.whole:
                yield Text(heading, style="bold", no_wrap=True, overflow="ignore")
                for name, cell in cells:
                    yield Text(f"{name}  {cell}", no_wrap=True, overflow="ignore")
                continue
            yield Text.from_markup(heading, style="bold", overflow="fold")
            block = Table.grid(padding=(0, 2, 0, 0))
            block.add_column(no_wrap=True)
            block.add_column(overflow="fold")
            for name, cell in cells:
                block.add_row(name, cell)
            yield block


def _shared(left: int, least: list[int], most: list[int]) -> list[int]:
    """Widths of columns: none below its least or above its most, what is left shared evenly among the others."""
    widths = list(least)
    order = sorted(range(len(least)), key=lambda i: most[i] - least[i])
    for place, i in enumerate(order):
        more = min(most[i] - least[i], left // (len(order) - place))
        widths[i] += more
        left -= more
    return widths


def table(columns: Iterable[str], rows: Iterable[Iterable[str]], *, title: str | None = None) -> Rows:
    """A plain table that folds long cells instead of cutting them."""
    return Rows(columns, rows, title=title)


def print_rows(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]], *, naming: int = 1) -> None:
    """Prints a table whose cells are never folded: somebody copies them."""
    console.print(Rows(columns, rows, naming=naming, whole=True), soft_wrap=True)


def exit_code(states: Iterable[State]) -> int:
    """0 when all are met, 1 when one is missed, else 3; 3 for no verdict at all."""
    seen = set(states)
    if State.MISSED in seen:
        return EXIT[State.MISSED]
    if State.UNDECIDED in seen or not seen:
        return EXIT[State.UNDECIDED]
    return EXIT[State.MET]


def pairs(values: Mapping[str, object]) -> Rows:
    """Names and values, one a line."""
    return table(("", ""), ((str(k), str(v)) for k, v in values.items()))
