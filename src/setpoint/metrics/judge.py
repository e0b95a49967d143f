"""From promises and exchanges to verdicts: met, missed, or undecided with the reason.

A promise is a share. Its 95% interval is Wilson's at the effective sample size, or an always-valid one where the run
may have been stopped early.

Correlation is estimated twice and the larger design effect counts: of "within the limit", and of "within the
sample's own promised quantile". The second is what the first would be if the promise were just kept, the case that the
verdict must tell apart; it is needed because a sample that lies all within shows no correlation at all, however
strongly its latencies follow one another (Wilson's interval takes the variance at the bound for the same reason).

Failures count in full, and correlation is estimated on answered exchanges alone, so that a failure can only lower the
bounds: adding one never improves a verdict. An outage (five failures in a row) is one event: it widens the interval
downwards.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from setpoint.metrics.correlation import design_effect, longest_burst
from setpoint.metrics.percentile import ascending, percentile
from setpoint.metrics.promise import PromiseLike, definition_of, required_share
from setpoint.metrics.proportion import samples_to_decide, samples_to_meet, wilson
from setpoint.metrics.sequence import always_valid, looks_to_decide
from setpoint.metrics.table import ExchangeTable
from setpoint.metrics.trials import Trials, trials_of
from setpoint.metrics.verdict import State, Verdict
from setpoint.units import format_duration, format_share


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something outside the exchanges that makes a verdict unsafe.

    Attributes:
        reason: In words, for the reader of the verdict.
        spoils: The states that it turns into undecided.
    """

    reason: str
    spoils: frozenset[State]


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
    return Doubt(f"run is incomplete: {reason}", frozenset({State.MET}))


@dataclass(frozen=True, slots=True)
class ShareEstimate:
    """A share of observations with its interval.

    Attributes:
        share: Certainly inside, over all; None without observations.
        low: Lower bound, with everything open counted as outside.
        high: Upper bound, with everything open counted as inside.
        observations: Number of observations.
        effective: Effective number, for the lower bound.
        open: Observations that the client cut off.
        design_effect: Observations per independent one.
    """

    share: float | None
    low: float | None
    high: float | None
    observations: int
    effective: float
    open: int
    design_effect: float


def estimate(trials: Trials, table: ExchangeTable, *, looks: bool = False) -> ShareEstimate:
    """The share of a promise with its 95% interval.

    Args:
        trials: Counts over ``table``.
        table: Measured exchanges in order of schedule.
        looks: The sample size was chosen by looking at the data: use the always-valid interval.
    """
    n = trials.observations
    if n == 0:
        return ShareEstimate(None, None, None, 0, 0.0, 0, 1.0)
    answered = table.answered
    total, session = trials.total[answered], table.session[answered]
    spread = design_effect(trials.inside[answered], total, session)
    if trials.at_quantile is not None:
        spread = max(spread, design_effect(trials.at_quantile[answered], total, session))
    worst = max(spread, longest_burst(table.failed, trials.total))
    inside, open_ = int(trials.inside.sum()), int(trials.open.sum())
    low = _interval(inside, n, worst, looks=looks)[0]
    high = _interval(inside + open_, n, spread, looks=looks)[1]
    return ShareEstimate(inside / n, low, high, n, n / worst, open_, worst)


def _interval(inside: int, total: int, spread: float, *, looks: bool) -> tuple[float, float]:
    if looks:
        return always_valid(inside / spread, total / spread)
    return wilson(inside / total, total / spread)


def judge(promise: PromiseLike, table: ExchangeTable, *, doubts: Iterable[Doubt] = (), looks: bool = False) -> Verdict:
    """The verdict on one promise over all measured exchanges of a table (the warm-up is left out).

    Args:
        promise: What was promised.
        table: All exchanges of a run.
        doubts: What else makes a verdict unsafe (``client_bound``, ``cache_warm``, ``still_growing``, ...).
        looks: The run may have been stopped by looking at its data.
    """
    table = table.measured
    required = required_share(promise)
    try:
        trials = trials_of(promise, table)
    except KeyError:
        return _unmeasured(promise, f"{promise.metric} is not measured by load; it needs its own suite")
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
    against = [doubt.reason for doubt in doubts if state in doubt.spoils]
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
) -> list[Verdict]:
    """One verdict a promise, in the same order."""
    doubts = tuple(doubts)
    return [judge(promise, table, doubts=doubts, looks=looks) for promise in promises]


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
    needed = size(found.share, required, found.design_effect)
    if needed is None:
        return None
    exchanges = int((trials.total > 0).sum())
    per_exchange = found.observations / exchanges
    return max(1, int(np.ceil((needed - found.observations) / per_exchange)))


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
