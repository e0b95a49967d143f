"""Placements of a model: which hold it, keep the card's promises and constraints, and at what cost; ranked.

Ranked by verdict (met, undecided, missed), then by cost per successful unit of work at the expected values; what has
no price follows, by accelerators. A replica is the smallest thing that serves; as many run as the card's load needs.
"""

import math
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from setpoint.errors import UsageError
from setpoint.hardware import Accelerator, Fleet, catalogue
from setpoint.models.layer import CompressedAttention
from setpoint.models.requantize import choices
from setpoint.models.resolve import Model
from setpoint.models.spec import ModelSpec
from setpoint.sizing import overheads
from setpoint.sizing.calibration import Calibration
from setpoint.sizing.candidates import Layout, fleets, layouts, reach, sizes, worth
from setpoint.sizing.capacity import Capacity, Curve, at_loads, capacities, completed_per_s
from setpoint.sizing.constraints import (
    Finding,
    State,
    allowed_chips,
    budget_findings,
    hardware_findings,
    licence_findings,
)
from setpoint.sizing.cost import Hosted, Operation, Profile, Rates, Replica, cost, peaked
from setpoint.sizing.deployment import Deployment, check_split
from setpoint.sizing.engine import Engine
from setpoint.sizing.latency import BACKENDS, Estimate, Request, Shape, Split, shape_of
from setpoint.sizing.need import Need
from setpoint.sizing.pages import prefix_caching
from setpoint.sizing.plan import MemoryPlan, plan_memory
from setpoint.sizing.shards import stage_weight_bytes
from setpoint.sizing.support import Support, cache_on, cut_through, known_chip, weights_on
from setpoint.sizing.term import Range
from setpoint.sizing.vllm_pool import Layout as PoolLayout
from setpoint.sizing.vllm_pool import layout_of
from setpoint.workload.card import Constraints

