"""The content of a report, independent of how it is rendered."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from setpoint.metrics.verdict import Origin, State

SCHEMA_VERSION = 1
SENTENCE = 40  # characters of a cell, from which on a column beside others is too narrow on a phone


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure or fact.

    Attributes:
        name: What it is.
        value: As shown; "unknown" when nobody said.
        origin: Where it comes from.
        source: Record and field, formula, or document.
    """

    name: str
    value: str
    origin: Origin
    source: str


@dataclass(frozen=True, slots=True)
class Facts:
    """A list of facts under a heading."""

    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table; the state colours it."""

    text: str
    state: State | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table under a heading.

    Attributes:
        title: Heading.
        columns: Names.
        rows: Cells, one a column.
        origin: Of all its figures.
        source: Where they lead to.
        note: A sentence below it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    origin: Origin
    source: str
    note: str = ""

    @property
    def wordy(self) -> bool:
        """Whether cells hold sentences: on a narrow page such a table is read cell by cell."""
        return any(len(cell.text) > SENTENCE for row in self.rows for cell in row)


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture.

    Attributes:
        title: Heading.
        caption: What it shows and how to read it.
        svg: Inline SVG; left out of JSON and Markdown.
        source: Where its figures lead to.
        origin: Of all its figures.
    """

    title: str
    caption: str
    svg: str
    source: str
    origin: Origin = Origin.MEASURED


Block = Text | Facts | Table | Figure


@dataclass(frozen=True, slots=True)
class Section:
    """One of the six sections."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One promise at one load.

    Attributes:
        promise: In words.
        state: Verdict.
        share: Share within, as shown.
        interval: Its 95% interval, as shown.
        required: As shown.
        observed: The metric at the promised quantile, as shown.
        samples: Exchanges, and effective ones.
        reason: The sentence.
    """

    promise: str
    state: State
    share: str
    interval: str
    required: str
    observed: str
    samples: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadVerdicts:
    """All verdicts at one load."""

    load: str
    run: str
    state: State
    rows: tuple[VerdictRow, ...]


@dataclass(frozen=True, slots=True)
class RecordFacts:
    """What leads from a figure to its record, and how to repeat it."""

    id: str
    path: str
    load: str
    status: str
    reproduce: str
    pins: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Point:
    """One of the things to know at a glance, beside the answer.

    Attributes:
        name: ``suspect``, ``evidence``, ``quality``, ``tried`` or ``open``.
        text: A sentence.
    """

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Report:
    """A report.

    Attributes:
        title: Card and target.
        created: When the newest record was made, UTC.
        headline: The answer in one sentence.
        state: Of the answer.
        verdicts: The loads that the answer rests on: the highest met and the lowest missed, or the only one.
        points: What to know at a glance beside the answer.
        sections: Six.
        records: All runs it is made of.
        schema_version: Of the JSON form.
    """

    title: str
    created: str
    headline: str
    state: State
    verdicts: tuple[LoadVerdicts, ...]
    points: tuple[Point, ...]
    sections: tuple[Section, ...]
    records: tuple[RecordFacts, ...]
    schema_version: int = field(default=SCHEMA_VERSION)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it: everything but the pictures."""
        body: dict[str, Any] = msgspec.to_builtins(self)
        for section, plain in zip(self.sections, body["sections"], strict=True):
            for block, shown in zip(section.blocks, plain["blocks"], strict=True):
                shown["kind"] = type(block).__name__.lower()
                shown.pop("svg", None)
        return body


def cells(values: Sequence[str | Cell]) -> tuple[Cell, ...]:
    """Plain strings as cells."""
    return tuple(v if isinstance(v, Cell) else Cell(v) for v in values)
