"""How much one replica completes within promised quantiles, and what its sessions see at a load; many at once.

The latency model gives means. A quantile is taken from them so:

    TTFT_q = service + prefill x (new prompt tokens at q / mean - 1) + waiting x max(1, -ln(1 - q))
    E2E_q  = TTFT_q + output tokens at q x TPOT
    TPOT_q = TPOT
    ITL_q  = a decode step, or the stall of a step that carries a prompt's chunk where more than 1 - q of steps do

Waiting is taken as exponential; adding quantiles takes long prompts, long answers and long waits to coincide, which
errs towards promising less.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from setpoint.sizing.latency.estimate import MEASURED, Estimate, Request, chunks_of, estimates
from setpoint.sizing.latency.service import Cases, Times, times
from setpoint.sizing.latency.terms import Coefficients, packaged
from setpoint.sizing.latency.tuned import stack_of, tuned_rows
from setpoint.sizing.latency.work import FloatArray, Work, step
from setpoint.sizing.need import Limit, Need
from setpoint.sizing.term import Range
from setpoint.workload.promise import Metric

_POINTS = 9
_MOST_SESSIONS = 4096.0
_UNMEASURED = 1.5


@dataclass(frozen=True, slots=True)
class Capacity:
    """What one replica can do within the limits.

    Attributes:
        requests_per_s: Completed within every limit (goodput); the low end has slow times, the high end fast ones.
        sessions: In flight at the expected value.
        users: Users of a closed loop that it serves; None in open loop.
        binding: The limit that ends it, or what else does.
    """

    requests_per_s: Range
    sessions: float
    users: Range | None
    binding: str


@dataclass(frozen=True, slots=True)
class Curve:
    """A replica at rising loads; one element a load.

    Attributes:
        sessions: In flight.
        rate: Completed requests per second, at the expected times.
        e2e_s: Of a request, mean.
    """

    sessions: FloatArray
    rate: FloatArray
    e2e_s: FloatArray


def capacities(requests: Sequence[Request], need: Need) -> list[tuple[Capacity, Curve]]:
    """Capacity and curve of each; ``sessions`` of a request is not looked at."""
    if not requests:
        return []
    fit = packaged()
    grid = np.array([np.geomspace(1.0, max(_most(r), 1.001), _POINTS) for r in requests])
    found = _times(requests, grid, fit)
    columns = Times(*(np.broadcast_to(getattr(found, n), grid.size).reshape(grid.shape) for n in Times.__slots__))
    return [_capacity(r, need, fit, grid[i], _row(columns, i)) for i, r in enumerate(requests)]


def _times(requests: Sequence[Request], grid: FloatArray, fit: Coefficients) -> Times:
    """Each request at each of its numbers of sessions, flat; a request's works are computed in one pass each."""
    decode, prefill = [], []
    for r, sessions in zip(requests, grid, strict=True):
        each = np.maximum(sessions / r.split.dp / r.split.pp, 1.0)
        context = r.input_tokens + r.output_tokens / 2
        decode.append(
            step(r.shape, r.accelerator, r.split, tokens=each, sequences=each, context=context, prefill=False)
        )
        new, one = r.input_tokens - r.cached_tokens, np.ones(1)
        tokens, behind = one * new / chunks_of(r), r.cached_tokens + new / 2
        prefill.append(
            step(r.shape, r.accelerator, r.split, tokens=tokens, sequences=one, context=behind, prefill=True)
        )
    points = grid.shape[1]

    def column(values: Iterable[float]) -> FloatArray:
        return np.repeat(np.array(list(values), dtype=np.float64), points)

    stacks = [stack_of(r.shape, r.accelerator, r.backend) for r in requests]
    distinct = tuple(dict.fromkeys(stacks))
    index = {found: number for number, found in enumerate(distinct)}
    terms = tuned_rows(fit.values, distinct, np.repeat([index[found] for found in stacks], points))
    flat, zero, work = grid.ravel(), np.zeros(grid.size), _joined(decode, 1)
    cases = Cases(
        decode=work,
        verify=work,
        prefill=_joined(prefill, points),
        chunks=column(float(chunks_of(r)) for r in requests),
        sessions=flat,
        running=flat,
        ranks=column(r.split.dp for r in requests),
        stages=column(r.split.pp for r in requests),
        output=column(r.output_tokens for r in requests),
        drafting=zero,
        draft_share=zero,
    )
    return times(cases, terms)


def _joined(works: Sequence[Work[FloatArray]], points: int) -> Work[FloatArray]:
    names = [field.name for field in fields(Work)]
    return Work(*(np.repeat(np.concatenate([getattr(w, n) for w in works]), points) for n in names))


def _most(request: Request) -> float:
    return _MOST_SESSIONS if request.slots is None else min(_MOST_SESSIONS, request.slots)


def _row(columns: Times, index: int) -> Times:
    return Times(*(getattr(columns, name)[index] for name in Times.__slots__))


