"""The planned sends of a run: a pure function of card and seed, independent of how the target behaves.

A schedule is a sequence of sessions. Sessions start in open loop (at ``start_s``) or, in closed loop, when one of
``concurrency`` users is free. The turns inside a session wait for the answer and the think or tool time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256


class TurnKind(StrEnum):
    """Who speaks in a turn: a person, or a tool whose result is sent back to the model."""

    USER = "user"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Turn:
    """One planned request.

    Attributes:
        prompt_tokens: New tokens that this turn adds to the conversation (the shared prefix included in turn 0).
        output_tokens: Answer length to ask for.
        prefix_group: Index of the shared prefix that the prompt starts with, or None. Turn 0 only.
        prefix_tokens: Length of that prefix; 0 without one.
        wait_s: Think or tool time between the end of the previous answer and this send. In turn 0 of a closed loop:
            the user's pause before the session; else 0 there.
        kind: Who speaks.
        blocks: Of a replay: the leading blocks of the prompt that other prompts have too, by number. Turn 0 only.
        block_tokens: Length of a block; 0 without them.
        prefix_last: The shared part stands behind the prompt's own part, not in front of it.
    """

    prompt_tokens: int
    output_tokens: int
    prefix_group: int | None = None
    prefix_tokens: int = 0
    wait_s: float = 0.0
    kind: TurnKind = TurnKind.USER
    blocks: tuple[int, ...] = ()
    block_tokens: int = 0
    prefix_last: bool = False


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation.

    Attributes:
        index: Position in the schedule, from 0.
        start_s: Planned start in seconds from the run's origin; None in closed loop (starts when a user is free).
        turns: At least one.
    """

    index: int
    start_s: float | None
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """All planned sends of one run.

    Attributes:
        sessions: In order of start.
        seed: The seed that it was drawn from.
        offered_per_s: Offered *request* rate in open loop (turns included), None in closed loop.
        concurrency: Number of users in closed loop, None in open loop.
        duration_s: Planned length of the send window.
    """

    sessions: tuple[Session, ...]
    seed: int
    offered_per_s: float | None
    concurrency: int | None
    duration_s: float

    @property
    def requests(self) -> int:
        """Number of planned requests."""
        return sum(len(s.turns) for s in self.sessions)

    def lines(self) -> Iterator[str]:
        """A canonical text form, one session a line: equal schedules give equal lines."""
        yield f"seed={self.seed} concurrency={self.concurrency} duration={self.duration_s!r}"
        for s in self.sessions:
            turns = " ".join(
                f"{t.kind}:{t.prompt_tokens}+{t.output_tokens}@{t.wait_s!r}/{t.prefix_group}:{t.prefix_tokens}"
                + ("behind" if t.prefix_last else "")
                + (f"#{t.block_tokens}*{','.join(map(str, t.blocks))}" if t.blocks else "")
                for t in s.turns
            )
            yield f"{s.index} {s.start_s!r} {turns}"

    def digest(self) -> str:
        """SHA-256 over ``lines``: the pin that says two runs sent the same work."""
        return sha256("\n".join(self.lines()).encode()).hexdigest()
