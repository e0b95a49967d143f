"""Recorded arrivals: what a replayed trace must say of each request."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Arrival:
    """One recorded request.

    Attributes:
        time_s: Since the first one.
        prompt_tokens: At least 1.
        output_tokens: At least 1.
        group: Requests of one group begin alike; 0 without knowledge.
        shared_tokens: How long that beginning is; 0 without knowledge.
    """

    time_s: float
    prompt_tokens: int
    output_tokens: int
    group: int = 0
    shared_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Recorded:
    """A trace in order of time.

    Attributes:
        arrivals: At least one.
    """

    arrivals: tuple[Arrival, ...]

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals per second."""
        span_s = self.arrivals[-1].time_s - self.arrivals[0].time_s
        return (len(self.arrivals) - 1) / span_s if span_s > 0 else 1.0


def read_recorded(trace: str, folder: str) -> Recorded:
    """Reads a trace for replay.

    Raises:
        UsageError: it cannot be read.
    """
    from setpoint.workload.traces import read_trace  # noqa: PLC0415 - replay alone needs the trace formats

    return read_trace(Path(folder) / trace).recorded()
