"""Answers under load beside those of the idle target: the same questions paired, and what became of the load's own."""

from collections.abc import Sequence

import polars as pl

from setpoint.errors import PinsDiffer
from setpoint.metrics.verdict import Origin, State
from setpoint.quality.compare import DELTA, Paired, compare
from setpoint.records.exchange import Outcome
from setpoint.records.record import RunRecord
from setpoint.report.content import Cell, Table, cells
from setpoint.units import format_share

BROKEN = (Outcome.TRUNCATED, Outcome.EMPTY, Outcome.MALFORMED, Outcome.REASONING_EXHAUSTED)


def against_idle(idle: Sequence[RunRecord], loaded: Sequence[RunRecord]) -> list[Paired]:
    """The newest evaluation under load against the newest idle one that differs from it in the load alone.

    Paired by task, so that how hard the tasks are hides nothing; where both asked a sample, over what both asked.
    """
    for candidate in sorted(loaded, key=lambda r: r.meta.created, reverse=True):
        for base in sorted(idle, key=lambda r: r.meta.created, reverse=True):
            if base.quality().is_empty() or candidate.quality().is_empty():
                continue
            try:
                return list(compare(base, candidate, delta=DELTA, variable="load").suites)
            except PinsDiffer:
                continue
    return []


def paired_words(found: Paired) -> str:
    """One suite in a sentence."""
    return f"{found.suite} under load against idle, {found.tasks:,} tasks paired: {found.words}"


def paired_table(found: Sequence[Paired]) -> Table | None:
    """A row a suite; None without one."""
    if not found:
        return None
    rows = tuple(
        cells([
            p.suite, Cell(str(p.state), p.state), f"{p.tasks:,}", _share(p.base), _share(p.candidate), p.words,
            f"{p.better:,} and {p.worse:,}", _share(p.same_answers),
        ])
        for p in found
    )  # fmt: skip
    columns = ("suite", "verdict", "tasks", "idle", "under load", "difference", "better and worse", "same answers")
    note = "The same questions, paired by task. Unmeasured answers count against the load at the lower end."
    return Table("Under load against idle", columns, rows, Origin.MEASURED, "quality.parquet", note)


def own_answers(record: RunRecord) -> tuple[State, str]:
    """Whether what the load itself asked for came whole: ended properly, with something in it that can be read."""
    rows = record.exchanges(["outcome", "warmup"]).filter(~pl.col("warmup"))
    counts = dict(rows["outcome"].value_counts().iter_rows())
    broken = {o: counts[o.value] for o in BROKEN if counts.get(o.value)}
    answers = sum(n for o, n in counts.items() if Outcome(o).answered) + sum(broken.values())
    if not answers:
        return State.UNDECIDED, "the load got no answer"
    told = ", ".join(f"{n:,} {o.value.replace('_', ' ')}" for o, n in broken.items())
    words = f"of {answers:,} answers to the load's own requests {told or 'none was truncated, empty or malformed'}"
    return (State.MISSED if broken else State.MET), words


def _share(value: float | None) -> str:
    return "unknown" if value is None else format_share(value)
