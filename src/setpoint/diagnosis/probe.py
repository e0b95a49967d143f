"""A probe: a small experiment that can refute hypotheses, described so that whoever holds a target can run it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Session, Turn

OVERHEAD_S = 3.0  # of any run: the client's floor, its processes, the record
RESTART_S = 10.0  # of an engine; how long the model at hand takes is not known before


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is known of the target when a probe is planned.

    Attributes:
        wait_s: Typical time to a first token.
        step_s: Typical gap between tokens.
        rate_per_s: Session starts of the run under diagnosis; None in closed loop.
        users: Its users; None in open loop.
        streams: The most that it had in flight.
        slots: The most that it runs at once; None when no flag says so.
        seed: Of schedules.
        folder: Folder that a card's trace is relative to.
    """

    wait_s: float
    step_s: float
    rate_per_s: float | None
    users: int | None
    streams: int
    slots: int | None = None
    seed: int = 1
    folder: str = "."

    def answer_s(self, output_tokens: int) -> float:
        """Expected length of one exchange of a stream alone."""
        return self.wait_s + self.step_s * output_tokens


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe.

    Attributes:
        name: As in records.
        title: In words.
        question: What it asks.
        results: What each result would mean: (result, meaning).
        schedule: Its sends, from the card and the conditions; its length is bounded.
        warmup_requests: Before the measured part.
        direct: Whether it goes to the engine itself, past any gateway.
        restarts: Whether the engine is started afresh before it.
        deadline_s: How long answers are waited for after the sends; None leaves it to the length of the schedule.
    """

    name: str
    title: str
    question: str
    results: tuple[tuple[str, str], ...]
    schedule: Callable[[Workload, Conditions], Schedule]
    warmup_requests: int = 1
    direct: bool = False
    restarts: bool = False
    deadline_s: float | None = None

    def cost_s(self, card: Workload, conditions: Conditions) -> float:
        """Expected seconds, preparation and last answers included."""
        schedule = self.schedule(card, conditions)
        longest = max((t.output_tokens for s in schedule.sessions for t in s.turns), default=1)
        return schedule.duration_s + conditions.answer_s(longest) + OVERHEAD_S + (RESTART_S if self.restarts else 0.0)


def one_at_a_time(turns: Sequence[Turn], conditions: Conditions, longest_s: float) -> Schedule:
    """One user who sends these in turn, for no longer than a bound."""
    sessions = tuple(Session(i, None, (turn,)) for i, turn in enumerate(turns))
    expected_s = sum(conditions.answer_s(t.output_tokens) for t in turns)
    return Schedule(sessions, conditions.seed, None, 1, min(max(1.5 * expected_s, 3.0), longest_s))


def longest_prompt(card: Workload) -> int:
    """The longest prompt that a ladder climbs to: the card's own, history left out."""
    return max(int(card.traffic.prompt_tokens.top), 64)


def middle_prompt(card: Workload) -> int:
    """A typical prompt."""
    return max(int(card.traffic.prompt_tokens.mean), 32)
