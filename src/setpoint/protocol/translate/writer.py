"""What a reader of one dialect tells a writer of another: the parts of one answer, in order."""

import secrets
from dataclasses import dataclass, field
from typing import Protocol


def _answer_id() -> str:
    return f"answer_{secrets.token_hex(12)}"


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the client's answer must say and the engine's may not.

    Attributes:
        model: Name that the client asked for; empty takes the engine's.
        answer_id: Identifier where the engine gives none.
        created_s: Unix time, whole seconds, where the engine gives none.
        include_usage: Send the usage chunk of an OpenAI stream (``stream_options.include_usage`` of the request).
    """

    model: str = ""
    answer_id: str = field(default_factory=_answer_id)
    created_s: int = 0
    include_usage: bool = True


@dataclass(slots=True)
class Spent:
    """Tokens of an answer, None where not reported.

    Attributes:
        prompt: The whole prompt, cached tokens included.
        cached: Of these, read from the cache.
        created: Of these, written to the cache.
        completion: Generated, reasoning included.
        reasoning: Of these, spent on reasoning.
    """

    prompt: int | None = None
    cached: int | None = None
    created: int | None = None
    completion: int | None = None
    reasoning: int | None = None


class BrokenAnswer(ValueError):  # noqa: N818 - a fact about the answer
    """The engine's answer is not its dialect, or cannot be said in the client's.

    Args:
        field: Where it is wrong.
        message: What is wrong, without content.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class ReportedError(Exception):
    """The engine reported an error instead of an answer, or inside one.

    Args:
        kind: Anthropic's word.
        message: The engine's message, for its client only.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind)
        self.kind = kind
        self.message = message


class Writer(Protocol):
    """Writes one answer in one dialect. Calls are named by their position, from 0; pieces of calls may interleave.

    ``finish`` comes at most once, before ``done``; without ``done`` the answer has no end and must not look as if it
    had. Reasons are Anthropic's words; one that neither dialect knows is carried as it is.
    """

    def start(self, answer_id: str, model: str, created_s: int | None) -> None:
        """The answer begins."""

    def text(self, text: str) -> None:
        """Visible text."""

    def thinking(self, text: str) -> None:
        """Reasoning."""

    def call(self, position: int, call_id: str, name: str) -> None:
        """A tool call begins."""

    def arguments(self, position: int, text: str) -> None:
        """A piece of a call's arguments, as the engine sent it."""

    def call_ended(self, position: int) -> None:
        """No more arguments will come."""

    def finish(self, reason: str, sequence: str | None) -> None:
        """Why the answer ended, and the stop sequence that ended it."""

    def spent(self, spent: Spent) -> None:
        """Usage so far; the last word counts."""

    def done(self) -> None:
        """The engine's own terminal event was seen."""

    def ping(self) -> None:
        """The engine is alive and has nothing to say."""
