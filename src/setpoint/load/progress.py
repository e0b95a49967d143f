"""What a run tells while it is under way."""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from setpoint.load.messages import Brief, Tick
from setpoint.records.exchange import Outcome


class Phase(StrEnum):
    """What is being done."""

    PREPARE = "prepare"
    WARM_UP = "warm-up"
    MEASURE = "measure"
    DRAIN = "drain"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of a run.

    Attributes:
        phase: What is being done.
        label: The load in words, e.g. ``"2.0 sessions/s"``.
        elapsed_s: Since the origin of the run; negative before it.
        planned_s: Length of the send window.
        planned: Planned requests; None in closed loop.
        started: Requests begun.
        in_flight: Exchanges under way.
        outcomes: Finished exchanges by outcome.
        ttft_s: p50 and p95 over the last 10 s of answers; None without any.
        gap_s: p50 of each answer's longest gap, likewise.
        rate_per_s: Answers per second over the last 10 s.
        note: A sentence when something is worth saying.
    """

    phase: Phase
    label: str
    elapsed_s: float
    planned_s: float
    planned: int | None
    started: int
    in_flight: int
    outcomes: dict[Outcome, int]
    ttft_s: tuple[float, float] | None = None
    gap_s: float | None = None
    rate_per_s: float = 0.0
    note: str = ""


Listener = Callable[[Progress], None]


class Tally:
    """Adds up ticks of all workers."""

    WINDOW_S = 10.0

    def __init__(self) -> None:
        self.outcomes: Counter[Outcome] = Counter()
        self.latest: dict[int, Tick] = {}
        self.stall_s = 0.0
        self.recent: deque[Brief] = deque()
        self.backlog: list[tuple[float, int]] = []

    def add(self, tick: Tick) -> None:
        """One more tick."""
        self.latest[tick.worker] = tick
        self.stall_s = max(self.stall_s, tick.stall_s)
        for brief in tick.done:
            self.outcomes[brief.outcome] += 1
            self.recent.append(brief)
        while self.recent and self.recent[0].done_s < tick.time_s - self.WINDOW_S:
            self.recent.popleft()
        self.backlog.append((tick.time_s, self.in_flight))

    @property
    def started(self) -> int:
        """Requests begun by all workers."""
        return sum(t.started for t in self.latest.values())

    @property
    def in_flight(self) -> int:
        """Exchanges under way in all workers."""
        return sum(t.in_flight for t in self.latest.values())

    @property
    def now_s(self) -> float:
        """Time of the latest tick."""
        return max((t.time_s for t in self.latest.values()), default=0.0)

    def progress(self, phase: Phase, label: str, planned_s: float, planned: int | None, note: str = "") -> Progress:
        """The state in numbers."""
        answered = [b for b in self.recent if b.outcome.answered]
        ttft = [b.ttft_s for b in answered if b.ttft_s is not None]
        gaps = [b.longest_gap_s for b in answered if b.longest_gap_s is not None]
        span_s = min(max(self.now_s, 1e-9), self.WINDOW_S)
        quantiles = np.quantile(ttft, (0.5, 0.95)) if ttft else None
        return Progress(
            phase=phase,
            label=label,
            elapsed_s=self.now_s,
            planned_s=planned_s,
            planned=planned,
            started=self.started,
            in_flight=self.in_flight,
            outcomes=dict(self.outcomes),
            ttft_s=None if quantiles is None else (float(quantiles[0]), float(quantiles[1])),
            gap_s=float(np.median(gaps)) if gaps else None,
            rate_per_s=len(answered) / span_s,
            note=note,
        )
