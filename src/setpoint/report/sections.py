"""The six sections."""

from collections.abc import Sequence

from setpoint.diagnosis.diagnosis import Diagnosis
from setpoint.records.record import RunRecord
from setpoint.report.acceptance import acceptance_blocks
from setpoint.report.assumptions import assumption_blocks
from setpoint.report.baseline import baseline_blocks
from setpoint.report.budget import budget_blocks
from setpoint.report.content import Section
from setpoint.report.context import Context
from setpoint.report.experiments import experiment_blocks
from setpoint.report.hypothesis import hypothesis_blocks
from setpoint.report.plan import plan_facts
from setpoint.report.step import Step
from setpoint.report.versions import version_blocks


def all_sections(
    steps: Sequence[Step],
    pivots: Sequence[Step],
    found: Diagnosis,
    evaluations: Sequence[RunRecord],
    context: Context,
) -> tuple[Section, ...]:
    """The six, in order."""
    plan = () if context.plan is None else (plan_facts(context.plan),)
    spent = budget_blocks(context.assessment)
    return (
        Section("Workload assumptions and what is not measured", (*assumption_blocks(steps, evaluations), *spent)),
        Section("Targets and baseline", (*baseline_blocks(steps, pivots), *plan)),
        Section("Main bottleneck hypothesis", tuple(hypothesis_blocks(found))),
        Section("Ranked experiments", tuple(experiment_blocks(found, steps, context))),
        Section("Acceptance criteria", tuple(acceptance_blocks(steps, pivots, evaluations))),
        Section("Vendors, models and versions", tuple(version_blocks(steps))),
    )