Reason = Literal[
    "memory", "heads", "licence", "region", "budget", "hardware", "precision", "interconnect", "engine", "count",
    "promises", "context",
]  # fmt: skip
_ORDER = {"met": 0, "undecided": 1, "missed": 2}
_CACHES = ("auto", "fp8")


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
    """

    chip: Accelerator
    count: int
    layout: Layout
    weights: str
    as_stored: bool
    kv_dtype: str

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
class Money:
    """US dollars at the card's load; every end of a range takes the matching end of goodput and price.

    Attributes:
        price: Of one accelerator for an hour.
        sellers: Who asks that.
        per_hour: Of the service.
        per_million_tokens: Of output.
        per_million_tokens_full: Of a replica at its limit all the time.
        per_unit: Of a successful unit of work.
        utilization: Share of paid capacity that delivers, expected.
        hosted_per_hour: The same traffic at the hosted price; None without one.
        break_even_requests_per_s: From which own serving is no dearer; None without, or where it never is.
    """

    price: Range
    sellers: str
    per_hour: Range
    per_million_tokens: Range
    per_million_tokens_full: float
    per_unit: Range
    utilization: float
    hosted_per_hour: float | None
    break_even_requests_per_s: float | None


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
        return next((state for state in ("met", "undecided") if state in states), "missed")  # type: ignore[return-value]

    def why_not(self) -> Counter[str]:
        """Rejections by kind."""
        return Counter(one.kind for one in self.rejected)


class _Refused(Exception):  # noqa: N818 - a verdict on a candidate, not an error
    def __init__(self, kind: Reason, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason


@dataclass(frozen=True, slots=True)
class _Fitting:
    candidate: Candidate
    memory: MemoryPlan
    support: Support
    request: Request | None


def plan_placements(question: Question) -> Plan:
    """All placements of a model on what there is.

    Raises:
        UsageError: nothing can be planned as asked (unknown hardware in the card, no context length).
    """
    return _Planner(question).plan()


class _Planner:
    def __init__(self, question: Question) -> None:
        self.q = question
        self.specs = choices(question.model.spec)
        self.shapes: dict[tuple[str, float], Shape] = {}
        self.weights: dict[tuple[str, Layout], float] = {}
        self.pages: dict[tuple[int, int, str], PoolLayout] = {}
        self.memories: dict[tuple[str, Layout, str, float], MemoryPlan] = {}
        self.allowed = allowed_chips(question.constraints)
        self.licence = licence_findings(question.constraints, question.model.licence)
        self.rejected: list[Rejected] = []

    def plan(self) -> Plan:
        known = catalogue(self.q.own_hardware)
        fitting: list[_Fitting] = []
        for chip, available in fleets(self.q.hardware, known):
            try:
                self._check_chip(chip)
            except _Refused as refusal:
                self.rejected.append(Rejected(chip.name, chip.name, refusal.kind, refusal.reason))
                continue
            for name in self.specs:
                for kv_dtype in _caches(self.q.model.spec):
                    fitting.extend(self._of_chip(chip, available, name, kv_dtype))
        placements = self._judged(fitting)
        placements.sort(key=_rank)
        return Plan(self.q, tuple(placements), tuple(self.rejected), self._notes())

    def _check_chip(self, chip: Accelerator) -> None:
        for finding in (*self.licence, *hardware_findings(self.q.constraints, chip, self.allowed)):
            if finding.state == "missed":
                raise _Refused(finding.name, finding.reason)
        unknown = known_chip(chip)
        if unknown:
            raise _Refused("engine", unknown)
        stated = self.q.model.spec.max_positions
        if stated and self.q.longest > stated:
            asked = "The card's longest request has" if self.q.max_model_len is None else "--max-model-len is"
            raise _Refused("context", f"{asked} {self.q.longest:,} tokens; the model states {stated:,}.")

    def _of_chip(self, chip: Accelerator, available: int | None, name: str, kv_dtype: str) -> list[_Fitting]:
        """Candidates of one chip and precision; beyond one server only where one does not hold the model."""
        found: list[_Fitting] = []
        for count in sizes(chip, available):
            if available is None and found and (count > reach(chip) or not worth(count, found[0].candidate.count)):
                break
            for layout in layouts(self.specs[name], chip, count):
                candidate = Candidate(chip, count, layout, name, self.specs[name] is self.q.model.spec, kv_dtype)
                try:
                    found.append(self._fit(candidate))
                except _Refused as refusal:
                    self.rejected.append(Rejected(str(candidate), chip.name, refusal.kind, refusal.reason))
        return found

    def _fit(self, c: Candidate) -> _Fitting:
        spec = self.specs[c.weights]
        support = weights_on(spec.precision.quantized, c.chip)
        if support.how == "no":
            raise _Refused("precision", support.note)
        if not c.as_stored and c.weights == "nvfp4" and support.how == "widened":
            raise _Refused("precision", f"{c.chip.name} widens NVFP4: INT4 is as small and no slower there.")
        refused = cache_on(c.kv_dtype, c.chip)
        if refused:
            raise _Refused("precision", refused)
        deployment = self._deployment(c)
        self._check_layout(spec, c, deployment)
        weight = self._weight(c, spec, deployment)
        usable = c.chip.usable_bytes.value
        if weight > usable * deployment.utilization:
            gib = overheads.GIB
            raise _Refused(
                "memory", f"Weights of {weight / gib:.1f} GiB a rank exceed {usable * deployment.utilization / gib:.1f} GiB."
            )
        key = (c.weights, c.layout, c.kv_dtype, usable)
        memory = self.memories.get(key)
        if memory is None:
            pages = self._pages(c, spec, deployment)
            log = self._calibration(c)
            memory = plan_memory(spec, deployment, usable, self._contexts(), log, layout=pages, weight=weight)
            self.memories[key] = memory
        if memory.fit == "no":
            raise _Refused("memory", memory.reasons[0])
        return _Fitting(c, memory, support, self._request(c, memory, deployment))

    def _check_layout(self, spec: ModelSpec, c: Candidate, deployment: Deployment) -> None:
        try:
            check_split(spec, c.layout.tp)
        except UsageError as error:
            raise _Refused("heads", error.message) from None
        if c.layout.pp > len(spec.layers):
            raise _Refused("heads", f"{len(spec.layers)} layers cannot be split over {c.layout.pp} stages.")
        uneven = cut_through(spec, deployment)
        if uneven:
            raise _Refused("precision", uneven)
        if c.layout.tp * c.layout.dp > reach(c.chip) and c.layout.tp > reach(c.chip):
            raise _Refused("interconnect", f"TP{c.layout.tp} would cross the network: {c.chip.name} joins {reach(c.chip)}.")
        if c.chip.links.server.value == 1 and c.count > reach(c.chip) and c.layout.tp > 1:
            raise _Refused("interconnect", f"{c.chip.name} has one accelerator a machine.")

    def _weight(self, c: Candidate, spec: ModelSpec, deployment: Deployment) -> float:
        key = (c.weights, c.layout)
        if key not in self.weights:
            self.weights[key] = max(stage_weight_bytes(spec, deployment))
        return self.weights[key]

    def _pages(self, c: Candidate, spec: ModelSpec, deployment: Deployment) -> PoolLayout | None:
        """What a pool looks like does not depend on how weights are stored, nor on the device."""
        if self.q.engine.name != "vllm":
            return None
        key = (c.layout.tp, c.layout.pp, c.kv_dtype)
        if key not in self.pages:
            self.pages[key] = layout_of(spec, deployment)
        return self.pages[key]

    def _deployment(self, c: Candidate) -> Deployment:
        one = c.layout
        share = self.q.calibration.utilization if self.q.calibration is not None else None
        return Deployment(
            self.q.engine,
            self.q.longest,
            tp=one.tp,
            pp=one.pp,
            dp=one.dp,
            expert_parallel=one.expert,
            kv_dtype=c.kv_dtype,
            utilization=share or 0.9,
        )

    def _calibration(self, c: Candidate) -> Calibration | None:
        """A log's terms hold for the ranks it was written on; its weights only for the checkpoint as stored."""
        log = self.q.calibration
        if log is None or (log.tp or 1) != c.layout.tp or log.engine.name != self.q.engine.name:
            return None
        return log.without("weights") if not c.as_stored else log

    def _contexts(self) -> tuple[int, ...]:
        need = self.q.need
        if need is None:
            return context_steps(self.q.longest)
        wanted = (need.typical_tokens, round(need.input_tokens + need.output_tokens), need.longest_tokens)
        return tuple(sorted({min(max(one, 1), self.q.longest) for one in wanted}))

    def _request(self, c: Candidate, memory: MemoryPlan, deployment: Deployment) -> Request | None:
        need = self.q.need
        if need is None:
            return None
        cache_bytes = 1.0 if memory_dtype(c, self.specs[c.weights]) == "fp8" else 2.0
        shape = self.shapes.get((c.weights, cache_bytes))
        if shape is None:
            shape = shape_of(self.specs[c.weights], cache_bytes=cache_bytes)
            self.shapes[c.weights, cache_bytes] = shape
        mean = min(round(need.input_tokens + need.output_tokens), self.q.longest)
        held = next(one for one in memory.sessions if one.context == mean)
        known = need.history_tokens if prefix_caching(self.specs[c.weights], deployment) else 0.0
        assert self.q.engine.name in BACKENDS
        return Request(
            shape,
            c.chip,
            Split(c.layout.tp, c.layout.dp, c.layout.pp, c.layout.expert),
            input_tokens=need.input_tokens,
            output_tokens=max(need.output_tokens, 1.0),
            sessions=1.0,
            backend=self.q.engine.name,
            cached_tokens=min(known, need.input_tokens - 1),
            slots=max(held.count.expected, 1.0),
            chunk_tokens=overheads.batched_tokens(deployment, memory.device_bytes),
        )

    def _judged(self, fitting: list[_Fitting]) -> list[Placement]:
        need = self.q.need
        if need is None:
            return [self._memory_only(one) for one in fitting]
        requests = [one.request for one in fitting if one.request is not None]
        found = capacities(requests, need)
        counts = [self._replicas(capacity) for capacity, _ in found]
        estimates = at_loads(
            requests, [curve for _, curve in found], need, [max(count - self.q.spare, 1) for count in counts]
        )
        out = []
        for one, (capacity, curve), count, estimate in zip(fitting, found, counts, estimates, strict=True):
            try:
                out.append(self._placement(one, capacity, curve, count, estimate))
            except _Refused as refusal:
                name = one.candidate.chip.name
                self.rejected.append(Rejected(str(one.candidate), name, refusal.kind, refusal.reason))
        return out

    def _memory_only(self, one: _Fitting) -> Placement:
        findings = (*self.licence, *hardware_findings(self.q.constraints, one.candidate.chip, self.allowed))
        state: State = "met" if one.memory.fit == "yes" else "undecided"
        fails = (*one.memory.reasons, _outgrown(one.memory))
        return Placement(
            one.candidate, one.memory, state, None, None, None, None, findings, "memory", fails, _notes(one)
        )

    def _replicas(self, capacity: Capacity) -> int:
        """That the load needs at the expected values, the card's peak included; 1 where nothing is completed."""
        need = self.q.need
        assert need is not None
        if need.users is not None:
            each = capacity.users.expected if capacity.users is not None else 0.0
            needed = need.users / each if each else 1.0
        else:
            assert need.requests_per_s is not None
            peak = need.peak_per_s or need.requests_per_s
            if self.q.peak_to_mean is not None:
                peak = need.requests_per_s * self.q.peak_to_mean
            needed = peak / capacity.requests_per_s.expected if capacity.requests_per_s.expected else 1.0
        return max(1, math.ceil(needed * (1 - 1e-9))) + self.q.spare

    def _placement(
        self, one: _Fitting, capacity: Capacity, curve: Curve, replicas: int, estimate: Estimate
    ) -> Placement:
        need, c = self.q.need, one.candidate
        assert need is not None
        if capacity.requests_per_s.high == 0:
            raise _Refused("promises", f"One session alone does not keep {capacity.binding}.")
        available = next((f.count for f in self.q.hardware or () if f.accelerator.name == c.chip.name), None)
        expected = capacity.requests_per_s.expected
        if available is not None and expected and replicas * c.count > available:
            raise _Refused(
                "count",
                f"The load needs {replicas} replicas of {c.count}: {replicas * c.count} accelerators of {available}.",
            )
        rate = completed_per_s(curve, need, max(replicas - self.q.spare, 1))
        money = self._money(c, capacity, rate) if expected else None
        budget = budget_findings(
            self.q.constraints,
            money.per_hour if money else None,
            money.per_million_tokens if money else None,
            money.per_unit if money else None,
        )
        broken = next((f for f in budget if f.state == "missed"), None)
        if broken is not None:
            raise _Refused("budget", broken.reason)
        findings = (*self.licence, *hardware_findings(self.q.constraints, c.chip, self.allowed), *budget)
        keeps = self._keeps(capacity, replicas)
        decided = keeps == "met" and one.memory.fit == "yes" and all(f.state == "met" for f in findings)
        return Placement(
            c,
            one.memory,
            "met" if decided else "undecided",
            capacity,
            replicas,
            estimate if expected else None,
            money,
            findings,
            capacity.binding if capacity.binding != "room in the cache" else estimate.limited_by,
            self._fails_when(one, capacity, replicas, keeps),
            (*_notes(one), *estimate.notes),
        )

    def _keeps(self, capacity: Capacity, replicas: int) -> State:
        """Whether the load is kept even when the slow end of the range comes true."""
        need = self.q.need
        assert need is not None
        serving = replicas - self.q.spare
        if need.users is not None:
            assert capacity.users is not None
            return "met" if capacity.users.low * serving >= need.users else "undecided"
        assert need.requests_per_s is not None
        return "met" if capacity.requests_per_s.low * serving >= need.requests_per_s else "undecided"

    def _money(self, c: Candidate, capacity: Capacity, rate: float) -> Money | None:
        if not c.chip.prices:
            return None
        need = self.q.need
        assert need is not None
        prices = c.chip.prices
        price = Range(
            min(p.low for p in prices), sum(p.middle for p in prices) / len(prices), max(p.high for p in prices)
        )
        profile = self._profile(rate)
        operation = Operation(spare=self.q.spare)
        goodput = capacity.requests_per_s
        found = []
        for per_s, usd in ((goodput.high, price.low), (goodput.expected, price.expected), (goodput.low, price.high)):
            if per_s <= 0:
                found.append((math.inf, math.inf, math.inf, math.inf, 0.0, None, None))
                continue
            replica = Replica(c.count, per_s, max(need.input_tokens, 1.0), max(need.output_tokens, 1.0))
            one = cost(replica, Rates(usd), profile, operation, self.q.hosted)
            found.append(
                (
                    one.usd_per_hour,
                    one.usd_per_million_tokens,
                    one.usd_per_success * need.requests_per_unit,
                    one.usd_per_million_tokens_full,
                    one.utilization,
                    one.hosted_usd_per_hour,
                    one.break_even_requests_per_s,
                )
            )
        ranges = [Range(*sorted(end[i] for end in found)) for i in range(3)]
        _, _, _, full, utilization, hosted, even = found[1]
        sellers = "; ".join(dict.fromkeys(p.seller for p in prices))
        return Money(price, sellers, ranges[0], ranges[1], full, ranges[2], utilization, hosted, even)

    def _profile(self, rate: float) -> Profile:
        need = self.q.need
        assert need is not None
        if self.q.peak_to_mean is not None:
            return peaked(rate, self.q.peak_to_mean)
        if need.requests_per_s and need.peak_per_s and need.peak_per_s > need.requests_per_s * (1 + 1e-9):
            return peaked(rate, need.peak_per_s / need.requests_per_s)
        return Profile((rate,))

    def _fails_when(self, one: _Fitting, capacity: Capacity, replicas: int, keeps: State) -> tuple[str, ...]:
        need = self.q.need
        assert need is not None
        found = list(one.memory.reasons)
        if keeps == "undecided":
            slow = f"{replicas} replicas no longer suffice" if capacity.requests_per_s.low else "no load keeps the promises"
            found.append(f"If times come out at the slow end of their range, {slow}.")
        if need.users is not None and capacity.users is not None:
            found.append(f"More than {capacity.users.expected:.0f} users a replica break {capacity.binding}.")
        else:
            found.append(f"More than {capacity.requests_per_s.expected:.3g} requests/s a replica break {capacity.binding}.")
        found.append(_outgrown(one.memory))
        if need.history_tokens > 0 and one.request is not None and one.request.cached_tokens:
            held = one.memory.sessions[-1].count.expected * replicas
            found.append(
                f"With more than about {held:,.0f} long sessions open, histories fall out of the prefix cache and are "
                "prefilled again."
            )
        return tuple(found)

    def _notes(self) -> tuple[str, ...]:
        q = self.q
        found = list(q.model.spec.notes)
        if q.need is not None:
            found.extend(q.need.assumptions)
            if q.need.unchecked:
                found.append(f"A plan cannot check: {', '.join(q.need.unchecked)}.")
            if q.need.users is None and q.peak_to_mean is None and q.need.peak_per_s == q.need.requests_per_s:
                found.append("Traffic is taken as even all day: idle hours cost more; give --peak-to-mean.")
        if q.model.licence is None:
            found.append("The model's licence is not known: there is no model card beside it.")
        if len(self.specs) > 1:
            found.append("Converted weights change answers: measure quality before they serve.")
        return tuple(found)


