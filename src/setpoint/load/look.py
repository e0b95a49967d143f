"""Looking at a run while it is under way: is the verdict certain, or does the target not keep up?

A verdict that may come early is paid for: the interval is always valid (see ``metrics.sequence``), so that looking
after every answer does not turn noise into certainty.
"""

from collections.abc import Sequence

import numpy as np

from setpoint.load.messages import Brief
from setpoint.load.progress import Tally
from setpoint.load.spec import Ending
from setpoint.metrics.correlation import design_effect, design_effect_of_limit
from setpoint.metrics.promise import required_share
from setpoint.metrics.sequence import always_valid
from setpoint.metrics.verdict import State
from setpoint.workload.card import Workload
from setpoint.workload.promise import Boundary, Metric, Promise

SATURATION_AFTER_S = 8.0
FEWEST = 20
LEAST_DRAIN_S = 1.0


class EarlyEnd:
    """Decides whether a step of a search may end.

    Args:
        card: Whose promises are judged.
        offered_per_s: Offered request rate; None in closed loop, which cannot saturate.
    """

    def __init__(self, card: Workload, offered_per_s: float | None) -> None:
        self._promises = [p for p in card.promises if _known_early(p)]
        self._all = len(self._promises) == len([p for p in card.promises if p.metric is not Metric.QUALITY])
        self._offered = offered_per_s
        self._in_flight_limit = None if offered_per_s is None else _allowed_in_flight(card, offered_per_s)
        self._judged = 0
        self._drain_s = max((p.limit_s for p in card.promises if p.limit_s is not None), default=LEAST_DRAIN_S)
        self._drain_s = max(self._drain_s, LEAST_DRAIN_S)
        self.saturated: str | None = None

    def __call__(self, tally: Tally, briefs: Sequence[Brief]) -> Ending | None:
        """Why the step may end now, or None.

        Where it cannot become met any more, answers under way are waited for as long as the longest limit: what has
        not come by then has broken it.
        """
        self.saturated = self.saturated or self._saturation(tally)
        if self.saturated is not None:
            return Ending(self.saturated, self._drain_s)
        if len(briefs) < max(FEWEST, self._judged * 1.05):
            return None
        self._judged = len(briefs)
        states = [_state(p, finished_prefix(briefs)) for p in self._promises]
        if State.MISSED in states:
            return Ending(f"{self._promises[states.index(State.MISSED)].label} is missed for certain", self._drain_s)
        if self._all and states and all(s is State.MET for s in states):
            return Ending("every promise is met for certain")
        return None

    def _saturation(self, tally: Tally) -> str | None:
        """A backlog that keeps growing, and is more than the promises allow to be in flight.

        Both are needed: at start-up and with long answers the number in flight grows and then settles, and a large
        but steady number is merely a large load.
        """
        limit, points = self._in_flight_limit, tally.backlog
        if limit is None or tally.now_s < SATURATION_AFTER_S or len(points) < 12:
            return None
        times, numbers = np.array(points, dtype=np.float64).T
        thirds = [numbers[(times >= a * tally.now_s / 3) & (times < b)] for a, b in _thirds(tally.now_s)]
        if any(len(t) < 3 for t in thirds):
            return None
        first, middle, last = (float(np.median(t)) for t in thirds)
        noise = 3 * np.sqrt(max(middle, 1.0))
        if last > limit and last - middle > noise and middle - first > noise / 2:
            return f"the target does not keep up: {middle:.0f}, then {last:.0f} requests in flight, allowed {limit:.0f}"
        return None


def _thirds(now_s: float) -> list[tuple[int, float]]:
    return [(0, now_s / 3), (1, 2 * now_s / 3), (2, np.inf)]


def _known_early(promise: Promise) -> bool:
    """Whether a brief says enough to judge this promise."""
    if promise.metric is Metric.TTFT:
        return promise.boundary in (None, Boundary.SCHEDULED)
    if promise.boundary is Boundary.TASK:
        return False
    return promise.metric in (Metric.TPOT, Metric.E2E, Metric.ANSWERED, Metric.AVAILABILITY)


def _allowed_in_flight(card: Workload, offered_per_s: float) -> float:
    """Little's law at twice the promised time: more in flight cannot all keep the promises."""
    e2e, ttft, tpot = (card.tightest(m) for m in (Metric.E2E, Metric.TTFT, Metric.TPOT))
    output = card.traffic.output_tokens.mean
    if e2e is not None and e2e.limit_s is not None and e2e.boundary is not Boundary.TASK:
        allowed_s = e2e.limit_s
    else:
        allowed_s = (ttft.limit_s or 0.0 if ttft is not None else 10.0) + output * (
            tpot.limit_s or 0.0 if tpot is not None else 0.1
        )
    return 2 * offered_per_s * allowed_s + 4


def finished_prefix(briefs: Sequence[Brief]) -> list[Brief]:
    """Exchanges in order of schedule up to the first that is still under way.

    Those that finish first are the fast ones: judging what happens to be finished would flatter the target.
    """
    ordered = sorted(briefs, key=lambda b: b.index)
    for position, brief in enumerate(ordered):
        if brief.index != position:
            return ordered[:position]
    return ordered


def _state(promise: Promise, briefs: Sequence[Brief]) -> State:
    if len(briefs) < FEWEST:
        return State.UNDECIDED
    required = required_share(promise)
    answered = np.array([b.outcome.answered for b in briefs])
    sessions = np.array([b.session for b in briefs], dtype=np.int64)
    if promise.limit_s is None:
        inside, known, spread = answered, np.ones(len(briefs), dtype=bool), 1.0
    else:
        values = np.array([_value(promise.metric, b) for b in briefs], dtype=np.float64)
        inside, known = answered & (values <= promise.limit_s), ~(answered & np.isnan(values))
        seen = answered & known
        spread = design_effect_of_limit(values[seen], promise.limit_s, required, sessions[seen])
    one = np.ones(int(known.sum()), dtype=np.int64)
    spread = max(spread, design_effect(inside[known].astype(np.int64), one, sessions[known]), 1.0)
    low, high = always_valid(float(inside[known].sum()) / spread, len(one) / spread)
    return State.MET if low >= required else State.MISSED if high < required else State.UNDECIDED


def _value(metric: Metric, brief: Brief) -> float:
    value = {
        Metric.TTFT: brief.ttft_s,
        Metric.TPOT: brief.tpot_s,
        Metric.E2E: brief.done_s - brief.scheduled_s,
    }[metric]
    return float("nan") if value is None else value
