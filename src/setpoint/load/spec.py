"""What one run is: everything that the runner needs, decided beforehand."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from setpoint.client.limits import PhaseTimeouts
from setpoint.load.messages import Brief
from setpoint.load.progress import Tally
from setpoint.records.meta import Series
from setpoint.records.signal import SignalRow
from setpoint.records.target import Target
from setpoint.records.writer import RunWriter
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule

Sampler = Callable[[float], Awaitable[list[SignalRow]]]
"""Reads all signals now; takes the run's origin on the monotonic clock."""

Alive = Callable[[], str | None]
"""Says why the target has died; None while it lives or nobody knows."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a run may end before its time.

    Attributes:
        reason: In words.
        drain_s: How long answers under way are still waited for; then the client ends them, and what they came to is
            not known. None waits as long as after a whole run.
    """

    reason: str
    drain_s: float | None = None


Look = Callable[[Tally, Sequence[Brief]], Ending | None]
"""Sees the state of all workers and every finished exchange; says why the run may end now, or None."""

Beside = Callable[[float, RunWriter], Awaitable[None]]
"""Works on the target while the load runs and adds rows to its record; takes the run's origin and the writer.

It is cancelled when the load ends first, and must have recorded what it left undone by then."""


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """One run to be made.

    Attributes:
        card: The workload card.
        schedule: The planned sends.
        target: Where to.
        label: The load in words.
        engine: Facts about the engine for the pins: engine, engine_version, engine_flags, model_revision, precision.
        warmup_requests: Requests before the measured part; None takes the card's.
        workers: Client processes; None decides from the floor and the planned rate.
        timeouts: Phase limits.
        drain_s: How long answers are waited for after the send window; None derives it from the promises.
        series: The search or sweep that this run is a step of.
        alive: Whether the target has died.
        look: Whether the run may end early; looks are paid for in the verdicts.
        beside: What else is done on the target meanwhile; the load ends with it.
    """

    card: Workload
    schedule: Schedule
    target: Target
    label: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    warmup_requests: int | None = None
    workers: int | None = None
    timeouts: PhaseTimeouts = field(default_factory=PhaseTimeouts)
    drain_s: float | None = None
    series: Series | None = None
    alive: Alive | None = None
    look: Look | None = None
    beside: Beside | None = None

    @property
    def tightest_limit_s(self) -> float | None:
        """The tightest TTFT or E2E limit of the card: what the client's own delay is weighed against."""
        limits = [p.limit_s for p in self.card.promises if p.limit_s is not None and p.metric in ("ttft", "e2e")]
        return min(limits, default=None)

    @property
    def patience_s(self) -> float:
        """How long to wait for answers after the last send: three times the longest limit, at least 10 s.

        An answer that has not come by then has broken its promises; cutting it off loses no verdict.
        """
        if self.drain_s is not None:
            return self.drain_s
        longest = max((p.limit_s for p in self.card.promises if p.limit_s is not None), default=20.0)
        return max(10.0, 3 * longest)