def widening(request: Request, fit: Coefficients) -> tuple[tuple[float, float], ...]:
    """Factors on TTFT and TPOT at the slow end, expected, and at the fast end."""
    known = request.accelerator.name in MEASURED and request.split.pp == 1
    wider = 1.0 if known else _UNMEASURED
    ttft, tpot = fit.ranges["ttft"][request.backend], fit.ranges["tpot"][request.backend]
    return (ttft.high * wider, tpot.high * wider), (1.0, 1.0), (ttft.low / wider, tpot.low / wider)


def _capacity(
    request: Request, need: Need, fit: Coefficients, sessions: FloatArray, t: Times
) -> tuple[Capacity, Curve]:
    ends: list[tuple[float, float, float, str]] = []
    for slow_ttft, slow_tpot in widening(request, fit):
        e2e = t.ttft_s * slow_ttft + request.output_tokens * t.tpot_s * slow_tpot
        at, binding = _within(need.limits, request, sessions, t, slow_ttft, slow_tpot)
        rate, users = 0.0, 0.0
        if at >= 1:
            lasts = float(np.interp(math.log(at), np.log(sessions), e2e))
            rate = at / lasts
            users = at * (1 + need.pause_s / lasts)
        ends.append((rate, at, users, binding))
    low, high = (min(end[0] for end in ends), max(end[0] for end in ends))
    served = sorted(end[2] for end in ends)
    expected = ends[1]
    e2e = t.ttft_s + request.output_tokens * t.tpot_s
    capacity = Capacity(
        Range(low, expected[0], high),
        expected[1],
        None if need.users is None else Range(served[0], expected[2], served[2]),
        expected[3],
    )
    return capacity, Curve(sessions, np.maximum.accumulate(sessions / e2e), e2e)


def _within(
    limits: Sequence[Limit], request: Request, sessions: FloatArray, t: Times, slow_ttft: float, slow_tpot: float
) -> tuple[float, str]:
    """Most sessions within every limit, 0 when one session already breaks one; and what ends it."""
    found, binding = float(sessions[-1]), "room in the cache"
    for limit in limits:
        strain = predicted(limit, request, t, slow_ttft, slow_tpot) / limit.limit_s
        over = np.flatnonzero(strain > 1)
        if not over.size:
            continue
        first = int(over[0])
        if first == 0:
            return 0.0, limit.label
        before, after = np.log(strain[first - 1]), np.log(strain[first])
        share = -before / (after - before)
        at = float(np.exp(np.log(sessions[first - 1]) + share * np.log(sessions[first] / sessions[first - 1])))
        if at < found:
            found, binding = at, limit.label
    return found, binding


def predicted(limit: Limit, request: Request, t: Times, slow_ttft: float = 1.0, slow_tpot: float = 1.0) -> FloatArray:
    """The promised quantile in seconds, at each load."""
    tail = max(1.0, -math.log1p(-limit.quantile)) if limit.quantile < 1 else 10.0
    first = (t.service_s + t.prefill_s * (limit.prompt_ratio - 1) + (t.queue_s + t.slot_s) * tail) * slow_ttft
    match limit.metric:
        case Metric.TTFT:
            return np.asarray(first)
        case Metric.TPOT:
            return np.asarray(t.tpot_s * slow_tpot)
        case Metric.E2E:
            return np.asarray(first + request.output_tokens * limit.output_ratio * t.tpot_s * slow_tpot)
        case _:
            chunks, steps = t.busy / t.chunk_s, (1 - t.busy) / t.step_s
            stalled = chunks / (chunks + steps) > 1 - limit.quantile
            return np.asarray(np.where(stalled, t.step_s + t.chunk_s, t.step_s) * slow_tpot)


def at_loads(
    requests: Sequence[Request], curves: Sequence[Curve], need: Need, replicas: Sequence[int]
) -> list[Estimate]:
    """What sessions of one replica see when the card's load is shared by so many replicas."""
    loaded = []
    for request, curve, count in zip(requests, curves, replicas, strict=True):
        if need.users is not None:
            users = curve.sessions * (1 + need.pause_s / curve.e2e_s)
            at = float(np.interp(need.users / count, users, curve.sessions))
        else:
            assert need.requests_per_s is not None
            at = float(np.interp(need.requests_per_s / count, curve.rate, curve.sessions))
        loaded.append(replace(request, sessions=max(at, 1.0)))
    return estimates(loaded)


def completed_per_s(curve: Curve, need: Need, replicas: int) -> float:
    """Requests per second that the card's load amounts to."""
    if need.users is None:
        assert need.requests_per_s is not None
        return need.requests_per_s
    users = curve.sessions * (1 + need.pause_s / curve.e2e_s)
    e2e = float(np.interp(need.users / replicas, users, curve.e2e_s))
    return need.users / (e2e + need.pause_s)
