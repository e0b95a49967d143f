"""From promises and exchanges to verdicts: met, missed, or undecided with the reason.

A promise is a share; ``estimate`` gives it a 95% interval, and the interval decides. Adding a failure never improves a
verdict.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import polars as pl

from setpoint.metrics.estimate import ShareEstimate, estimate
from setpoint.metrics.percentile import ascending, percentile
from setpoint.metrics.promise import PromiseLike, definition_of, judged_rows, required_share
from setpoint.metrics.proportion import samples_to_decide, samples_to_meet
from setpoint.metrics.quality import judge_quality
from setpoint.metrics.sequence import looks_to_decide
from setpoint.metrics.table import ExchangeTable
from setpoint.metrics.trials import Trials, trials_of
from setpoint.metrics.verdict import State, Verdict
from setpoint.metrics.window import steady_window
from setpoint.units import format_duration, format_share


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something outside the exchanges that makes a verdict unsafe.

    Attributes:
        reason: In words, for the reader of the verdict.
        spoils: The states that it turns into undecided.
        of_grades: Whether it is a doubt about graded answers too, not only about times.
    """

    reason: str
    spoils: frozenset[State]
    of_grades: bool = False


def client_bound(reason: str) -> Doubt:
    """The client was the bottleneck: nothing can be said about the server, for or against."""
    return Doubt(f"client was the bottleneck: {reason}", frozenset({State.MET, State.MISSED}))


def cache_warm(reason: str) -> Doubt:
    """The prefix cache may have helped: a promise that was met may not be; one that was missed is missed."""
    return Doubt(f"cache was warm: {reason}", frozenset({State.MET}))


def still_growing(reason: str) -> Doubt:
    """No steady state was reached: a longer run may be worse."""
    return Doubt(f"no steady state: {reason}", frozenset({State.MET}))


def incomplete(reason: str) -> Doubt:
    """Part of the schedule was not executed."""
    return Doubt(f"run is incomplete: {reason}", frozenset({State.MET}), of_grades=True)


def judge(
    promise: PromiseLike,
    table: ExchangeTable,
    *,
    doubts: Iterable[Doubt] = (),
    looks: bool = False,
    quality: pl.DataFrame | None = None,
) -> Verdict:
    """The verdict on one promise over all measured exchanges of a table (the warm-up is left out).

    Args:
        promise: What was promised.
        table: All exchanges of a run.
        doubts: What else makes a verdict unsafe (``client_bound``, ``cache_warm``, ``still_growing``, ...).
        looks: The run may have been stopped by looking at its data.
        quality: Rows of ``quality.parquet``: what a quality promise is judged from.
    """
    if str(promise.metric) == "quality":
        return judge_quality(promise, quality, [(s, d.reason) for d in doubts if d.of_grades for s in d.spoils])
    table = judged_rows(promise, table.measured)
    required = required_share(promise)
    trials = trials_of(promise, table)
    found = estimate(trials, table, looks=looks)
    if found.share is None or found.low is None or found.high is None:
        why = "no exchange was measured" if len(table) == 0 else f"no exchange has a {promise.metric} to judge"
        if trials.undefined:
            why += f" ({trials.undefined} answers came in a single chunk or token)"
        return _unmeasured(promise, why)
    state = State.UNDECIDED
    if found.low >= required:
        state = State.MET
    elif found.high < required:
        state = State.MISSED
    against = [doubt.reason.rstrip(".") for doubt in doubts if state in doubt.spoils]
    evidence = _evidence(promise, found, trials, table)
    more = None
    if against:
        state, reason = State.UNDECIDED, f"{'; '.join(against)}. Otherwise: {evidence}"
    elif state is State.UNDECIDED:
        more = _more_exchanges(found, required, trials, looks=looks)
        reason = f"{_why_undecided(found, required, trials, looks=looks)}: {evidence}"
    else:
        reason = evidence
    return Verdict(
        promise=promise.label,
        metric=str(promise.metric),
        state=state,
        reason=reason,
        required=required,
        share=found.share,
        low=found.low,
        high=found.high,
        samples=found.observations,
        effective_samples=found.effective,
        limit=promise.limit_s,
        observed=_observed(promise, table, found.design_effect),
        more_samples=more,
    )


