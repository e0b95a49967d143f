"""How an assessment's budget was spent: what each part came to, and what it would take to say more."""

from setpoint.metrics.verdict import Origin, State
from setpoint.records.assessment import FILE, AssessmentRecord, Stage
from setpoint.report.content import Block, Cell, Table, cells
from setpoint.units import format_duration

_COLOUR = {Stage.DONE: State.MET, Stage.FAILED: State.MISSED}


def budget_blocks(assessment: AssessmentRecord | None) -> list[Block]:
    """A row a part; nothing without an assessment."""
    if assessment is None:
        return []
    rows = tuple(
        cells(
            [
                part.name,
                Cell(str(part.stage), _COLOUR.get(part.stage, State.UNDECIDED)),
                f"{format_duration(part.spent_s)} of {format_duration(part.allotted_s)}",
                part.words,
                part.takes,
            ]
        )
        for part in assessment.parts
    )
    columns = ("part", "state", "spent", "came to", "to say more")
    title = f"How the budget of {format_duration(assessment.budget_s)} was spent"
    return [Table(title, columns, rows, Origin.MEASURED, FILE, "What a part leaves goes to the parts after it.")]
