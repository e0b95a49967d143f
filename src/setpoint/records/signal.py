"""A signal: one named engine quantity at one time, or the reason why there is no value (law 2)."""

from enum import StrEnum

import msgspec


class SignalState(StrEnum):
    """Whether a signal has a value, and if not, why."""

    OK = "ok"
    UNSUPPORTED = "unsupported"  # this engine, in this version, does not export it
    DISABLED = "disabled"  # it would, but a flag turned it off
    SCRAPE_FAILED = "scrape_failed"  # it was asked for and did not come


class SignalRow(msgspec.Struct, frozen=True, kw_only=True):
    """One reading.

    Attributes:
        time_s: Monotonic seconds since the run's origin.
        signal: Canonical name, e.g. ``requests_waiting``.
        value: In the signal's base unit; None unless the state is ``ok``.
        state: Whether there is a value.
        source: Where it was read, e.g. the engine's series name or ``psutil``.
    """

    time_s: float
    signal: str
    value: float | None
    state: SignalState
    source: str

    def __post_init__(self) -> None:
        if (self.value is None) != (self.state is not SignalState.OK):
            raise ValueError(f"signal {self.signal}: state {self.state} with value {self.value}; only ok has a value")
