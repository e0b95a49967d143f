"""What a card asks of a placement: lengths, load, and limits on quantiles, from requests drawn as a run would."""

from dataclasses import dataclass

import numpy as np

from setpoint.sizing.latency.work import FloatArray
from setpoint.workload.card import Closed, Replay, Workload
from setpoint.workload.generate import schedule_for, session_rate
from setpoint.workload.promise import LATENCIES, Boundary, Metric, Promise
from setpoint.workload.schedule import Schedule

DRAWN_REQUESTS = 4000
_SESSIONS = 600
_SEED = 1


@dataclass(frozen=True, slots=True)
class Limit:
    """A latency promise, with what its quantile means for lengths.

    Attributes:
        label: The promise in words.
        metric: ``ttft``, ``tpot``, ``itl`` or ``e2e``.
        quantile: Share of requests (for ITL of gaps) that must keep it.
        limit_s: Seconds.
        prompt_ratio: New prompt tokens at the quantile over their mean.
        output_ratio: Output tokens at the quantile over their mean.
    """

    label: str
    metric: Metric
    quantile: float
    limit_s: float
    prompt_ratio: float
    output_ratio: float


@dataclass(frozen=True, slots=True)
class Need:
    """What a card asks.

    Attributes:
        input_tokens: Prompt of a request, history included; mean.
        history_tokens: Of which the server has seen before, by this session or as a shared prefix; mean.
        output_tokens: Answer; mean.
        typical_tokens: A request with its answer, median.
        longest_tokens: The longest request with its answer.
        requests_per_s: Mean offered rate; None in closed loop.
        peak_per_s: Highest offered rate of the profile that the card states; None in closed loop.
        users: Users of a closed loop; None in open loop.
        pause_s: Of a user between requests, mean; 0 in open loop.
        turns: Requests of a session, mean.
        requests_per_unit: Requests of one unit of work.
        unit: Its name.
        limits: Latency promises.
        unchecked: Promises that a plan cannot check.
        assumptions: In sentences.
    """

    input_tokens: float
    history_tokens: float
    output_tokens: float
    typical_tokens: int
    longest_tokens: int
    requests_per_s: float | None
    peak_per_s: float | None
    users: int | None
    pause_s: float
    turns: float
    requests_per_unit: float
    unit: str
    limits: tuple[Limit, ...]
    unchecked: tuple[str, ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """One element a request."""

    prompt: FloatArray
    seen: FloatArray
    output: FloatArray
    pause: FloatArray


def need_of(card: Workload, folder: str = ".") -> Need:
    """What a card asks.

    Args:
        card: The card.
        folder: Folder that a trace's path is relative to.

    Raises:
        UsageError: a trace that it replays cannot be read.
    """
    schedule = _schedule(card, folder)
    drawn = _drawn(schedule)
    whole = drawn.prompt + drawn.output
    arrivals = card.traffic.arrivals
    per_session = schedule.requests / len(schedule.sessions)
    rate = peak = None
    users = None
    if isinstance(arrivals, Closed):
        users = arrivals.users
    elif isinstance(arrivals, Replay):
        rate = schedule.offered_per_s
        peak = rate
    else:
        rate = session_rate(arrivals) * per_session
        peak = max(getattr(arrivals, "start", 0.0), getattr(arrivals, "end", 0.0)) * per_session or rate
    return Need(
        input_tokens=float(drawn.prompt.mean()),
        history_tokens=float(drawn.seen.mean()),
        output_tokens=float(drawn.output.mean()),
        typical_tokens=int(np.median(whole)),
        longest_tokens=int(whole.max()),
        requests_per_s=rate,
        peak_per_s=peak,
        users=users,
        pause_s=float(drawn.pause.mean()) if users is not None else 0.0,
        turns=per_session,
        requests_per_unit=per_session if card.traffic.agent is not None else 1.0,
        unit=card.contract.unit,
        limits=tuple(_limit(p, drawn) for p in card.promises if p.metric in LATENCIES),
        unchecked=tuple(p.label for p in card.promises if p.metric not in LATENCIES),
        assumptions=_assumptions(card, schedule),
    )


def _schedule(card: Workload, folder: str) -> Schedule:
    arrivals = card.traffic.arrivals
    if isinstance(arrivals, Closed | Replay):
        return schedule_for(card, _SEED, max_requests=DRAWN_REQUESTS, folder=folder)
    # A changed rate changes no length, so enough sessions are drawn whatever the card's rate.
    rate = _SESSIONS / card.traffic.duration
    return schedule_for(card, _SEED, rate_per_s=rate, max_requests=DRAWN_REQUESTS, folder=folder)


def _drawn(schedule: Schedule) -> _Drawn:
    rows = []
    known: set[int] = set()
    for session in schedule.sessions:
        context = 0
        for number, turn in enumerate(session.turns):
            seen = context if number else 0 if turn.prefix_last else turn.prefix_tokens
            if turn.blocks:
                shared = next((i for i, block in enumerate(turn.blocks) if block not in known), len(turn.blocks))
                seen = max(seen, shared * turn.block_tokens)
                known.update(turn.blocks)
            prompt = context + turn.prompt_tokens
            rows.append((prompt, min(seen, prompt - 1), turn.output_tokens, turn.wait_s))
            context = prompt + turn.output_tokens
    return _Drawn(*np.array(rows, dtype=np.float64).T)


def _limit(promise: Promise, drawn: _Drawn) -> Limit:
    assert promise.quantile is not None
    assert promise.limit_s is not None
    new = drawn.prompt - drawn.seen
    return Limit(
        promise.label,
        promise.metric,
        promise.quantile,
        promise.limit_s,
        _ratio(new, promise.quantile),
        _ratio(drawn.output, promise.quantile),
    )


def _ratio(values: FloatArray, quantile: float) -> float:
    return float(np.quantile(values, quantile) / values.mean())


def _assumptions(card: Workload, schedule: Schedule) -> tuple[str, ...]:
    found = [f"Lengths are of {schedule.requests:,} requests drawn from the card with seed {_SEED}."]
    if card.traffic.conversation is not None or card.traffic.agent is not None:
        found.append("What a session said before is found in the prefix cache, where the engine has one.")
    if card.traffic.prefix is not None and card.traffic.prefix.position != "behind":
        found.append("The shared prefix is found in the prefix cache.")
    if card.traffic.agent is not None:
        found.append(f"One {card.contract.unit!r} is a whole session: an opening and its tool turns.")
    if any(p.boundary is Boundary.SENT or p.boundary is Boundary.ANY_TOKEN for p in card.promises):
        found.append("TTFT is estimated from send to the first token, whichever boundary the promise names.")
    return tuple(found)
