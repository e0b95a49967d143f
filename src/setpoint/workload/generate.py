"""Card and seed into a schedule, always the same.

Each purpose draws from its own stream of uniform numbers, so that a changed rate changes no length and a changed
length no arrival. Only uniform doubles are taken from the generator (their bits are stable across numpy versions) and
turned by inverse distribution functions; times are rounded to a microsecond, so that the last bit of a special
function cannot change a schedule's digest.
"""

import itertools
import math
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from scipy import special

from setpoint.errors import UsageError
from setpoint.workload.card import Arrivals, Closed, Constant, Gamma, Poisson, Ramp, Replay, Traffic, Workload
from setpoint.workload.distribution import Floats
from setpoint.workload.replay import Recorded, read_recorded
from setpoint.workload.schedule import Schedule, Session, Turn, TurnKind

REQUESTS_PER_USER_S = 50.0  # of a closed loop: more than a user gets answered
CLOSED_REQUESTS = 200_000  # of a closed loop: what is kept in memory; one that gets more answered ends early
MAX_REQUESTS = 2_000_000


class Stream(IntEnum):
    """Purposes, each with its own random numbers."""

    ARRIVAL = 0
    PROMPT = 1
    OUTPUT = 2
    PREFIX = 3
    TURNS = 4
    FOLLOW_UP = 5
    FOLLOW_UP_OUTPUT = 6
    WAIT = 7
    GROUP = 8
    PAUSE = 9


@dataclass(slots=True)
class _Uniform:
    """A stream of uniform numbers that grows as it is asked for."""

    generator: np.random.Generator

    def take(self, count: int) -> Floats:
        return self.generator.random(count)


def _stream(seed: int, purpose: Stream) -> _Uniform:
    return _Uniform(np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, int(purpose)]))))


def schedule_for(
    card: Workload,
    seed: int,
    *,
    rate_per_s: float | None = None,
    concurrency: int | None = None,
    duration_s: float | None = None,
    max_requests: int | None = None,
    folder: str = ".",
) -> Schedule:
    """The planned sends of a run.

    Args:
        card: The card.
        seed: Any non-negative number.
        rate_per_s: Session starts per second, instead of the card's.
        concurrency: Users of a closed loop, instead of the card's arrivals.
        duration_s: Length of the send window, instead of the card's.
        max_requests: Upper bound on planned requests; sessions are not cut.
        folder: Folder that a trace's path is relative to.

    Raises:
        UsageError: a trace cannot be read, or the schedule would exceed two million requests.
    """
    traffic = card.traffic
    window_s = traffic.duration if duration_s is None else duration_s
    arrivals = _effective(traffic.arrivals, rate_per_s, concurrency)
    if isinstance(arrivals, Replay):
        recorded = read_recorded(arrivals.trace, folder)
        speed = arrivals.speed if rate_per_s is None else rate_per_s / recorded.rate_per_s
        _bounded(len(recorded.arrivals))
        return _replay(recorded, speed, seed, window_s, max_requests)
    if isinstance(arrivals, Closed):
        wanted = min(arrivals.users * window_s * REQUESTS_PER_USER_S, CLOSED_REQUESTS, max_requests or CLOSED_REQUESTS)
        count = max(math.ceil(wanted / _mean_turns(traffic)), arrivals.users)
        sessions = _sessions(card, seed, [None] * count, max_requests)
        if arrivals.think_time.top > 0:
            sessions = _with_think_time(sessions, arrivals, seed)
        return Schedule(sessions, seed, None, arrivals.users, window_s)
    starts = _starts(arrivals, _stream(seed, Stream.ARRIVAL), window_s)
    sessions = _sessions(card, seed, [float(t) for t in starts], max_requests)
    per_session = sum(len(s.turns) for s in sessions) / len(sessions) if sessions else 1.0
    return Schedule(sessions, seed, session_rate(arrivals) * per_session, None, window_s)


def session_rate(arrivals: Arrivals) -> float:
    """Mean session starts per second of an open-loop process.

    Raises:
        ValueError: a closed loop or a replay has no rate of its own.
    """
    if isinstance(arrivals, Ramp):
        return (arrivals.start + arrivals.end) / 2
    if isinstance(arrivals, Constant | Poisson | Gamma):
        return arrivals.rate
    raise ValueError(f"{arrivals.process} arrivals have no rate")