def judge_all(
    promises: Sequence[PromiseLike],
    table: ExchangeTable,
    *,
    doubts: Iterable[Doubt] = (),
    looks: bool = False,
    quality: pl.DataFrame | None = None,
) -> list[Verdict]:
    """One verdict a promise, in the same order.

    A run whose number in flight still rose when the sends ended may meet every promise and yet not keep up; nothing is
    called met then. Steps of a search (``looks``) end at any moment, ramp-up included; who ends them watches the
    backlog.
    """
    doubts = list(doubts)
    if not looks:
        window = steady_window(table)
        if window.growing:
            doubts.append(still_growing(window.reason))
    return [judge(promise, table, doubts=doubts, looks=looks, quality=quality) for promise in promises]


def overall(verdicts: Iterable[Verdict]) -> State:
    """Missed when one is missed, else undecided when one is undecided (or there is none), else met."""
    states = {verdict.state for verdict in verdicts}
    if State.MISSED in states:
        return State.MISSED
    return State.MET if states == {State.MET} else State.UNDECIDED


def _evidence(promise: PromiseLike, found: ShareEstimate, trials: Trials, table: ExchangeTable) -> str:
    assert found.share is not None
    assert found.low is not None
    assert found.high is not None
    what = "answered" if promise.limit_s is None else f"within {format_duration(promise.limit_s)}"
    sentence = (
        f"{format_share(found.share)} of {found.observations:,} {trials.unit} {what}, 95% interval "
        f"{format_share(found.low)} to {format_share(found.high)} (effective sample {found.effective:,.0f})"
    )
    notes = []
    failed = int(table.failed.sum())
    if failed:
        notes.append(f"{failed:,} failed and count as outside")
    if found.open:
        notes.append(f"{found.open:,} {trials.unit} cut off by the client could not tell")
    if trials.undefined:
        notes.append(f"{trials.undefined:,} answers have no {promise.metric}")
    return "; ".join([sentence, *notes])


def _why_undecided(found: ShareEstimate, required: float, trials: Trials, *, looks: bool) -> str:
    needed = looks_to_decide(1.0, required) if looks else samples_to_meet(required)
    if needed is not None and found.effective < needed:
        return (
            f"too few samples (an effective {found.effective:,.0f}; {format_share(required)} needs at least "
            f"{needed} {trials.unit}, all within)"
        )
    return f"interval includes {format_share(required)}"


def _more_exchanges(found: ShareEstimate, required: float, trials: Trials, *, looks: bool) -> int | None:
    assert found.share is not None
    size = looks_to_decide if looks else samples_to_decide
    exchanges = int((trials.total > 0).sum())
    # Where failures leave it open, exchanges decide and not their gaps.
    per_exchange = 1.0 if found.failures_widen else found.observations / exchanges
    needed = size(found.share, required, 1.0 if found.failures_widen else found.design_effect)
    return None if needed is None else max(1, math.ceil(needed / per_exchange) - exchanges)


def _observed(promise: PromiseLike, table: ExchangeTable, spread: float) -> float | None:
    """The metric's value at the promised quantile, over answered exchanges; None where it cannot be bounded."""
    definition = definition_of(promise)
    if definition is None or promise.quantile is None:
        return None
    values, _ = definition.observed(table)
    return percentile(ascending(values), promise.quantile, spread).value


def _unmeasured(promise: PromiseLike, reason: str) -> Verdict:
    required = required_share(promise) if promise.quantile or promise.at_least else 0.0
    return Verdict(
        promise=promise.label,
        metric=str(promise.metric),
        state=State.UNDECIDED,
        reason=reason,
        required=required,
        share=None,
        low=None,
        high=None,
        samples=0,
        effective_samples=0.0,
        limit=promise.limit_s,
        observed=None,
        more_samples=None,
    )
