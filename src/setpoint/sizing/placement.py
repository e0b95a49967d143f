"""A question about placing a model, and the answer: placements, the best first, and what was rejected."""

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from setpoint.errors import UsageError
from setpoint.hardware import Accelerator, Fleet
from setpoint.models.resolve import Model
from setpoint.sizing.calibration import Calibration
from setpoint.sizing.candidates import Layout
from setpoint.sizing.capacity import Capacity
from setpoint.sizing.constraints import Finding, State
from setpoint.sizing.cost import Hosted
from setpoint.sizing.engine import Engine
from setpoint.sizing.latency import Estimate
from setpoint.sizing.need import Need
from setpoint.sizing.plan import MemoryPlan
from setpoint.sizing.pricing import Money
from setpoint.workload.card import Constraints

Reason = Literal[
    "memory", "heads", "licence", "region", "budget", "hardware", "precision", "interconnect", "engine", "count",
    "promises", "context",
]  # fmt: skip


@dataclass(frozen=True)
class Question:
    """What to plan.

    Attributes:
        model: The model.
        engine: Engine and version.
        hardware: What there is; None: anything in ``accelerators``.
        need: What a card asks; None: memory alone.
        constraints: Of the card.
        max_model_len: Longest request in tokens; None: the need's longest, else what the model states.
        calibration: Terms of a log of the same stack.
        spare: Replicas beyond those the load needs.
        peak_to_mean: Busiest hour over the mean; the card's own profile unless given.
        hosted: Somebody else's price to compare with.
        own_hardware: A user's file of accelerators.
    """

    model: Model
    engine: Engine
    hardware: tuple[Fleet, ...] | None = None
    need: Need | None = None
    constraints: Constraints = field(default_factory=Constraints)
    max_model_len: int | None = None
    calibration: Calibration | None = None
    spare: int = 0
    peak_to_mean: float | None = None
    hosted: Hosted | None = None
    own_hardware: str | None = None

    @cached_property
    def longest(self) -> int:
        """Longest request, in tokens.

        Raises:
            UsageError: nobody said, and the model does not state one.
        """
        stated = self.model.spec.max_positions
        if self.max_model_len is not None:
            return self.max_model_len
        if self.need is not None:
            wanted = -(-self.need.longest_tokens // 1024) * 1024
            return min(wanted, stated) if stated >= self.need.longest_tokens else wanted
        if not stated:
            raise UsageError("The model does not state its longest context.", fix="Give it with --max-model-len.")
        return stated


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to place the model.

    Attributes:
        chip: Accelerator.
        count: Of one replica.
        layout: Split over them.
        weights: Format of the weights.
        as_stored: Whether the checkpoint has that format; else it must be converted first.
        kv_dtype: Type of the cache, as engines name it.
        bits: Of one weight, scales left out.
    """

    chip: Accelerator
    count: int
    layout: Layout
    weights: str
    as_stored: bool
    kv_dtype: str
    bits: float

    def __str__(self) -> str:
        return f"{self.chip.name}:{self.count} {self.layout} {self.weights}, KV {self.kv_dtype}"


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate that cannot serve.

    Attributes:
        candidate: In words.
        accelerator: Its name.
        kind: What it failed.
        reason: A sentence.
    """

    candidate: str
    accelerator: str
    kind: Reason
    reason: str


@dataclass(frozen=True, slots=True)
class Placement:
    """A candidate that holds the model.

    Attributes:
        candidate: What and how.
        memory: Term by term, with sessions.
        state: Whether promises and constraints are kept.
        capacity: Of one replica; None without a card.
        replicas: That the load needs, spares included; None without a card.
        estimate: At the card's load; None without a card, or where nothing keeps the promises.
        money: None where no price is known, or without a card.
        findings: Constraints.
        limited_by: What ends it.
        fails_when: What would make it fail, in sentences.
        notes: What is assumed about it.
    """

    candidate: Candidate
    memory: MemoryPlan
    state: State
    capacity: Capacity | None
    replicas: int | None
    estimate: Estimate | None
    money: Money | None
    findings: tuple[Finding, ...]
    limited_by: str
    fails_when: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def accelerators(self) -> int:
        """Of all replicas."""
        return self.candidate.count * (self.replicas or 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer.

    Attributes:
        question: As asked.
        placements: The best first.
        rejected: With a reason each.
        notes: What holds for all.
    """

    question: Question
    placements: tuple[Placement, ...]
    rejected: tuple[Rejected, ...]
    notes: tuple[str, ...]

    @property
    def state(self) -> State:
        """``met`` when some placement keeps everything, ``undecided`` when some may."""
        states = {one.state for one in self.placements}
        return next((state for state in ("met", "undecided") if state in states), "missed")

    def why_not(self) -> Counter[str]:
        """Rejections by kind."""
        return Counter(one.kind for one in self.rejected)
