"""The replica with the fewest requests under way: for comparison."""

from collections.abc import Sequence

from setpoint.gateway.policies.policy import Candidate, Prompt


class LeastLoaded:
    """Implements ``Policy``."""

    def choose(self, candidates: Sequence[Candidate], prompt: Prompt) -> int:  # noqa: ARG002 - Policy's shape
        """The least requests for its weight; of equals the first."""
        return min(range(len(candidates)), key=lambda i: candidates[i].in_flight / candidates[i].weight)
