"""Replicas in turn: for comparison."""

from collections.abc import Sequence

from setpoint.gateway.policies.policy import Candidate, Prompt


class RoundRobin:
    """Implements ``Policy``."""

    def __init__(self) -> None:
        self._turn = -1

    def choose(self, candidates: Sequence[Candidate], prompt: Prompt) -> int:  # noqa: ARG002 - Policy's shape
        """The next one."""
        self._turn += 1
        return self._turn % len(candidates)
