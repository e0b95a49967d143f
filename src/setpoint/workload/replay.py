"""Recorded arrivals: what a replayed trace must say of each request."""

from dataclasses import dataclass
from pathlib import Path

from setpoint.errors import UsageError


@dataclass(frozen=True, slots=True)
class Arrival:
    """One recorded request.

    Attributes:
        time_s: Since the first one.
        prompt_tokens: At least 1.
        output_tokens: At least 1.
        blocks: Leading blocks of the prompt that another request has too, by number; empty without knowledge.
    """

    time_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Recorded:
    """A trace in order of time.

    Attributes:
        source: Where it was read.
        arrivals: At least one.
        block_tokens: Tokens that a block stands for; 0 without blocks.
    """

    source: str
    arrivals: tuple[Arrival, ...]
    block_tokens: int = 0

    @property
    def rate_per_s(self) -> float:
        """Mean arrivals per second.

        Raises:
            UsageError: all carry one time.
        """
        span_s = self.arrivals[-1].time_s - self.arrivals[0].time_s
        if span_s <= 0:
            raise UsageError(
                f"The trace {self.source!r} has no rate: all its requests carry one time.",
                fix="Replay it without --rate.",
            )
        return (len(self.arrivals) - 1) / span_s


def read_recorded(trace: str, folder: str) -> Recorded:
    """Reads a trace for replay.

    Raises:
        UsageError: it cannot be read or has no common clock.
    """
    from setpoint.workload.traces import read_trace  # noqa: PLC0415 - replay alone needs the trace formats

    return read_trace(Path(folder) / trace).recorded()
