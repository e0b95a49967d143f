"""How much a replica completes within limits, and where it stands at an arrival rate."""

from dataclasses import dataclass, replace

import numpy as np

from setpoint.errors import UsageError
from setpoint.sizing.latency.estimate import Estimate, Request, estimate, prepare
from setpoint.sizing.latency.service import times
from setpoint.sizing.latency.terms import Coefficients, packaged
from setpoint.sizing.latency.work import FloatArray
from setpoint.sizing.term import Range

_MOST = 8192.0
_STEPS = 64


@dataclass(frozen=True, slots=True)
class Goodput:
    """The best load of one replica within limits on the mean of TTFT and TPOT.

    Attributes:
        requests_per_s: Completed within the limits; zero where one session alone already breaks them.
        sessions: In flight at the expected value.
        at: The estimate there; None where nothing keeps the limits.
    """

    requests_per_s: Range
    sessions: float
    at: Estimate | None


def goodput(
    request: Request,
    *,
    ttft_limit_s: float = np.inf,
    tpot_limit_s: float = np.inf,
    coefficients: Coefficients | None = None,
) -> Goodput:
    """The highest rate at which mean TTFT and TPOT keep the limits; ``request.sessions`` is not looked at.

    The low end takes both times from the high end of their ranges, and the other way round.

    Raises:
        UsageError: a limit is not above zero.
    """
    for name, limit in (("ttft_limit_s", ttft_limit_s), ("tpot_limit_s", tpot_limit_s)):
        if not limit > 0:
            raise UsageError(f"{name} is {limit}, expected above zero.")
    fit = packaged() if coefficients is None else coefficients
    sessions, ttft, tpot = _sweep(request, fit)
    factors = (
        (fit.ranges["ttft"][request.backend].high, fit.ranges["tpot"][request.backend].high),
        (1.0, 1.0),
        (fit.ranges["ttft"][request.backend].low, fit.ranges["tpot"][request.backend].low),
    )
    best: list[tuple[float, float]] = []
    for slow_ttft, slow_tpot in factors:
        first, each = ttft * slow_ttft, tpot * slow_tpot
        rate = np.where(
            (first <= ttft_limit_s) & (each <= tpot_limit_s), sessions / (first + request.output_tokens * each), 0.0
        )
        top = int(np.argmax(rate))
        best.append((float(rate[top]), float(sessions[top])))
    rates = sorted(rate for rate, _ in best)
    expected, at = best[1]
    kept = estimate(replace(request, sessions=at), fit) if expected else None
    return Goodput(Range(rates[0], expected, rates[2]), at if expected else 0.0, kept)


def at_rate(request: Request, requests_per_s: float, coefficients: Coefficients | None = None) -> Estimate | None:
    """The estimate at an arrival rate of one replica (Little's law); None above what it can complete.

    Raises:
        UsageError: the rate is not above zero.
    """
    if not requests_per_s > 0:
        raise UsageError(f"requests_per_s is {requests_per_s}, expected above zero.")
    fit = packaged() if coefficients is None else coefficients
    sessions, ttft, tpot = _sweep(request, fit)
    rate = np.maximum.accumulate(sessions / (ttft + request.output_tokens * tpot))
    if requests_per_s > rate[-1]:
        return None
    needed = float(np.interp(requests_per_s, rate, sessions))
    return estimate(replace(request, sessions=needed), fit)


def _sweep(request: Request, fit: Coefficients) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sessions on a grid up to a little beyond what fits, with TTFT and TPOT in seconds."""
    most = _MOST if request.slots is None else min(_MOST, request.slots * 1.25 + 1)
    sessions = np.unique(np.round(np.geomspace(1, max(most, 2), _STEPS)))
    cases, terms = prepare([replace(request, sessions=float(count)) for count in sessions], fit)
    found = times(cases, terms)
    return sessions, found.ttft_s, found.tpot_s
