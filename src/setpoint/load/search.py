"""The search for maximum goodput: the highest offered load at which every promise is met.

Bracket by doubling or halving, then bisect on a logarithmic scale. Every step is a run record of one series. A step
ends early when its verdict is certain or the target saturates. One budget bounds the whole search; what it could not
decide stays undecided, with what it would take.
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

RESOLUTION = 1.12  # the search ends when missed and met loads are this close
MOST_STEPS = 16
LEAST_STEP_S = 8.0
OVERHEAD_S = 4.0  # a step's preparation, warm-up and drain, until a step has shown its own
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
    """

    load: float
    outcome: Outcome
    state: State
    saturated: str | None
    wall_s: float


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
        return max(
            (s for s in self.steps if s.state is State.MET and s.load < ceiling), key=lambda s: s.load, default=None
        )

    def lowest_missed(self) -> Step | None:
        return min((s for s in self.steps if s.state is State.MISSED), key=lambda s: s.load, default=None)

    def barrier(self) -> float | None:
        """The lowest load above the highest met one that was not met: missed or undecided."""
        met = self.highest_met()
        floor = met.load if met is not None else 0.0
        return min((s.load for s in self.steps if s.state is not State.MET and s.load > floor), default=None)

    def next_load(self, start: float) -> float | None:
        """The load to try next; None when the answer is as sharp as it gets."""
        if not self.steps:
            return self._whole(start)
        met, barrier = self.highest_met(), self.barrier()
        if met is None:
            assert barrier is not None
            lower = self._whole(barrier / 2)
            return lower if lower < barrier and lower > start / 1000 else None
        if barrier is None:
            return self._whole(met.load * 2)
        if barrier / met.load <= RESOLUTION:
            return None
        middle = self._whole(float(np.sqrt(met.load * barrier)))
        return middle if met.load < middle < barrier else None

    def _whole(self, load: float) -> float:
        return float(max(1, round(load))) if self.closed else float(f"{load:.3g}")

    def duration_s(self, load: float) -> float:
        """Long enough for the strictest promise, short enough for a few more steps within the budget."""
        strictest = max((required_share(p) for p in self.card.promises), default=0.5)
        wanted = MARGIN * samples_to_meet(min(strictest, 0.999))
        rate = load * _turns(self.card) if not self.closed else None
        needed_s = wanted / rate if rate else self.card.traffic.duration
        share_s = self.left_s / (3.0 if len(self.steps) < 3 else 2.0) - self.overhead_s
        return float(np.clip(needed_s, LEAST_STEP_S, max(LEAST_STEP_S, share_s)))

    def step(self, load: float) -> Step:
        """Makes one run and adds it."""
        duration_s = self.duration_s(load)
        offered = None if self.closed else load * _turns(self.card)
        look = EarlyEnd(self.card, offered)
        begun_s = time.monotonic()
        outcome = self.make(load, duration_s, look, Series(id=self.series, kind="goodput", step=len(self.steps)))
        wall_s = time.monotonic() - begun_s
        state = State.MISSED if look.saturated is not None else outcome.state
        step = Step(load, outcome, state, look.saturated, wall_s)
        self.steps.append(step)
        self.overhead_s = max(1.0, wall_s - min(duration_s, outcome.summary.window.end_s))
        self.note(f"{self.words(load)}: {state}")
        return step

    def words(self, load: float) -> str:
        """A load in words."""
        return f"{load:.0f} users" if self.closed else f"{format_number(load)} sessions/s"

    def result(self, *, sharp: bool, interrupted: bool) -> Search:
        met, missed = self.highest_met(), self.lowest_missed()
        finished = sharp and met is not None and missed is not None and not interrupted
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
        typical = float(np.median([s.wall_s for s in self.steps]))
        steps = (
            int(np.ceil(np.log(np.log(missed.load / met.load) / np.log(RESOLUTION)) / np.log(2)))
            if missed.load > met.load * RESOLUTION
            else 1
        )
        return f"About {format_duration(typical * max(steps, 1))} more would narrow the limit to {RESOLUTION - 1:.0%}."


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
        load = search.next_load(start)
        if load is None:
            sharp = True
            break
        step = search.step(load)
        if step.outcome.interrupted:
            return search.result(sharp=False, interrupted=True)
        if step.outcome.record.meta.reason is not None:
            break  # the target has died: there is nothing to search
    return search.result(sharp=sharp, interrupted=False)


def _turns(card: Workload) -> float:
    """Mean requests a session."""
    traffic = card.traffic
    if traffic.agent is not None:
        return 1 + traffic.agent.tool_turns.mean
    return traffic.conversation.turns.mean if traffic.conversation is not None else 1.0
