"""What one run is: everything that the runner needs, decided beforehand."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from setpoint.client.limits import PhaseTimeouts
from setpoint.records.meta import Series
from setpoint.records.signal import SignalRow
from setpoint.records.target import Target
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule

Sampler = Callable[[], Awaitable[list[SignalRow]]]
Alive = Callable[[], str | None]


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """One run to be made.

    Attributes:
        card: The workload card.
        schedule: The planned sends.
        target: Where to.
        label: The load in words.
        engine: Facts about the engine for the pins: name, version, flags, model revision, precision.
        warmup_requests: Requests before the measured part; None takes the card's.
        workers: Client processes; None decides from the floor and the planned rate.
        timeouts: Phase limits.
        drain_s: How long answers are waited for after the send window; None derives it from the promises.
        series: The search or sweep that this run is a step of.
        alive: Tells why the target has died, or None while it lives.
        stop_early: Looks at finished exchanges and says why the run may end, or None.
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
