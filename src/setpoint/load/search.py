"""The search for maximum goodput: the highest offered load at which every promise is met.

``ladder`` says which load comes next; here each step is made as a run record of one series, ends early when its
verdict is certain or the target saturates, and all of it stays within one budget. What the budget could not decide
stays undecided, with what it would take.
"""

import math
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from setpoint.load.ladder import RESOLUTION, SHORT_S, Attempt, Ladder
from setpoint.load.look import EarlyEnd
from setpoint.load.runner import Outcome
from setpoint.metrics.capacity import highest_met, lowest_missed, overall_state
from setpoint.metrics.promise import required_share
from setpoint.metrics.sequence import looks_to_decide
from setpoint.metrics.verdict import State
from setpoint.records.meta import Series
from setpoint.units import format_duration, format_number
from setpoint.workload.card import Workload

MOST_STEPS = 24
OVERHEAD_S = 4.0  # a step's preparation, warm-up and drain, until a step has shown its own
STRICTEST = 0.999  # promises beyond this share are not waited for


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
        saturated: How the target failed to keep up; None when it did.
        wall_s: Time it took, preparation and drain included.
        long: Whether it was made to decide, not only to find the way.
    """

    load: float
    outcome: Outcome
    saturated: str | None
    wall_s: float
    long: bool

    @property
    def state(self) -> State:
        """The verdict on every promise together."""
        return self.outcome.state

    @property
    def lean(self) -> State:
        """Met or missed: where an undecided step points, by what was observed alone. It steers, it never decides."""
        if self.state is not State.UNDECIDED:
            return self.state
        if self.saturated is not None or self.outcome.summary.window.growing:
            return State.MISSED
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
        missed: Lowest load at which one was missed; None when none was.
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
        return overall_state(self.steps)


class _Search:
    def __init__(
        self, make: Maker, card: Workload, *, start: float, closed: bool, budget_s: float, note: Callable[[str], None]
    ) -> None:
        self.make = make
        self.card = card
        self.start = start
        self.closed = closed
        self.deadline_s = time.monotonic() + budget_s
        self.note = note
        self.series = f"goodput-{secrets.token_hex(3)}"
        self.steps: list[Step] = []
        self.overhead_s = OVERHEAD_S

    @property
    def left_s(self) -> float:
        return self.deadline_s - time.monotonic()

    @property
    def ladder(self) -> Ladder:
        per_load = 0.0 if self.closed else _turns(self.card)
        return Ladder(self.start, self.closed, self.needed_s, self.least_s, self.overhead_s, per_load)

    def following(self) -> tuple[float, float] | None:
        return self.ladder.following([Attempt(s.load, s.state, s.lean, s.long) for s in self.steps], self.left_s)

    def needed_s(self, load: float) -> float:
        """How long a step must last to decide every promise, if a quarter of what each allows is used up."""
        return self.card.traffic.duration if self.closed else self._lasting_s(load, used=0.25)

    def least_s(self, load: float) -> float:
        """How long it must last to show that every promise is met, if nothing goes wrong."""
        return 0.0 if self.closed else self._lasting_s(load, used=0.0)

    def _lasting_s(self, load: float, used: float) -> float:
        shares = [min(required_share(p), STRICTEST) for p in self.card.promises if p.metric != "quality"]
        wanted = max((looks_to_decide(1 - (1 - share) * used, share) or 0 for share in shares), default=0)
        return wanted / (load * _turns(self.card))

    def step(self, load: float, duration_s: float) -> Step:
        """Makes one run and adds it."""
        offered = None if self.closed else load * _turns(self.card)
        look = EarlyEnd(self.card, offered)
        begun_s = time.monotonic()
        outcome = self.make(load, duration_s, look, Series(id=self.series, kind="goodput", step=len(self.steps)))
        wall_s = time.monotonic() - begun_s
        step = Step(load, outcome, look.saturated, wall_s, long=self.ladder.decides(load, duration_s))
        self.steps.append(step)
        self.overhead_s = min(max(1.0, wall_s - outcome.summary.window.end_s), 2 * OVERHEAD_S)
        leaning = "" if step.state is not State.UNDECIDED else f", leaning {step.lean}"
        self.note(f"{self.words(load)}: {step.state}{leaning}")
        return step

    def words(self, load: float) -> str:
        """A load in words."""
        return f"{load:.0f} users" if self.closed else f"{format_number(load)} sessions/s"

    def result(self, *, interrupted: bool) -> Search:
        met, missed = highest_met(self.steps), lowest_missed(self.steps)
        close = met is not None and missed is not None and missed.load / met.load <= RESOLUTION * 1.01
        finished = close and not interrupted
        return Search(
            series=self.series,
            steps=tuple(self.steps),
            unit="users" if self.closed else "sessions/s",
            met=met,
            missed=missed,
            finished=finished,
            advice="" if close else self._advice(met, missed, interrupted=interrupted),
            interrupted=interrupted,
        )

    def _advice(self, met: Step | None, missed: Step | None, *, interrupted: bool) -> str:
        if interrupted:
            return "The search was interrupted; run it again to finish."
        if met is None:
            return self._advice_without_met(missed)
        if missed is None:
            return f"No load was missed for certain above {self.words(met.load)}: a larger --budget finds the limit."
        gap = f"Between {self.words(met.load)} (met) and {self.words(missed.load)} (missed) nothing was decided"
        typical = statistics.median([s.wall_s for s in self.steps if s.long] or [self.overhead_s + SHORT_S])
        halvings = math.log2(math.log(missed.load / met.load) / math.log(RESOLUTION))
        more = format_duration(typical * max(1, math.ceil(halvings)))
        return f"{gap}: about {more} more of --budget would narrow it."

    def _advice_without_met(self, missed: Step | None) -> str:
        lowest = min(self.steps, key=lambda s: s.load, default=None)
        if lowest is None:
            return "The budget was too small for one step: give a larger --budget."
        if missed is not None and missed.load <= lowest.load:
            return "Even the lowest load tried misses a promise: look at what limits the target, or promise less."
        more = max((v.more_samples or 0 for v in lowest.outcome.verdicts), default=0)
        if not more or self.closed:
            return f"{self.words(lowest.load)} is undecided: give a larger --budget."
        takes = format_duration(more / (lowest.load * _turns(self.card)))
        return f"{self.words(lowest.load)} is undecided: about {more:,} more answers, {takes} at this load, decide it."


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
    search = _Search(make, card, start=start, closed=closed, budget_s=budget_s, note=note)
    while len(search.steps) < MOST_STEPS and search.left_s > SHORT_S + search.overhead_s:
        following = search.following()
        if following is None:
            break
        try:
            step = search.step(*following)
        except KeyboardInterrupt:  # while a step was prepared
            if not search.steps:
                raise
            return search.result(interrupted=True)
        if step.outcome.interrupted:
            return search.result(interrupted=True)
        if step.outcome.record.meta.reason is not None:
            break  # the target has died: there is nothing to search
    return search.result(interrupted=False)


def _turns(card: Workload) -> float:
    """Mean requests a session."""
    traffic = card.traffic
    if traffic.agent is not None:
        return 1 + traffic.agent.tool_turns.mean
    return traffic.conversation.turns.mean if traffic.conversation is not None else 1.0
