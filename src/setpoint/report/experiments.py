"""What to try next, and what was tried: the fourth section."""

from collections.abc import Sequence

from setpoint.diagnosis.diagnosis import Diagnosis
from setpoint.experiments.plan import rank
from setpoint.experiments.record import ExperimentRecord
from setpoint.experiments.verdict import Judgement
from setpoint.metrics.verdict import Origin, State
from setpoint.report.content import Block, Cell, Table, Text, cells
from setpoint.report.context import Context
from setpoint.report.step import Step

SHOWN_PROPOSALS = 6
SHOWN_EXPERIMENTS = 12
_COLOUR = {
    Judgement.BETTER: State.MET,
    Judgement.WORSE: State.MISSED,
    Judgement.UNDECIDED: State.UNDECIDED,
}


def experiment_blocks(found: Diagnosis, steps: Sequence[Step], context: Context) -> list[Block]:
    """The playbook ranked for the bottleneck, then the experiments with this card on this target."""
    blocks: list[Block] = [_proposals(found, steps)]
    part = next((p for p in context.assessment.parts if p.name == "experiment"), None) if context.assessment else None
    if part is not None:
        more = f" It would take {part.takes}." if part.takes else ""
        blocks.append(Text(f"The first experiment, {part.stage}: {part.words.rstrip('.')}.{more}"))
    blocks += experiment_tables(context.experiments)
    return blocks


def experiment_tables(experiments: Sequence[ExperimentRecord]) -> list[Block]:
    """One row an experiment; of the newest all endpoints."""
    if not experiments:
        return []
    rows = tuple(cells(_row(e)) for e in experiments[:SHOWN_EXPERIMENTS])
    columns = ("change", "verdict", "in", "B against A [95%]", "blocks", "got worse", "record")
    note = "A/A control and every endpoint: `setpoint experiment show RECORD`."
    blocks: list[Block] = [
        Table(
            "What was tried", columns, rows, Origin.MEASURED, "experiments/RECORD/experiment.json, and its runs", note
        )
    ]
    newest = experiments[0]
    if newest.analysis is not None:
        compared = tuple(
            cells(
                [
                    c.endpoint + (" (promised)" if c.promised else ""),
                    Cell(str(c.judgement), _COLOUR.get(c.judgement)),
                    c.reason,
                ]
            )
            for c in newest.analysis.compared
            if c.promised or c.endpoint == newest.analysis.primary
        )
        blocks.append(
            Table(
                f"Promised figures in {', '.join(newest.changes)}",
                ("endpoint", "verdict", "B against A [95%]"),
                compared,
                Origin.MEASURED,
                f"{newest.id}: analysis",
            )
        )
    return blocks


def experiment_words(record: ExperimentRecord) -> str:
    """An experiment in one sentence."""
    changed = ", ".join(record.changes)
    if record.analysis is None:
        return f"{changed}: no verdict ({record.reason or record.status})"
    a, said = record.analysis, record.conclusion or record.analysis
    return f"{changed}: {said.judgement} ({said.reason}); {a.primary}: {a.reason}"


def _row(record: ExperimentRecord) -> list[str | Cell]:
    a = record.analysis
    changed = "; ".join(f"{pin}: {record.before.get(pin)} → {value}" for pin, value in record.after.items())
    done = len({r.block for r in record.runs if r.block is not None})
    blocks = f"{done} of {record.blocks}, {record.load}"
    if a is None:
        none = Cell("undecided", State.UNDECIDED)
        why = record.reason or record.status
        return [changed or ", ".join(record.changes), none, "", why, blocks, "", record.id]
    said = record.conclusion or a
    verdict = Cell(str(said.judgement), _COLOUR.get(said.judgement))
    why = a.reason if said.judgement is a.judgement else f"{a.reason}; {said.reason}"
    return [changed, verdict, a.primary, why, blocks, ", ".join(a.worse), record.id]


def _proposals(found: Diagnosis, steps: Sequence[Step]) -> Table:
    subject = next((s for s in steps if s.record.id == found.subject), steps[-1])
    proposals = rank(found, subject.record.meta.pins)
    rows = tuple(
        cells(
            [
                str(i),
                p.title if p.change is None else f"{p.title} ({p.change})",
                p.expected,
                p.price if p.quality_check == "none" else f"{p.price}. Check: {p.quality_check}",
                p.refuted_by,
            ]
        )
        for i, p in enumerate(proposals[:SHOWN_PROPOSALS], 1)
    )
    note = (
        "One variable at a time; a gain is an expectation to rank by, and believed when `setpoint experiment run` has"
        f" shown it. Sources: {'; '.join(dict.fromkeys(p.source for p in proposals[:SHOWN_PROPOSALS]))}."
    )
    names = ", ".join(f.name for f in found.supported) or "nothing supported yet"
    columns = ("", "change", "expected gain", "price", "would be refuted by")
    return Table("What to try next", columns, rows, Origin.ASSUMED, f"playbook, ranked for {names}", note)
