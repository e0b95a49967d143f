"""The main bottleneck hypothesis: what ``diagnosis`` says about the run that broke its promises."""

from collections.abc import Sequence

from setpoint.diagnosis.diagnosis import Diagnosis, diagnose_records
from setpoint.diagnosis.hypothesis import Conclusion, Finding
from setpoint.diagnosis.probes import PROBES
from setpoint.diagnosis.wording import budget_rows, by_reason, model_words
from setpoint.metrics.capacity import lowest_missed
from setpoint.metrics.verdict import Origin, State
from setpoint.records.record import RunRecord
from setpoint.report.content import Block, Cell, Fact, Facts, Table, Text, cells
from setpoint.report.diagnosis_charts import attribution_bars, budget_waterfall
from setpoint.report.step import Step
from setpoint.units import format_share

_COLOUR = {
    Conclusion.SUPPORTED: State.MISSED,
    Conclusion.UNDECIDED: State.UNDECIDED,
    Conclusion.REFUTED: State.MET,
}

_HELD = {
    "holds": State.MISSED,
    "does not hold": State.MET,
}  # what speaks for a cause has the colour of a missed promise


def subject_of(steps: Sequence[Step]) -> Step:
    """The run to be explained: the lowest load that missed a promise for certain; else the lowest that leans there."""
    leaning = (s for s in steps if any(v.share is not None and v.share < v.required for v in s.verdicts))
    return lowest_missed(steps) or next(leaning, None) or max(steps, key=lambda s: s.summary.exchanges)


def diagnosis_of(steps: Sequence[Step], probes: Sequence[RunRecord]) -> Diagnosis:
    """The lowest load that missed a promise is explained, or the one that says most; all others are evidence."""
    subject = subject_of(steps)
    others = [s.record for s in steps if s is not subject] + list(probes)
    return diagnose_records(subject.record, others)


def hypothesis_blocks(found: Diagnosis) -> list[Block]:
    """The third section."""
    blocks: list[Block] = [Text(found.headline)]
    main = found.main
    if main is not None:
        if main.evidence:
            blocks.append(_evidence(main, f"{found.subject} and {len(found.runs) - 1} other runs"))
        blocks.append(Text(f"What would refute it: {main.refutation}"))
        blocks.append(_hypotheses(found.findings))
    bars = attribution_bars(found.attribution, found.subject)
    if bars is not None:
        blocks.append(bars)
        rows = [
            cells([a.promise, f"{a.broken:,} of {a.exchanges:,}", ", ".join(f"{n:,} {c}" for c, n in a.causes)])
            for a in found.attribution
        ]
        note = "Each breach counts once, for the part of its request that took the most time."
        blocks.append(
            Table(
                "Breaches by cause, in numbers",
                ("promise", "broken by", "cause"),
                tuple(rows),
                Origin.COMPUTED,
                found.subject,
                note,
            )
        )
    blocks.append(
        Facts(
            "Service model of the target",
            tuple(Fact(n, v, Origin.COMPUTED, "fit over all runs of this report") for n, v in model_words(found.model)),
        )
    )
    if found.budget is not None:
        blocks.append(budget_waterfall(found.budget, found.subject))
        rows = [cells(row) for row in budget_rows(found.budget)]
        note = (
            "Allowed is what a request alone costs; the queue gets what is left after the reserve."
            " Parts at one quantile do not add up to the whole at it."
        )
        title = f"Latency budget: {found.budget.promise}"
        blocks.append(
            Table(title, ("part", "allowed", "measured", "by"), tuple(rows), Origin.COMPUTED, found.subject, note)
        )
    if found.wanted:
        named = ", ".join(PROBES[name].title.lower() for name in found.wanted)
        blocks.append(Text(f"Would decide more: {named}. `setpoint diagnose TARGET --card CARD` runs them."))
    return blocks


def _evidence(main: Finding, source: str) -> Table:
    """Each condition of a hypothesis, and whether it was seen to hold."""
    rows = []
    for line in main.evidence:
        held, _, words = line.partition(": ")
        rows.append(cells([Cell(held, _HELD.get(held, State.UNDECIDED)), words]))
    title = f"Evidence for and against: {main.title}"
    return Table(title, ("", "condition"), tuple(rows), Origin.MEASURED, source)


def _hypotheses(findings: Sequence[Finding]) -> Table:
    rows = tuple(
        cells(
            [
                Cell(str(f.conclusion), _COLOUR[f.conclusion]),
                ", ".join(a.title for a in (f, *alike)),
                "" if f.share is None else format_share(f.share.value),
                f.reason,
            ]
        )
        for f, *alike in by_reason(findings)
    )
    note = "The share is of the time of the requests that break a promise."
    columns = ("verdict", "hypothesis", "share", "why")
    return Table("All hypotheses", columns, rows, Origin.COMPUTED, "setpoint.diagnosis", note)
