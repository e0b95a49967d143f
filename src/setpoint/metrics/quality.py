"""The quality promise: a suite's score, its interval, and the verdict.

The score is the mean over measured answers. Answers that could not be measured (time-outs, failures, refusals of the
server) are neither right nor wrong: they count against coverage, and the interval counts them as wrong at its lower
and as right at its upper end. So a failure can only make a verdict worse, and never reads as a wrong answer.

Tasks are the independent observations; repetitions of one task are not. The interval is Wilson's at the effective
sample size (variance of the task means; L. Kish, Survey Sampling, 1965). For scores between 0 and 1 Wilson's variance
``p(1 - p)`` is an upper bound (Bhatia and Davis, American Mathematical Monthly 107, 2000).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl

from setpoint.metrics.promise import PromiseLike, required_share
from setpoint.metrics.proportion import samples_to_decide, wilson
from setpoint.metrics.table import Floats
from setpoint.metrics.verdict import State, Verdict
from setpoint.units import format_share


@dataclass(frozen=True, slots=True)
class SuiteScore:
    """What a suite came to.

    Attributes:
        suite: Its name.
        tasks: Different tasks.
        planned: Answers that should have been measured (tasks times epochs).
        measured: Answers that were.
        required_coverage: Share of the planned answers that a verdict needs.
        score: Mean of the measured answers; None when none was.
        low: Lower end of the 95% interval, what is unmeasured counted as wrong.
        high: Upper end, what is unmeasured counted as right.
        effective: Effective number of observations.
        within_task: Standard deviation between epochs of one task, pooled; None with a single epoch.
    """

    suite: str
    tasks: int
    planned: int
    measured: int
    required_coverage: float
    score: float | None
    low: float | None
    high: float | None
    effective: float
    within_task: float | None

    @property
    def coverage(self) -> float:
        """Share of the planned answers that were measured."""
        return self.measured / self.planned

    @property
    def covered(self) -> bool:
        """Whether enough was measured for a verdict."""
        return self.coverage >= self.required_coverage


def score_suites(rows: pl.DataFrame) -> list[SuiteScore]:
    """The score of each suite in the rows of ``quality.parquet``, by name."""
    return [score_suite(part) for _, part in rows.sort("suite").group_by("suite", maintain_order=True)]


def score_suite(rows: pl.DataFrame) -> SuiteScore:
    """The score of one suite.

    Args:
        rows: All its answers, at least one; ``score`` is null where an answer could not be measured.
    """
    planned, measured = rows.height, int(rows["score"].count())
    mean = rows["score"].mean()
    low = high = None
    means = task_means(rows)
    effective = 0.0
    if measured and isinstance(mean, float):
        missing = planned - measured
        effective = _effective(means, measured)
        total = mean * measured
        low = wilson(total / planned, effective * planned / measured)[0]
        high = wilson((total + missing) / planned, effective * planned / measured)[1]
    return SuiteScore(
        suite=str(rows["suite"][0]),
        tasks=rows["task"].n_unique(),
        planned=planned,
        measured=measured,
        required_coverage=float(rows["required_coverage"][0]),
        score=mean if isinstance(mean, float) else None,
        low=low,
        high=high,
        effective=effective,
        within_task=_within_task(rows),
    )


def task_means(rows: pl.DataFrame) -> Floats:
    """Mean score of each task that has a measured answer, by task id."""
    means = rows.drop_nulls("score").group_by("task").agg(pl.col("score").mean()).sort("task")
    return means["score"].to_numpy().astype(np.float64)


def judge_quality(promise: PromiseLike, rows: pl.DataFrame | None, doubts: Iterable[tuple[State, str]] = ()) -> Verdict:
    """The verdict on a quality promise.

    Args:
        promise: Names a suite, or none where the rows hold a single one.
        rows: Of ``quality.parquet``; None or empty when nothing was graded.
        doubts: State and reason: a verdict of that state becomes undecided for the reason.
    """
    required = required_share(promise)
    chosen = _rows_of(promise, rows)
    if isinstance(chosen, str):
        return _verdict(promise, State.UNDECIDED, chosen, None)
    found = score_suite(chosen)
    if found.score is None or found.low is None or found.high is None:
        return _verdict(promise, State.UNDECIDED, f"none of {found.planned:,} answers could be measured", found)
    evidence = (
        f"score {format_share(found.score)} over {found.measured:,} answers to {found.tasks:,} tasks, 95% interval "
        f"{format_share(found.low)} to {format_share(found.high)} (effective sample {found.effective:,.0f})"
    )
    missing = found.planned - found.measured
    if missing:
        evidence += f"; {missing:,} could not be measured and widen the interval"
    if not found.covered:
        why = (
            f"coverage too low: {format_share(found.coverage)} measured, {format_share(found.required_coverage)} needed"
        )
        return _verdict(promise, State.UNDECIDED, f"{why}; {evidence}", found)
    state = State.MET if found.low >= required else State.MISSED if found.high < required else State.UNDECIDED
    against = [reason for spoiled, reason in doubts if spoiled is state]
    if against:
        return _verdict(promise, State.UNDECIDED, f"{'; '.join(against)}. Otherwise: {evidence}", found)
    if state is State.UNDECIDED:
        evidence = f"interval includes {format_share(required)}: {evidence}"
    return _verdict(promise, state, evidence, found)


def _rows_of(promise: PromiseLike, rows: pl.DataFrame | None) -> pl.DataFrame | str:
    """The rows of the promised suite, or why there are none."""
    suite = getattr(promise, "suite", None)
    if rows is None or rows.is_empty():
        return f"{promise.metric} is not measured by load; it needs its own suite: setpoint eval CARD measures it"
    suites = sorted(set(rows["suite"]))
    if suite is None:
        return rows if len(suites) == 1 else f"{', '.join(suites)} were measured and the promise names none of them"
    if suite not in suites:
        return f"suite {suite} was not measured ({', '.join(suites)} was)"
    return rows.filter(pl.col("suite") == suite)


def _effective(means: Floats, measured: int) -> float:
    """Effective sample: tasks, corrected for the spread of their means; at most the number of answers."""
    tasks, mean = len(means), float(means.mean())
    spread = float(means.var(ddof=1)) if tasks > 1 else 0.0
    if spread == 0.0 or not 0.0 < mean < 1.0:
        return float(tasks)
    return float(np.clip(mean * (1 - mean) / (spread / tasks), min(tasks, 2), measured))


def _within_task(rows: pl.DataFrame) -> float | None:
    graded = rows.drop_nulls("score")
    spread = graded.group_by("task").agg(pl.col("score").var().alias("variance"), pl.len().alias("n"))
    repeated = spread.filter(pl.col("n") > 1)
    mean = repeated["variance"].mean()
    return float(np.sqrt(mean)) if isinstance(mean, float) else None


def _verdict(promise: PromiseLike, state: State, reason: str, found: SuiteScore | None) -> Verdict:
    required = required_share(promise)
    more = None
    if state is State.UNDECIDED and found is not None and found.score is not None and found.covered and found.effective:
        needed = samples_to_decide(found.score, required, found.measured / found.effective)
        more = None if needed is None else max(1, needed - found.measured)
    return Verdict(
        promise=promise.label,
        metric=str(promise.metric),
        state=state,
        reason=reason,
        required=required,
        share=None if found is None else found.score,
        low=None if found is None else found.low,
        high=None if found is None else found.high,
        samples=0 if found is None else found.measured,
        effective_samples=0.0 if found is None else found.effective,
        limit=None,
        observed=None,
        more_samples=more,
    )
