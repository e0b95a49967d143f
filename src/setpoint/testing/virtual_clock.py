"""A clock that moves only when told to."""


class VirtualClock:
    """Implements ``setpoint.clock.Clock``.

    Args:
        start_s: First time it tells.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._now_s = start_s

    def now(self) -> float:
        """The current virtual time in seconds."""
        return self._now_s

    def advance(self, seconds: float) -> None:
        """Moves time on.

        Raises:
            ValueError: backwards.
        """
        if seconds < 0:
            raise ValueError(f"expected a time to move on, found {seconds}")
        self._now_s += seconds
