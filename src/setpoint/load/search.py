"""The search for maximum goodput: the highest offered load at which every promise is met.

Short steps double or halve the load until it leans from met to missed; longer ones bisect; the last ones confirm the
two ends, so that the budget goes where the answer is. Every step is a run record of one series, and ends early when
its verdict is certain or the target saturates. One budget bounds the whole search; what it could not decide stays
undecided, with what it would take.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from setpoint.load.look import EarlyEnd
from setpoint.load.runner import Outcome
from setpoint.metrics.promise import required_share
from setpoint.metrics.proportion import samples_to_meet
from setpoint.metrics.verdict import State
from setpoint.records.meta import Series
from setpoint.units import format_duration, format_number
from setpoint.workload.card import Workload

RESOLUTION = 1.2  # bisection ends when the loads that lean met and missed are this close
MOST_STEPS = 16
MOST_CONFIRMATIONS = 2
LEAST_STEP_S = 10.0
OVERHEAD_S = 4.0  # a step's preparation, warm-up and drain, until a step has shown its own
CONFIRM_SHARE = 0.5  # of the budget is kept for confirming the two ends
MARGIN = 2.5  # samples of a step, in multiples of the fewest that could meet the strictest promise


class Maker(Protocol):
    """Makes one run at a load."""

    def __call__(self, load: float, duration_s: float, look: EarlyEnd | None, series: Series) -> Outcome:
        """Runs at ``load`` (session starts a second, or users) for at most ``duration_s``."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """One load that was tried.

    Attributes:
        load: Session starts a second, or users in closed loop.
        outcome: Its run.
        state: Met, missed or undecided; missed also when the target saturated.
        saturated: How it failed to keep up; None when it did.
        wall_s: Time it took, preparation and drain included.
        long: Whether it was made to decide, not only to find the way.
    """

    load: float
    outcome: Outcome
    state: State
    saturated: str | None
    wall_s: float
    long: bool

    @property
    def lean(self) -> State:
        """Met or missed: where an undecided step points, by the observed shares alone. It steers, it never decides."""
        if self.state is not State.UNDECIDED:
            return self.state
        verdicts = [v for v in self.outcome.verdicts if v.share is not None]
        return State.MISSED if any((v.share or 0.0) < v.required for v in verdicts) else State.MET


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found.

    Attributes:
        series: Id shared by its runs.
        steps: In the order tried.
        unit: ``sessions/s`` or ``users``.
        met: Highest load at which every promise was met; None when none was.
        missed: Lowest load above it at which one was missed; None when none was.
        finished: Whether the two are as close as the search's resolution.
        advice: What it would take to say more; empty when finished.
        interrupted: Whether the user ended it.
    """

    series: str
    steps: tuple[Step, ...]
    unit: str
    met: Step | None
    missed: Step | None
    finished: bool
    advice: str
    interrupted: bool

    @property
    def state(self) -> State:
        """Met when a load was found that keeps every promise; missed when the lowest tried load breaks one."""
        if self.met is not None:
            return State.MET
        return State.MISSED if self.missed is not None else State.UNDECIDED


