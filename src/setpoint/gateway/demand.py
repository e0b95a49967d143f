"""Who asks for a model while no engine of it runs, and when it is likely to.

The cells of a model's row are written by the workers (somebody asked) and by whoever starts engines or watches them
(loading began, loading ended), and are read by both.
"""

from setpoint.gateway.replica import now_us
from setpoint.gateway.shared import SharedTable

ASKED_US, LOADING_SINCE_US, LOAD_US = range(3)


class Demand:
    """Of one model.

    Args:
        model: Its name.
        table: Shared memory.
    """

    __slots__ = ("_row",)

    def __init__(self, model: str, table: SharedTable) -> None:
        self._row = table.row(f"model:{model}")

    def ask(self) -> None:
        """A request for the model came."""
        self._row[ASKED_US] = now_us()

    @property
    def asked_us(self) -> int:
        """When the last request came, on the workers' clock; 0 when none has."""
        return self._row[ASKED_US]

    def expect(self, load_s: float) -> None:
        """How long an engine of the model takes to load, as observed or declared; 0 when nobody knows."""
        self._row[LOAD_US] = int(load_s * 1e6)

    def loading(self) -> None:
        """An engine of it is being started, or is not ready yet; the first such moment counts."""
        if not self._row[LOADING_SINCE_US]:
            self._row[LOADING_SINCE_US] = now_us()

    def stopped(self, load_s: float) -> None:
        """No engine of it runs until somebody asks; then it takes so long, or nobody knows (0)."""
        self._row[LOADING_SINCE_US] = 0
        self.expect(load_s)

    def loaded(self) -> None:
        """An engine of it answers. How long that took is what the next load is expected to take."""
        if self._row[LOADING_SINCE_US]:
            self._row[LOAD_US] = now_us() - self._row[LOADING_SINCE_US]
            self._row[LOADING_SINCE_US] = 0

    def remaining_s(self) -> float:
        """Seconds until an engine is likely to answer.

        What is left of the known load time; where it has passed, as long again as it is late, and where it is unknown,
        as long again as the load has taken, so that a client's next try comes later each time.
        """
        since, load = self._row[LOADING_SINCE_US], self._row[LOAD_US]
        passed = now_us() - since if since else 0
        return max(1.0, (load - passed if passed < load else passed - load) / 1e6)

    @property
    def known(self) -> bool:
        """Whether what remains follows from a load that was observed or declared, and has not passed."""
        since, load = self._row[LOADING_SINCE_US], self._row[LOAD_US]
        return load > 0 and (not since or now_us() - since < load)