def _effective(arrivals: Arrivals, rate_per_s: float | None, concurrency: int | None) -> Arrivals:
    if concurrency is not None:
        think = arrivals.think_time if isinstance(arrivals, Closed) else None
        named = {} if think is None else {"think_time": think}
        return Closed(process="closed", users=concurrency, **named)
    if rate_per_s is None or isinstance(arrivals, Replay):
        return arrivals
    if isinstance(arrivals, Ramp):
        factor = rate_per_s / session_rate(arrivals)
        return Ramp(process="ramp", start=arrivals.start * factor, end=arrivals.end * factor)
    if isinstance(arrivals, Closed):
        return Poisson(process="poisson", rate=rate_per_s)
    return arrivals.model_copy(update={"rate": rate_per_s})


def _mean_turns(traffic: Traffic) -> float:
    if traffic.agent is not None:
        return 1 + traffic.agent.tool_turns.mean
    return 1.0 if traffic.conversation is None else traffic.conversation.turns.mean


def _bounded(requests: float) -> None:
    if requests > MAX_REQUESTS:
        raise UsageError(
            f"The card plans {requests:,.0f} requests or more in one run, expected at most {MAX_REQUESTS:,}.",
            fix="Lower the rate, the duration or the number of turns.",
        )


def _starts(arrivals: Arrivals, stream: _Uniform, window_s: float) -> Floats:
    """Session starts in [0, window), ascending, in seconds."""
    expected = session_rate(arrivals) * window_s
    _bounded(expected)
    if isinstance(arrivals, Constant):
        return np.asarray(np.round(np.arange(int(np.ceil(expected - 1e-9))) / arrivals.rate, 6))
    unit: Floats = _first_gamma(arrivals, stream) if isinstance(arrivals, Gamma) else np.zeros(0, dtype=np.float64)
    reach = expected if isinstance(arrivals, Ramp) else window_s
    while not len(unit) or unit[-1] < reach:
        uniform = stream.take(max(64, int(expected / 4)))
        gaps = _gaps(arrivals, uniform)
        unit = np.concatenate([unit, (unit[-1] if len(unit) else 0.0) + np.cumsum(gaps)])
    unit = unit[unit < reach]
    if isinstance(arrivals, Ramp):
        unit = _warp(arrivals, unit, window_s)
    starts: Floats = np.round(unit, 6).astype(np.float64)
    return starts[starts < window_s]


def _first_gamma(gamma: Gamma, stream: _Uniform) -> Floats:
    """The first start of a process that has been running for ever: a uniform share of a length-biased gap.

    A run that began with a whole gap would average (burstiness - 1) / 2 sessions too many. A gamma gap of shape k is,
    length-biased, one of shape k + 1 (Cox, Renewal Theory, 1962, section 5.4).
    """
    inside, gap = stream.take(2)
    scale = gamma.burstiness / gamma.rate
    return np.asarray([inside * special.gammaincinv(1.0 / gamma.burstiness + 1.0, gap) * scale], dtype=np.float64)


def _gaps(arrivals: Arrivals, uniform: Floats) -> Floats:
    """Gaps between starts; of a unit-rate process for a ramp."""
    if isinstance(arrivals, Gamma):
        shape = 1.0 / arrivals.burstiness
        gaps: Floats = np.asarray(special.gammaincinv(shape, uniform), dtype=np.float64)
        return gaps * (arrivals.burstiness / arrivals.rate)
    rate = arrivals.rate if isinstance(arrivals, Poisson) else 1.0
    return np.asarray(-np.log1p(-uniform) / rate)


def _warp(ramp: Ramp, unit: Floats, window_s: float) -> Floats:
    """Unit-rate times through the inverse of the ramp's cumulative rate (time change of a Poisson process).

    Cumulative rate at t is ``start·t + (end - start)·t²/(2·window)``; its root in the form that does not cancel.
    """
    slope = (ramp.end - ramp.start) / window_s
    root: Floats = np.sqrt(np.maximum(ramp.start**2 + 2 * slope * unit, 0.0))
    return 2 * unit / (root + ramp.start)