def memory_dtype(c: Candidate, spec: ModelSpec) -> str:
    """``fp8`` where elements of the cache have one byte, else ``16 bits``."""
    asked = spec.precision.kv if c.kv_dtype == "auto" else c.kv_dtype
    compressed = any(isinstance(layer.mixer, CompressedAttention) for layer in spec.layers)
    return "fp8" if asked in ("fp8", "int8", "nvfp4") or compressed else "16 bits"


def context_steps(longest: int) -> tuple[int, ...]:
    """Powers of two from 1,024 up, and the longest."""
    steps = [2**power for power in range(10, 25) if 2**power < longest]
    return (*steps, longest)


def _caches(spec: ModelSpec) -> tuple[str, ...]:
    compressed = any(isinstance(layer.mixer, CompressedAttention) for layer in spec.layers)
    return ("auto",) if compressed or spec.precision.kv else _CACHES


def _rank(one: Placement) -> tuple[float, ...]:
    priced = one.money is not None and math.isfinite(one.money.per_unit.expected)
    per_unit = one.money.per_unit.expected if one.money is not None and priced else math.inf
    slack = -one.memory.sessions[-1].count.expected / one.accelerators
    converted = 0.0 if one.candidate.as_stored else 1.0
    return (_ORDER[one.state], not priced, per_unit, one.accelerators, converted, one.candidate.kv_dtype != "auto", slack)


def _outgrown(memory: MemoryPlan) -> str:
    longest = memory.sessions[-1]
    held = f"{longest.count.low:,.0f} to {longest.count.high:,.0f}"
    return f"Sessions of {longest.context:,} tokens: {held} fit into a replica's cache; the next one waits."


def _notes(one: _Fitting) -> tuple[str, ...]:
    found = []
    if not one.candidate.as_stored:
        found.append(f"The checkpoint must be converted to {one.candidate.weights.upper()}.")
    if one.support.note:
        found.append(one.support.note)
    if one.candidate.chip.vendor == "AMD":
        found.append("The memory rules were learnt on NVIDIA; two logs on AMD agree.")
    return tuple(found)

