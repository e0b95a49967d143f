"""Any replica, by weight: for comparison."""

import random
from collections.abc import Sequence

from setpoint.gateway.policies.policy import Candidate, Prompt


class RandomChoice:
    """Implements ``Policy``.

    Args:
        seed: Of the choices; any unless given.
    """

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)

    def choose(self, candidates: Sequence[Candidate], prompt: Prompt) -> int:  # noqa: ARG002 - Policy's shape
        """One with probability proportional to its weight."""
        return self._random.choices(range(len(candidates)), [c.weight for c in candidates])[0]
