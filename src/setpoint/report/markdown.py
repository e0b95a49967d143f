"""The report as Markdown."""

from collections.abc import Iterable, Iterator, Sequence

from setpoint.report.content import Block, Facts, Figure, Report, Table, Text


def render_markdown(report: Report) -> str:
    """Everything but the pictures, which are named."""
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {_plain(report.title)}"
    yield f"\n**{_plain(report.headline)}**\n"
    yield f"{report.created}, {len(report.records)} runs.\n"
    yield from (f"- **{p.name}** {_plain(p.text)}" for p in report.points)
    for load in report.verdicts:
        yield f"\n## At {load.load}: {load.state}\n"
        columns = ("promise", "verdict", "within", "95% interval", "promised", "observed", "requests")
        rows = [(r.promise, r.state.value, r.share, r.interval, r.required, r.observed, r.samples) for r in load.rows]
        yield from _table(columns, rows)
        yield f"\nmeasured; {load.run}: verdicts"
        for row in load.rows:
            if row.state == "undecided":
                yield f"\n- {_plain(row.promise)}: {_plain(row.reason)}"
    for number, section in enumerate(report.sections, 1):
        yield f"\n## {number}. {section.title}"
        for block in section.blocks:
            yield ""
            yield from _block(block)
    yield "\n## Records\n"
    for record in report.records:
        yield f"- `{record.id}` ({record.load}, {_plain(record.status)}): `{record.reproduce}`"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Text):
        yield _plain(block.text)
    elif isinstance(block, Facts):
        yield f"### {block.title}\n"
        yield from (f"- {_plain(f.name)}: {_plain(f.value)} ({f.origin}; {_plain(f.source)})" for f in block.facts)
    elif isinstance(block, Table):
        yield f"### {block.title}\n"
        yield from _table(block.columns, [[cell.text for cell in row] for row in block.rows])
        if block.note:
            yield f"\n{_plain(block.note)}"
        yield f"\n{block.origin}; {_plain(block.source)}"
    elif isinstance(block, Figure):
        yield f"### {block.title}\n\nPicture in the HTML report: {_plain(block.caption)}"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield "| " + " | ".join(_plain(c) for c in columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(_plain(cell) for cell in row) + " |"


def _plain(text: str) -> str:
    """Text that Markdown takes literally."""
    for character in ("\\", "|", "<", "`", "*", "_", "["):
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")
