"""What is known beside the runs of a report: the plan, finished experiments, and the assessment they belong to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from setpoint.errors import RecordError, UsageError
from setpoint.experiments.record import ExperimentRecord, ExperimentStore
from setpoint.records.assessment import AssessmentRecord, read_assessment
from setpoint.records.plans import find_plan
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore

SAME_TARGET = ("engine", "model", "dialect")


@dataclass(frozen=True, slots=True)
class Context:
    """What a report tells beside its runs.

    Attributes:
        plan: Of their card and model, as ``records.plans`` keeps it; None without one.
        experiments: With the same card, engine and model, newest first.
        assessment: That the runs belong to; None without one.
    """

    plan: Mapping[str, Any] | None = None
    experiments: tuple[ExperimentRecord, ...] = ()
    assessment: AssessmentRecord | None = None


def context_of(runs: Path, records: Sequence[RunRecord]) -> Context:
    """What lies beside these runs, from files alone.

    Args:
        runs: Folder of all runs.
        records: Those of the report.

    Raises:
        RecordError: the plan or the assessment cannot be read.
    """
    meta = max(records, key=lambda r: r.meta.created).meta
    plan = find_plan(runs, meta.card_name, str(meta.target.get("model", "")))
    assessment = next((a for r in records if (a := read_assessment(r.path)) is not None), None)
    return Context(plan, tuple(_experiments(runs, records)), assessment)


def _experiments(runs: Path, records: Sequence[RunRecord]) -> list[ExperimentRecord]:
    """Those whose first run is pinned to the same engine and model; one that cannot be read is no part of a report."""
    pins = records[0].meta.pins
    store, all_runs, out = ExperimentStore(runs.parent / "experiments"), RunStore(runs), []
    for name in store.ids():
        if f"-{records[0].meta.card_name}-" not in name:
            continue
        try:
            found = store.open(name)
            first = all_runs.open(found.runs[0].run).meta.pins if found.runs else {}
        except (RecordError, UsageError):
            continue
        if found.card_name == records[0].meta.card_name and all(first.get(k) == pins.get(k) for k in SAME_TARGET):
            out.append(found)
    return out