def _sessions(
    card: Workload, seed: int, starts: list[float] | list[None], max_requests: int | None
) -> tuple[Session, ...]:
    traffic, count = card.traffic, len(starts)
    openings = traffic.prompt_tokens.draw(_stream(seed, Stream.PROMPT).take(count))
    outputs = traffic.output_tokens.draw(_stream(seed, Stream.OUTPUT).take(count))
    groups = _groups(card, seed, count)
    later = _later_turns(card, seed, count)
    behind = traffic.prefix is not None and traffic.prefix.position == "behind"
    sessions: list[Session] = []
    planned = 0
    for i in range(count):
        prompt = int(openings[i])
        prefix = 0 if traffic.prefix is None or groups[i] is None else min(traffic.prefix.tokens, prompt - 1)
        first = Turn(prompt, int(outputs[i]), groups[i] if prefix else None, prefix, prefix_last=behind and prefix > 0)
        turns = (first, *later[i])
        planned += len(turns)
        if max_requests is not None and planned > max_requests and sessions:
            break
        sessions.append(Session(i, starts[i], turns))
    return tuple(sessions)


def _groups(card: Workload, seed: int, count: int) -> list[int | None]:
    prefix = card.traffic.prefix
    if prefix is None:
        return [None] * count
    shares = _stream(seed, Stream.PREFIX).take(count)
    picks = (_stream(seed, Stream.GROUP).take(count) * prefix.groups).astype(np.int64)
    return [int(g) if share < prefix.share else None for g, share in zip(picks, shares, strict=True)]


def _later_turns(card: Workload, seed: int, count: int) -> list[tuple[Turn, ...]]:
    """Turns after the opening, for each session."""
    traffic = card.traffic
    if traffic.agent is not None:
        agent = traffic.agent
        counts = agent.tool_turns.draw(_stream(seed, Stream.TURNS).take(count))
        lengths, waits, kind = agent.result_tokens, agent.tool_time, TurnKind.TOOL
    elif traffic.conversation is not None:
        talk = traffic.conversation
        counts = talk.turns.draw(_stream(seed, Stream.TURNS).take(count)) - 1
        lengths, waits, kind = talk.follow_up_tokens or traffic.prompt_tokens, talk.think_time, TurnKind.USER
    else:
        return [()] * count
    total = int(counts.sum())
    _bounded(count + total)
    prompts = lengths.draw(_stream(seed, Stream.FOLLOW_UP).take(total))
    outputs = traffic.output_tokens.draw(_stream(seed, Stream.FOLLOW_UP_OUTPUT).take(total))
    pauses = np.round(waits.quantile(_stream(seed, Stream.WAIT).take(total)), 6)
    turns = [Turn(int(p), int(o), wait_s=float(w), kind=kind) for p, o, w in zip(prompts, outputs, pauses, strict=True)]
    edges = np.concatenate([[0], np.cumsum(counts)])
    return [tuple(turns[a:b]) for a, b in itertools.pairwise(edges)]


def _with_think_time(sessions: tuple[Session, ...], closed: Closed, seed: int) -> tuple[Session, ...]:
    """A user's pause before a session is the wait of its first turn."""
    pauses = np.round(closed.think_time.quantile(_stream(seed, Stream.PAUSE).take(len(sessions))), 6)
    return tuple(
        Session(s.index, None, (_paused(s.turns[0], float(w)), *s.turns[1:]))
        for s, w in zip(sessions, pauses, strict=True)
    )


def _paused(turn: Turn, wait_s: float) -> Turn:
    return replace(turn, wait_s=wait_s)


def _replay(recorded: Recorded, speed: float, seed: int, window_s: float, max_requests: int | None) -> Schedule:
    """The trace's own sends, faster or slower; its order and lengths stay."""
    sessions: list[Session] = []
    for arrival in recorded.arrivals:
        start_s = round(arrival.time_s / speed, 6)
        if start_s >= window_s or (max_requests is not None and len(sessions) >= max_requests):
            break
        blocks = arrival.blocks
        turn = Turn(
            arrival.prompt_tokens,
            arrival.output_tokens,
            blocks=blocks,
            block_tokens=recorded.block_tokens if blocks else 0,
        )
        sessions.append(Session(len(sessions), start_s, (turn,)))
    span_s = sessions[-1].start_s or 0.0
    offered = (len(sessions) - 1) / span_s if span_s > 0 else len(sessions) / window_s
    return Schedule(tuple(sessions), seed, offered, None, window_s)