class _Search:
    def __init__(
        self, make: Maker, card: Workload, *, closed: bool, budget_s: float, note: Callable[[str], None]
    ) -> None:
        self.make = make
        self.card = card
        self.closed = closed
        self.deadline_s = time.monotonic() + budget_s
        self.reserve_s = CONFIRM_SHARE * budget_s
        self.note = note
        self.series = f"goodput-{secrets.token_hex(3)}"
        self.steps: list[Step] = []
        self.overhead_s = OVERHEAD_S

    @property
    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    def highest_met(self) -> Step | None:
        """The highest load met, below every missed one: a met step above a missed one is taken for noise."""
        ceiling = min((s.load for s in self.steps if s.state is State.MISSED), default=np.inf)
        return max((s for s in self.steps if s.state is State.MET and s.load < ceiling), key=_load, default=None)

    def lowest_missed(self) -> Step | None:
        """The lowest load that missed."""
        return min((s for s in self.steps if s.state is State.MISSED), key=_load, default=None)

    def bracket(self) -> tuple[float | None, float | None]:
        """Highest load that leans met below the lowest that leans missed, and that one."""
        leaning: dict[float, State] = {}
        for step in self.steps:  # of two steps at one load a decided one weighs more, then the later
            if leaning.get(step.load) is None or step.state is not State.UNDECIDED or self.undecided_at(step.load):
                leaning[step.load] = step.lean
        high = min((load for load, lean in leaning.items() if lean is State.MISSED), default=None)
        low = max((x for x, lean in leaning.items() if lean is State.MET and (high is None or x < high)), default=None)
        return low, high

    def undecided_at(self, load: float) -> bool:
        """Whether no step at this load was decided."""
        return all(s.state is State.UNDECIDED for s in self.steps if s.load == load)

    def next_step(self, start: float) -> tuple[float, float] | None:
        """Load and duration to try next; None when the answer is as sharp as it gets."""
        if not self.steps:
            return self._whole(start), LEAST_STEP_S
        low, high = self.bracket()
        if low is None:
            assert high is not None
            lower = self._whole(high / 2)
            return (lower, LEAST_STEP_S) if lower < high and lower > start / 1000 else None
        if high is None:
            return self._whole(low * 2), LEAST_STEP_S
        middle = self._whole(float(np.sqrt(low * high)))
        if high / low > RESOLUTION and low < middle < high and self.left_s > self.reserve_s:
            return middle, self.duration_s(middle, self.left_s - self.reserve_s)
        return self._confirmation(low, high)

    def _confirmation(self, low: float, high: float) -> tuple[float, float] | None:
        """The end of the bracket that is not yet decided; each is confirmed once."""
        for load in (low, high):
            tries = sum(s.load == load and s.long for s in self.steps)
            if self.undecided_at(load) and tries < MOST_CONFIRMATIONS:
                return load, self.duration_s(load, self.left_s)
        return None

    def _whole(self, load: float) -> float:
        return float(max(1, round(load))) if self.closed else float(f"{load:.3g}")

    def needed_s(self, load: float) -> float:
        """How long a step must last for the strictest promise to be decided, if it is kept with a margin."""
        strictest = max((required_share(p) for p in self.card.promises), default=0.5)
        wanted = MARGIN * samples_to_meet(min(strictest, 0.999))
        return self.card.traffic.duration if self.closed else wanted / (load * _turns(self.card))

    def duration_s(self, load: float, available_s: float) -> float:
        """What is needed, within what is available."""
        return float(np.clip(self.needed_s(load), LEAST_STEP_S, max(LEAST_STEP_S, available_s - self.overhead_s)))

    def step(self, load: float, duration_s: float) -> Step:
        """Makes one run and adds it."""
        offered = None if self.closed else load * _turns(self.card)
        look = EarlyEnd(self.card, offered)
        begun_s = time.monotonic()
        outcome = self.make(load, duration_s, look, Series(id=self.series, kind="goodput", step=len(self.steps)))
        wall_s = time.monotonic() - begun_s
        state = State.MISSED if look.saturated is not None else outcome.state
        step = Step(load, outcome, state, look.saturated, wall_s, long=duration_s > LEAST_STEP_S)
        self.steps.append(step)
        self.overhead_s = min(max(1.0, wall_s - outcome.summary.window.end_s), 2 * OVERHEAD_S)
        leaning = "" if state is not State.UNDECIDED else f", leaning {step.lean}"
        self.note(f"{self.words(load)}: {state}{leaning}")
        return step

    def words(self, load: float) -> str:
        """A load in words."""
        return f"{load:.0f} users" if self.closed else f"{format_number(load)} sessions/s"

    def result(self, *, sharp: bool, interrupted: bool) -> Search:
        met, missed = self.highest_met(), self.lowest_missed()
        close = met is not None and missed is not None and missed.load / met.load <= RESOLUTION * 1.01
        finished = sharp and close and not interrupted
        return Search(
            series=self.series,
            steps=tuple(self.steps),
            unit="users" if self.closed else "sessions/s",
            met=met,
            missed=missed,
            finished=finished,
            advice="" if finished else self._advice(met, missed, interrupted=interrupted),
            interrupted=interrupted,
        )

    def _advice(self, met: Step | None, missed: Step | None, *, interrupted: bool) -> str:
        if interrupted:
            return "The search was interrupted; run it again to finish."
        undecided = [s for s in self.steps if s.state is State.UNDECIDED]
        if met is None and missed is None:
            more = max((v.more_samples or 0 for s in undecided for v in s.outcome.verdicts), default=0)
            lowest = min((s.load for s in self.steps), default=0.0)
            if more and lowest and not self.closed:
                need = format_duration(more / (lowest * _turns(self.card)))
                return (
                    f"No step was decided. About {more:,} more answers would decide the lowest load: {need} more at it."
                )
            return "No step was decided: give a larger --budget."
        if met is None:
            return "Even the lowest load tried misses a promise: try lower loads, or look at what limits the target."
        if missed is None:
            return "No load was missed within the budget: give a larger --budget to find the limit."
        if missed.load / met.load <= RESOLUTION * 1.01:
            return ""
        typical = float(np.median([s.wall_s for s in self.steps if s.long] or [self.overhead_s + LEAST_STEP_S]))
        halvings = np.log2(np.log(missed.load / met.load) / np.log(RESOLUTION))
        return f"About {format_duration(typical * max(1, int(np.ceil(halvings))))} more would narrow the limit."


def find_goodput(
    make: Maker,
    card: Workload,
    *,
    start: float,
    budget_s: float,
    closed: bool = False,
    note: Callable[[str], None] = lambda _: None,
) -> Search:
    """Searches for the highest load at which every promise of a card is met.

    Args:
        make: Makes one run.
        card: The card; it needs at least one promise.
        start: Load to begin with.
        budget_s: Wall-clock bound on everything.
        closed: Loads are users in closed loop instead of session starts a second.
        note: Told a sentence after each step.
    """
    search = _Search(make, card, closed=closed, budget_s=budget_s, note=note)
    sharp = False
    while len(search.steps) < MOST_STEPS and search.left_s > LEAST_STEP_S + search.overhead_s:
        following = search.next_step(start)
        if following is None:
            sharp = True
            break
        step = search.step(*following)
        if step.outcome.interrupted:
            return search.result(sharp=False, interrupted=True)
        if step.outcome.record.meta.reason is not None:
            break  # the target has died: there is nothing to search
    return search.result(sharp=sharp, interrupted=False)


def _load(step: Step) -> float:
    return step.load


def _turns(card: Workload) -> float:
    """Mean requests a session."""
    traffic = card.traffic
    if traffic.agent is not None:
        return 1 + traffic.agent.tool_turns.mean
    return traffic.conversation.turns.mean if traffic.conversation is not None else 1.0
