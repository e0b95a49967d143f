"""Quality in a report: what evaluations found, from their records alone."""

from collections.abc import Sequence

import msgspec
import polars as pl

from setpoint.metrics.quality import SuiteScore, score_suites
from setpoint.metrics.verdict import Origin, State, Verdict
from setpoint.records.record import RunRecord
from setpoint.report.content import Block, Cell, Table, cells
from setpoint.units import format_share


def is_evaluation(record: RunRecord) -> bool:
    """Whether a run asked suites of an idle target and sent no load."""
    return record.meta.quality is not None and record.meta.schedule is None


def verdicts_of(records: Sequence[RunRecord]) -> dict[str, tuple[RunRecord, Verdict]]:
    """The newest decided verdict on each quality promise, by the promise in words; undecided where none is decided."""
    out: dict[str, tuple[RunRecord, Verdict]] = {}
    for record in sorted(records, key=lambda r: r.meta.created):
        for stored in record.meta.verdicts:
            verdict = msgspec.convert(stored, Verdict)
            if verdict.metric != "quality" or verdict.share is None:
                continue
            known = out.get(verdict.promise)
            if known is None or verdict.state is not State.UNDECIDED or known[1].state is State.UNDECIDED:
                out[verdict.promise] = (record, verdict)
    return out


def blame_counts(rows: pl.DataFrame) -> dict[str, int]:
    """How many answers are not right, by who to look at first."""
    counted = rows.drop_nulls("blame").group_by("blame").len().sort("len", descending=True)
    return {str(who): int(count) for who, count in counted.iter_rows()}


def quality_blocks(records: Sequence[RunRecord]) -> list[Block]:
    """Scores, what was not right, and the serving checks; nothing when nothing was graded."""
    graded = [r for r in records if r.meta.quality is not None]
    blocks: list[Block] = []
    rows = [_row(record, score) for record in graded for score in score_suites(record.quality())]
    if rows:
        blocks.append(
            Table(
                "Quality of the answers",
                ("suite", "produced", "score", "95% interval", "measured", "not right: look at", "controls", "run"),
                tuple(rows),
                Origin.MEASURED,
                "quality.parquet; run.json: quality",
                "Unmeasured answers are not scored; the interval takes them as wrong below and right above. "
                "Controls: score of the reference answers, and of wrong ones.",
            )
        )
    findings = [(r, f) for r in graded for f in (r.meta.quality or {}).get("serving", ())]
    if findings:
        shown = tuple(
            cells([f["name"], Cell(f["state"], State(f["state"])), f["reason"], r.id[-6:]]) for r, f in findings
        )
        blocks.append(
            Table(
                "Contracts of the server",
                ("check", "verdict", "why", "run"),
                shown,
                Origin.MEASURED,
                "run.json: quality.serving",
            )
        )
    return blocks


def _row(record: RunRecord, score: SuiteScore) -> tuple[Cell, ...]:
    rows = record.quality().filter(pl.col("suite") == score.suite)
    controls = (record.meta.quality or {}).get("suites", {}).get(score.suite, {}).get("controls", {})
    told = f"{format_share(controls['positive'])} and {format_share(controls['negative'])}" if controls else "unknown"
    interval = (
        "unknown"
        if score.low is None or score.high is None
        else f"{format_share(score.low)} to {format_share(score.high)}"
    )
    return cells(
        [
            score.suite,
            "under load" if bool(rows["under_load"].any()) else "idle",
            "unknown" if score.score is None else format_share(score.score),
            interval,
            f"{score.measured:,} of {score.planned:,}",
            ", ".join(f"{count} {who}" for who, count in blame_counts(rows).items()) or "none",
            told,
            record.id[-6:],
        ]
    )
