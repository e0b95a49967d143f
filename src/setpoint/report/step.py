"""One run as a report sees it: its load, figures and verdicts, from the record alone."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import polars as pl

from setpoint.metrics.judge import incomplete, judge_all, overall
from setpoint.metrics.summary import Summary, summarise
from setpoint.metrics.table import ExchangeTable
from setpoint.metrics.verdict import State, Verdict
from setpoint.records.record import RunRecord
from setpoint.report.quality import is_evaluation, verdicts_of
from setpoint.units import format_number
from setpoint.workload.card import Workload


@dataclass(frozen=True)
class Step:
    """A run of a series, or the only one.

    Attributes:
        record: The run.
        evaluations: Evaluations of the same target: they decide quality promises that load cannot show.
    """

    record: RunRecord
    evaluations: tuple[RunRecord, ...] = ()

    @cached_property
    def card(self) -> Workload | None:
        """The card; None when the run ended before it was known, or another version wrote it."""
        with contextlib.suppress(ValueError):
            return Workload.model_validate(self.record.meta.card)
        return None

    @cached_property
    def summary(self) -> Summary:
        """As recorded; computed anew from the exchanges where the run was never closed."""
        stored = self.record.meta.summary
        if stored is not None:
            with contextlib.suppress(msgspec.ValidationError):
                return Summary.from_dict(stored)
        return summarise(ExchangeTable.from_record(self.record), self.card.promises if self.card else ())

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """As recorded; judged anew, with doubt, where the run was never closed. Quality also from the evaluations."""
        graded = verdicts_of(self.evaluations)
        return [graded[v.promise][1] if v.share is None and v.promise in graded else v for v in self._own_verdicts()]

    def _own_verdicts(self) -> list[Verdict]:
        stored = self.record.meta.verdicts
        if stored:
            with contextlib.suppress(msgspec.ValidationError):
                return [msgspec.convert(v, Verdict) for v in stored]
        if self.card is None:
            return []
        doubt = incomplete(self.record.meta.reason or "it was not closed")
        table = ExchangeTable.from_record(self.record)
        return judge_all(self.card.promises, table, doubts=[doubt], quality=self.record.quality())

    @property
    def state(self) -> State:
        """Of all promises that were measured: a quality promise that nobody measured is told beside it."""
        return overall(v for v in self.verdicts if v.metric != "quality" or v.share is not None)

    @property
    def load(self) -> float:
        """Offered requests a second, or users in closed loop; 0 when unknown."""
        schedule = self.record.meta.schedule
        if schedule is None:
            return 0.0
        return float(schedule.concurrency or schedule.offered_per_s or 0.0)

    @property
    def closed(self) -> bool:
        """Whether the load is a number of users."""
        schedule = self.record.meta.schedule
        return schedule is not None and schedule.concurrency is not None

    @property
    def words(self) -> str:
        """The load in words."""
        if is_evaluation(self.record):
            return "no load"
        if self.closed:
            return f"{self.load:.0f} users"
        return f"{format_number(self.load)} requests/s" if self.load else "an unknown load"

    @property
    def client(self) -> Mapping[str, Any]:
        """The client certificate; empty without one."""
        return self.record.meta.client or {}

    @cached_property
    def signals(self) -> pl.DataFrame:
        """Signal readings."""
        return self.record.signals()

    def percentile(self, metric: str, quantile: float) -> float | None:
        """A percentile of the summary; None where it was not computed or the sample cannot bound it."""
        distribution = self.summary.distributions.get(metric)
        found = distribution.at(quantile) if distribution is not None else None
        return None if found is None else found.value


def in_order(records: list[RunRecord], evaluations: Sequence[RunRecord] = ()) -> list[Step]:
    """Steps by load, then by time."""
    return sorted((Step(r, tuple(evaluations)) for r in records), key=lambda s: (s.load, s.record.id))


def one_per_load(steps: Sequence[Step]) -> list[Step]:
    """Of several runs at one load the one with the most exchanges, in the same order."""
    best: dict[str, Step] = {}
    for step in steps:
        if step.words not in best or step.summary.exchanges > best[step.words].summary.exchanges:
            best[step.words] = step
    return [s for s in steps if best[s.words] is s]
