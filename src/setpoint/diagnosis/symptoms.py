"""Which promises are broken, by whom: what a diagnosis has to explain."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from setpoint.diagnosis.observation import Observation
from setpoint.metrics.judge import judge
from setpoint.metrics.promise import definition_of, within
from setpoint.metrics.table import Mask
from setpoint.metrics.verdict import State, Verdict
from setpoint.workload.promise import Promise


@dataclass(frozen=True)
class Symptom:
    """One promise and the exchanges that break it.

    Attributes:
        promise: In words.
        metric: ``ttft``, ``itl``, ``tpot``, ``e2e``, ``answered`` or ``availability``.
        limit_s: Its limit for one exchange: a whole task's is spread over its turns. None for shares of answers.
        verdict: On all exchanges of the run.
        broken: Which exchanges break the limit, or belong to a task that does; one that gave no token and waited longer
            does.
        leaning: Whether the observed share is below the promised one; the verdict may still be undecided.
    """

    promise: str
    metric: str
    limit_s: float | None
    verdict: Verdict
    broken: Mask
    leaning: bool

    @property
    def certain(self) -> bool:
        """Whether it is broken beyond the noise of the sample."""
        return self.verdict.state is State.MISSED


def symptoms_of(observation: Observation, promises: Sequence[Promise]) -> tuple[Symptom, ...]:
    """One a promise that load can show."""
    return tuple(_symptom(observation, p) for p in promises if p.metric != "quality")


def _symptom(observation: Observation, promise: Promise) -> Symptom:
    table = observation.table
    verdict = judge(promise, table)
    broken = _broken(observation, promise)
    leaning = verdict.share is not None and verdict.share < verdict.required
    whole_task, limit_s = _is_of_tasks(promise), promise.limit_s
    if limit_s is not None and promise.metric in ("ttft", "e2e") and len(table) and not whole_task:
        leaning = leaning or bool(broken.mean() > 1 - verdict.required)
    if limit_s is not None and whole_task and len(table):
        limit_s *= len(np.unique(table.session)) / len(table)
    return Symptom(promise.label, str(promise.metric), limit_s, verdict, broken, leaning)


def _is_of_tasks(promise: Promise) -> bool:
    definition = definition_of(promise)
    return definition is not None and definition.per == "task"


def _broken(observation: Observation, promise: Promise) -> Mask:
    table = observation.table
    limit, definition = promise.limit_s, definition_of(promise)
    if limit is None or definition is None:
        return table.failed
    if definition.per == "gap":
        return table.gaps_at_most(limit) < table.gaps
    if definition.per == "task":
        tasks = table.tasks()
        return np.isin(table.session, tasks.session[~within(definition.values(tasks), limit)])
    values = definition.values(table)
    late = ~np.isnan(values) & ~within(values, limit)
    if promise.metric == "ttft":
        late |= np.isnan(values) & (table.done_s - table.scheduled_s > limit)
    return np.asarray(late, dtype=np.bool_)
