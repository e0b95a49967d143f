"""The report as text for a terminal: the answer, the verdicts, the loads; the rest is in the other forms."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text as RichText

from setpoint.metrics.verdict import State
from setpoint.report.content import LoadVerdicts, Report, Section, Table

STYLE = {State.MET: "green", State.MISSED: "red", State.UNDECIDED: "yellow"}
NARROW, WIDE = 90, 130
FEW, MIDDLE = (0, 1, 2, 4), (0, 1, 2, 3, 4, 6, 7)  # columns of the load table that fit
COLUMNS = ("promise", "verdict", "within", "95% interval", "observed", "n")


def render_text(report: Report, *, width: int = 80) -> RenderableType:
    """The answer first; wide tables become short ones on a narrow terminal.

    Args:
        report: The content.
        width: Of the terminal in columns.
    """
    return Group(*_parts(report, width))


def _parts(report: Report, width: int) -> Iterator[RenderableType]:
    yield RichText(report.headline, style=f"bold {STYLE[report.state]}")
    yield RichText("")
    for load in report.verdicts:
        yield from _verdicts(load, width)
    loads = _loads(report.sections)
    if loads is not None:
        yield from _load_table(loads, width)
    for name, text in [(p.name, p.text) for p in report.points]:
        yield RichText.assemble((f"{name:<9}", "bold"), text)
    yield RichText.assemble(("boundary ", "bold"), "TTFT from the scheduled send to the first visible token")


def _verdicts(load: LoadVerdicts, width: int) -> Iterator[RenderableType]:
    yield RichText.assemble(("at ", ""), (load.load, "bold"), ("  ", ""), (load.state.value, STYLE[load.state]))
    table = RichTable(box=None, pad_edge=False, header_style="dim")
    columns = COLUMNS if width >= NARROW else COLUMNS[:3]
    for name in columns:
        table.add_column(name, no_wrap=name == "promise" and width >= NARROW, overflow="fold")
    for row in load.rows:
        state = RichText(row.state.value, style=STYLE[row.state])
        cells: tuple[str | RichText, ...] = (row.promise, state, row.share, row.interval, row.observed, row.samples)
        table.add_row(*cells[: len(columns)])
    yield table
    for row in load.rows:
        if row.state is State.UNDECIDED:
            yield RichText(f"  {row.promise}: {row.reason}", style="dim")
    yield RichText("")


def _loads(sections: tuple[Section, ...]) -> Table | None:
    blocks = sections[1].blocks
    return next((b for b in blocks if isinstance(b, Table) and b.columns[:2] == ("load", "verdict")), None)


def _load_table(table: Table, width: int) -> Iterator[RenderableType]:
    keep = range(len(table.columns)) if width >= WIDE else MIDDLE if width >= NARROW else FEW
    out = RichTable(box=None, pad_edge=False, header_style="dim", title=table.title, title_justify="left")
    for i in keep:
        out.add_column(table.columns[i], overflow="fold")
    for row in table.rows:
        out.add_row(*(RichText(row[i].text, style=STYLE[s] if (s := row[i].state) else "") for i in keep))
    yield out
    yield RichText("")
