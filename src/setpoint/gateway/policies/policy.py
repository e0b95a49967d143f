"""What a routing policy is asked and what it answers."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Candidate(NamedTuple):
    """A replica as a policy sees it.

    Attributes:
        name: Its name.
        in_flight: Requests dispatched to it and not ended, by all workers.
        queued_tokens: Uncached prompt tokens dispatched to it that have not led to a first token yet.
        cached_tokens: Tokens of this prompt that its cache is believed to hold.
        weight: Share relative to the others.
        stale: Whether what is known of its load is too old to be trusted.
    """

    name: str
    in_flight: int
    queued_tokens: int
    cached_tokens: int
    weight: float = 1.0
    stale: bool = False


class Prompt(NamedTuple):
    """The request as a policy sees it.

    Attributes:
        tokens: Estimated length.
        key: Hash of its beginning; equal for prompts that begin alike.
    """

    tokens: int
    key: int


class Policy(Protocol):
    """Chooses among replicas that can take the request."""

    def choose(self, candidates: Sequence[Candidate], prompt: Prompt) -> int:
        """Position of the chosen one; ``candidates`` is never empty."""
        ...
