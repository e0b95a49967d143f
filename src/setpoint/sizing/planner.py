"""All placements of a model: tried, rejected with a reason, judged and ranked.

Ranked by verdict (met, undecided), then by cost per successful unit of work at the expected values; at equal cost by
accelerators, then the weights that were changed least. What has no price comes last. A replica is the smallest thing
that serves; as many run as the card's load needs.
"""

import math

from setpoint.errors import UsageError
from setpoint.hardware import Accelerator, catalogue
from setpoint.models.layer import CompressedAttention
from setpoint.models.requantize import choices
from setpoint.models.spec import ModelSpec
from setpoint.sizing import overheads
from setpoint.sizing.calibration import Calibration
from setpoint.sizing.candidates import Layout, fleets, layouts, reach, sizes, worth
from setpoint.sizing.constraints import allowed_chips, hardware_findings, licence_findings
from setpoint.sizing.deployment import Deployment, check_split
from setpoint.sizing.latency import BACKENDS, Request, Shape, Split, shape_of
from setpoint.sizing.outcome import Fitting, Judge, Refused
from setpoint.sizing.pages import prefix_caching
from setpoint.sizing.placement import Candidate, Placement, Plan, Question, Rejected
from setpoint.sizing.plan import MemoryPlan, plan_memory
from setpoint.sizing.shards import stage_weight_bytes
from setpoint.sizing.support import cache_on, cut_through, known_chip, weights_on
from setpoint.sizing.vllm_pool import Layout as PoolLayout
from setpoint.sizing.vllm_pool import layout_of

_ORDER = {"met": 0, "undecided": 1, "missed": 2}
_CACHES = ("auto", "fp8")


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
        fitting: list[Fitting] = []
        for chip, available in fleets(self.q.hardware, known):
            try:
                self._check_chip(chip)
            except Refused as refusal:
                self.rejected.append(Rejected(chip.name, chip.name, refusal.kind, refusal.reason))
                continue
            for name in self.specs:
                for kv_dtype in _caches(self.q.model.spec):
                    fitting.extend(self._of_chip(chip, available, name, kv_dtype))
        placements = []
        for found in Judge(self.q, self.licence, self.allowed).all(fitting):
            if isinstance(found, Rejected):
                self.rejected.append(found)
            else:
                placements.append(found)
        placements.sort(key=_rank)
        return Plan(self.q, tuple(placements), tuple(self.rejected), self._notes())

    def _check_chip(self, chip: Accelerator) -> None:
        for finding in (*self.licence, *hardware_findings(self.q.constraints, chip, self.allowed)):
            if finding.state == "missed":
                raise Refused(finding.name, finding.reason)
        unknown = known_chip(chip)
        if unknown:
            raise Refused("engine", unknown)
        stated = self.q.model.spec.max_positions
        if stated and self.q.longest > stated:
            asked = "The card's longest request has" if self.q.max_model_len is None else "--max-model-len is"
            raise Refused("context", f"{asked} {self.q.longest:,} tokens; the model states {stated:,}.")

    def _of_chip(self, chip: Accelerator, available: int | None, name: str, kv_dtype: str) -> list[Fitting]:
        """Candidates of one chip and precision; beyond one server only where one does not hold the model."""
        found: list[Fitting] = []
        bits = self.specs[name].precision.quantized.bits
        for count in sizes(chip, available):
            if available is None and found and (count > reach(chip) or not worth(count, found[0].candidate.count)):
                break
            for layout in layouts(self.specs[name], chip, count):
                candidate = Candidate(chip, count, layout, name, self.specs[name] is self.q.model.spec, kv_dtype, bits)
                try:
                    found.append(self._fit(candidate))
                except Refused as refusal:
                    self.rejected.append(Rejected(str(candidate), chip.name, refusal.kind, refusal.reason))
        return found

    def _fit(self, c: Candidate) -> Fitting:
        spec = self.specs[c.weights]
        support = weights_on(spec.precision.quantized, c.chip)
        if support.how == "no":
            raise Refused("precision", support.note)
        if not c.as_stored and c.weights == "nvfp4" and support.how == "widened":
            raise Refused("precision", f"{c.chip.name} widens NVFP4: INT4 is as small and no slower there.")
        refused = cache_on(c.kv_dtype, c.chip)
        if refused:
            raise Refused("precision", refused)
        deployment = self._deployment(c)
        self._check_layout(spec, c, deployment)
        weight = self._weight(c, spec, deployment)
        usable = c.chip.usable_bytes.value
        if weight > usable * deployment.utilization:
            gib = overheads.GIB
            raise Refused(
                "memory",
                f"Weights of {weight / gib:.1f} GiB a rank exceed {usable * deployment.utilization / gib:.1f} GiB.",
            )
        key = (c.weights, c.layout, c.kv_dtype, usable)
        memory = self.memories.get(key)
        if memory is None:
            pages = self._pages(c, spec, deployment)
            log = self._calibration(c)
            memory = plan_memory(spec, deployment, usable, self._contexts(), log, layout=pages, weight=weight)
            self.memories[key] = memory
        if memory.fit == "no":
            raise Refused("memory", memory.reasons[0])
        return Fitting(c, memory, support, self._request(c, memory, deployment))

    def _check_layout(self, spec: ModelSpec, c: Candidate, deployment: Deployment) -> None:
        try:
            check_split(spec, c.layout.tp)
        except UsageError as error:
            raise Refused("heads", error.message) from None
        if c.layout.pp > len(spec.layers):
            raise Refused("heads", f"{len(spec.layers)} layers cannot be split over {c.layout.pp} stages.")
        uneven = cut_through(spec, deployment)
        if uneven:
            raise Refused("precision", uneven)
        if c.layout.tp * c.layout.dp > reach(c.chip) and c.layout.tp > reach(c.chip):
            raise Refused(
                "interconnect", f"TP{c.layout.tp} would cross the network: {c.chip.name} joins {reach(c.chip)}."
            )
        if c.chip.links.server.value == 1 and c.count > reach(c.chip) and c.layout.tp > 1:
            raise Refused("interconnect", f"{c.chip.name} has one accelerator a machine.")

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
        wanted = (need.typical_tokens, round(need.input_tokens + need.output_tokens))
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
    money = one.money
    per_unit = math.inf if money is None else money.per_unit.expected
    cost = float(f"{per_unit:.3g}")
    changed = not one.candidate.as_stored
    bits = -one.candidate.bits
    slack = -one.memory.sessions[-1].count.expected / one.accelerators
    return (
        _ORDER[one.state],
        math.isinf(cost),
        cost,
        *((one.accelerators, changed) if one.capacity is not None else (changed, one.accelerators)),
        bits,
        one.candidate.kv_dtype != "auto",
        slack,
    )
