"""Quality in a report: what evaluations found, from their records alone."""

from collections.abc import Sequence

import msgspec
import polars as pl

from setpoint.metrics.quality import SuiteScore, score_suites
from setpoint.metrics.verdict import Origin, State, Verdict
from setpoint.records.record import RunRecord
from setpoint.report.content import Block, Cell, Table, cells
from setpoint.report.under_load import against_idle, own_answers, paired_table, paired_words
from setpoint.units import format_share


def is_evaluation(record: RunRecord) -> bool:
    """Whether a run asked suites of an idle target and sent no load; also one that was ended before it had graded."""
    graded = record.meta.quality is not None or "suites" in record.meta.pins
    return graded and record.meta.schedule is None


def verdicts_of(records: Sequence[RunRecord]) -> dict[str, tuple[RunRecord, Verdict]]:
    """The verdict on each quality promise, by the promise in words.

    A promise holds idle and under load: of the newest verdict on each, a missed one counts before an undecided one, and
    that before a met one.
    """
    newest: dict[tuple[str, bool], tuple[RunRecord, Verdict]] = {}
    for record in sorted(records, key=lambda r: r.meta.created):
        for stored in record.meta.verdicts:
            verdict = msgspec.convert(stored, Verdict)
            if verdict.metric == "quality" and verdict.share is not None:
                newest[verdict.promise, is_evaluation(record)] = record, verdict
    out: dict[str, tuple[RunRecord, Verdict]] = {}
    for (promise, _), found in newest.items():
        if promise not in out or _WEIGHT[found[1].state] > _WEIGHT[out[promise][1].state]:
            out[promise] = found
    return out


_WEIGHT = {State.MET: 0, State.UNDECIDED: 1, State.MISSED: 2}


def score_words(score: SuiteScore) -> str:
    """A score with its interval and coverage."""
    if score.score is None or score.low is None or score.high is None:
        return f"{score.suite}: none of {score.planned:,} answers could be measured"
    interval = f"{format_share(score.low)} to {format_share(score.high)}"
    return f"{score.suite} {format_share(score.score)} ({interval}, {score.measured:,} of {score.planned:,} measured)"


def contracts_words(record: RunRecord) -> str:
    """How many contracts of the server hold, and which are broken; empty where none was checked."""
    findings = _serving(record)
    if not findings:
        return ""
    states = [State(f["state"]) for f in findings]
    broken = [f["name"] for f, s in zip(findings, states, strict=True) if s is State.MISSED]
    counts = ", ".join(f"{states.count(s)} {s}" for s in State if s in states)
    return f"contracts of the server: {counts}" + (f" ({', '.join(broken)} broken)" if broken else "")


def _serving(record: RunRecord) -> Sequence[dict[str, str]]:
    found: Sequence[dict[str, str]] = (record.meta.quality or {}).get("serving", ())
    return found


def quality_words(records: Sequence[RunRecord]) -> list[str]:
    """One line a record that graded anything."""
    out = []
    for record in records:
        where = "idle" if is_evaluation(record) else f"under {record.meta.pins.get('load', 'load')}"
        told = [contracts_words(record), *(f"{score_words(s)} {where}" for s in score_suites(record.quality()))]
        out += [line for line in told if line]
    idle, loaded = ([r for r in records if is_evaluation(r) is alone] for alone in (True, False))
    return [*out, *map(paired_words, against_idle(idle, loaded))]


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
    loaded = [r for r in graded if not is_evaluation(r)]
    against = paired_table(against_idle([r for r in graded if is_evaluation(r)], loaded))
    blocks += [] if against is None else [against]
    findings = [(r, f["name"], State(f["state"]), f["reason"]) for r in graded for f in _serving(r)]
    findings += [(r, "answers_under_load", *own_answers(r)) for r in loaded]
    if findings:
        shown = tuple(cells([name, Cell(str(state), state), why, r.id[-6:]]) for r, name, state, why in findings)
        blocks.append(
            Table(
                "Contracts of the server",
                ("check", "verdict", "why", "run"),
                shown,
                Origin.MEASURED,
                "run.json: quality.serving; exchanges.parquet",
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
