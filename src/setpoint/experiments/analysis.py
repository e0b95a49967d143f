"""The runs of two arms in blocks into compared endpoints, with the A/A control."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from setpoint.experiments.bootstrap import Effect, Statistic, difference, mean_statistic, quantile_statistic
from setpoint.experiments.design import FEWEST_BLOCKS
from setpoint.experiments.endpoint import Endpoint, endpoints_of, fewest_values, matrix_of, primary_of, run_value
from setpoint.experiments.verdict import Compared, Judgement, delta_of, judge_effect, relative, signed
from setpoint.metrics.percentile import fewest_samples
from setpoint.metrics.table import ExchangeTable, Floats
from setpoint.workload.card import Workload


@dataclass(frozen=True, slots=True)
class Block:
    """The runs of one block, all of one schedule.

    Attributes:
        a: Measured exchanges of the first arm's runs, in order of time.
        b: Of the second arm's.
        doubts: Why its figures may not be the target's (a bad client, a run that ended early).
    """

    a: tuple[ExchangeTable, ...]
    b: tuple[ExchangeTable, ...]
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Analysis:
    """What an experiment comes to.

    Attributes:
        primary: Name of the endpoint that the verdict is about.
        judgement: The verdict.
        reason: In one sentence.
        compared: All endpoints that the sample bounds; the others are in ``unbounded``.
        control: The primary endpoint between two runs of the first arm: nothing was changed.
        noise: Median over blocks of the control's absolute change: what nothing looks like.
        worse: Promised endpoints, other than the primary, that got worse.
        unbounded: Endpoints that the sample cannot bound, with the samples needed in a block.
        left_out: Blocks that do not count, whole, with the reason: the choice does not look at the endpoint.
    """

    primary: str
    judgement: Judgement
    reason: str
    compared: tuple[Compared, ...]
    control: Compared
    noise: float | None
    worse: tuple[str, ...]
    unbounded: dict[str, int]
    left_out: tuple[str, ...]


def analyse(
    card: Workload, blocks: Sequence[Block], *, metric: str | None = None, delta: float | None = None, seed: int = 0
) -> Analysis:
    """The verdict on the second arm.

    Args:
        card: Of all runs.
        blocks: In order of time.
        metric: Name of the primary endpoint; the card's first latency promise unless given.
        delta: Relative change that counts as the same.
        seed: Of the resampling.

    Raises:
        UsageError: there is no such metric.
    """
    endpoints = endpoints_of(card)
    primary = primary_of(endpoints, metric)
    left_out = tuple(f"block {i}: {b.doubts[0]}" for i, b in enumerate(blocks, 1) if b.doubts)
    counted = [b for b in blocks if not b.doubts] or list(blocks)
    arms = [(b.a, b.b) for b in counted]
    halves = [(b.a[:1], b.a[1:2]) for b in counted if len(b.a) > 1]
    control = _compare(primary, halves, card, delta, seed, None)
    doubt = _doubt(len(blocks) - len(left_out), left_out, control)
    compared, unbounded = [], {}
    for endpoint in endpoints:
        needed = _needed(endpoint, arms)
        if needed is not None and endpoint is not primary:
            unbounded[endpoint.name] = needed
            continue
        own = doubt
        if needed is not None and doubt is None:
            own = f"the sample cannot bound it: it needs {needed:,} exchanges an arm in each block"
        compared.append(_compare(endpoint, arms, card, delta, seed, own))
    main = next(c for c in compared if c.endpoint == primary.name)
    noise = [abs(x) for x in control.blocks if x is not None]
    return Analysis(
        primary=primary.name,
        judgement=main.judgement,
        reason=main.reason,
        compared=tuple(compared),
        control=control,
        noise=float(np.median(noise)) if noise else None,
        worse=tuple(c.endpoint for c in compared if c.promised and c is not main and c.judgement is Judgement.WORSE),
        unbounded=unbounded,
        left_out=left_out,
    )


Arms = Sequence[tuple[tuple[ExchangeTable, ...], tuple[ExchangeTable, ...]]]


def _compare(
    endpoint: Endpoint, arms: Arms, card: Workload, delta: float | None, seed: int, doubt: str | None
) -> Compared:
    blocks = [_matrices(endpoint, a, b, card) for a, b in arms]
    statistic = _statistic(endpoint)
    effect = difference(blocks, statistic, ratio=endpoint.ratio, seed=seed)
    allowed = delta_of(endpoint, delta)
    judgement, reason = judge_effect(endpoint, effect, allowed, doubt)
    known = math.isfinite(effect.value)
    return Compared(
        endpoint=endpoint.name,
        promised=endpoint.promised,
        ratio=endpoint.ratio,
        lower_is_better=endpoint.lower_is_better,
        a=_figure([a for a, _ in blocks], statistic),
        b=_figure([b for _, b in blocks], statistic),
        change=relative(endpoint, effect.value) if known else None,
        low=_end(endpoint, effect, effect.low),
        high=_end(endpoint, effect, effect.high),
        delta=allowed,
        judgement=judgement,
        reason=reason,
        blocks=tuple(relative(endpoint, x) if math.isfinite(x) else None for x in effect.blocks),
    )


def _end(endpoint: Endpoint, effect: Effect, end: float) -> float | None:
    return relative(endpoint, end) if math.isfinite(end) and math.isfinite(effect.value) else None


def _figure(matrices: Sequence[Floats], statistic: Statistic) -> float | None:
    if not matrices:
        return None
    found = float(statistic(np.concatenate([m.ravel() for m in matrices]).reshape(1, -1))[0])
    return found if math.isfinite(found) else None


def _statistic(endpoint: Endpoint) -> Statistic:
    return mean_statistic if endpoint.quantile is None else quantile_statistic(endpoint.quantile)


def _matrices(
    endpoint: Endpoint, a: Sequence[ExchangeTable], b: Sequence[ExchangeTable], card: Workload
) -> tuple[Floats, Floats]:
    if endpoint.of_run:
        first, second = (np.array([[run_value(endpoint, t, card.promises) for t in arm]]) for arm in (a, b))
        return first, second
    sessions = max((int(t.session.max()) + 1 for t in (*a, *b) if len(t)), default=1)
    return matrix_of(endpoint, a, card.promises, sessions), matrix_of(endpoint, b, card.promises, sessions)


def _needed(endpoint: Endpoint, arms: Arms) -> int | None:
    """Values that an arm needs in each block to bound the endpoint; None where it has them."""
    if endpoint.quantile is None:
        return None
    needed = fewest_samples(endpoint.quantile)
    fewest = min((fewest_values(endpoint, arm) for pair in arms for arm in pair), default=0)
    return needed if fewest < needed else None


def _doubt(clean: int, left_out: Sequence[str], control: Compared) -> str | None:
    if left_out and clean < FEWEST_BLOCKS:
        return f"{clean} of at least {FEWEST_BLOCKS} clean blocks; {left_out[0]}"
    if control.judgement in (Judgement.BETTER, Judgement.WORSE):
        return f"the A/A control failed: two runs of one arm differ by {control.reason}"
    return None


def change_words(found: Compared) -> str:
    """The change with its interval."""
    endpoint = Endpoint(found.endpoint, "e2e" if found.ratio else "attainment")
    if found.change is None:
        return "not known"
    ends = ", ".join("unbounded" if x is None else signed(endpoint, x) for x in (found.low, found.high))
    return f"{signed(endpoint, found.change)} [{ends}]"
