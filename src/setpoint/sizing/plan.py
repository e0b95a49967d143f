"""The memory plan of one deployment on one kind of device: terms, pool, the engine's own lines, and true capacity."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from setpoint.models.spec import ModelSpec
from setpoint.sizing import overheads
from setpoint.sizing.calibration import Calibration
from setpoint.sizing.deployment import Deployment, has_states
from setpoint.sizing.overheads import GIB
from setpoint.sizing.sglang_pool import Pools, pools_of
from setpoint.sizing.shards import stage_weight_bytes
from setpoint.sizing.term import Range, Term, left_over
from setpoint.sizing.vllm_pool import Layout, Pool, blocks_of_request, layout_of, longest_context, pool_of

Fit = Literal["yes", "no", "uncertain"]


@dataclass(frozen=True, slots=True)
class Sessions:
    """How many sequences of one length are held at once by the whole deployment.

    Attributes:
        context: Tokens of each sequence.
        count: Sequences, over all data-parallel copies.
        limit: ``memory`` or ``max_num_seqs``.
    """

    context: int
    count: Range
    limit: str


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What a deployment needs on each rank, and what it can hold.

    Attributes:
        deployment: As asked.
        device_bytes: Memory of one device, as its driver reports it.
        budget_bytes: What the engine may use of it.
        terms: What is taken from the budget before the cache.
        outside: What is taken from the rest of the device.
        kv: Bytes that are left for the cache of a rank; negative when they are missing.
        headroom: Bytes of the device that stay free when everything runs; negative when they are missing.
        fit: Whether one request of ``max_model_len`` fits: ``uncertain`` when the range decides.
        pool: The expected pool; None when nothing is left for it.
        printed_tokens: The size of the cache as the engine prints it, with the range of ``kv``.
        log_lines: What the engine will print, at the expected values.
        token_capacity: Tokens that sequences of ``max_model_len`` can really hold.
        sessions: Sequences held, at the lengths asked for.
        longest_request: Longest single request that fits; 0 when none does.
        reasons: What does not fit, or may not, in sentences.
    """

    deployment: Deployment
    device_bytes: float
    budget_bytes: float
    terms: tuple[Term, ...]
    outside: tuple[Term, ...]
    kv: Range
    headroom: Range
    fit: Fit
    pool: Pool | Pools | None
    printed_tokens: Range
    log_lines: tuple[str, ...]
    token_capacity: Range
    sessions: tuple[Sessions, ...]
    longest_request: int
    reasons: tuple[str, ...]


def plan_memory(
    spec: ModelSpec,
    deployment: Deployment,
    device_bytes: float,
    contexts: Sequence[int] = (),
    calibration: Calibration | None = None,
    *,
    layout: Layout | None = None,
    weight: float | None = None,
) -> MemoryPlan:
    """The memory plan.

    Args:
        spec: The model.
        deployment: How it is run.
        device_bytes: Memory of one device as the driver reports it, in bytes.
        contexts: Lengths to give session counts for; ``max_model_len`` is always among them.
        calibration: Terms solved from a log of the same stack; they replace the assumed ones.
        layout: As ``layout_of`` gives it for this spec and deployment, when it is at hand.
        weight: Bytes of weights on the heaviest rank, when they are at hand.

    Raises:
        UsageError: the deployment cannot be (heads, stages, versions).
    """
    weights = weight_term(spec, deployment, weight)
    taken, outside, budget = _accounts(spec, deployment, device_bytes, weights, calibration)
    kv = left_over(budget, taken)
    batch = overheads.batched_tokens(deployment, device_bytes)
    holds = _Holder(spec, deployment, batch, overheads.sequences(deployment, device_bytes), layout)
    lengths = sorted({deployment.max_model_len, *contexts})
    sessions = tuple(holds.sessions(kv, length) for length in lengths)
    at_longest = next(one for one in sessions if one.context == deployment.max_model_len)
    fit: Fit = "uncertain"
    if at_longest.count.low >= 1:
        fit = "yes"
    elif at_longest.count.high < 1:
        fit = "no"
    spare = left_over(device_bytes - budget, outside)
    printed, longest = holds.printed(kv), holds.longest(kv.expected)
    pool = holds.pool(kv.expected)
    return MemoryPlan(
        deployment,
        device_bytes,
        budget,
        taken,
        outside,
        kv,
        spare,
        fit,
        pool,
        printed,
        _lines(deployment, weights, kv, pool),
        holds.tokens(kv),
        sessions,
        longest,
        _reasons(fit, kv, spare, deployment, longest),
    )


def weight_term(spec: ModelSpec, deployment: Deployment, size: float | None = None) -> Term:
    """Weights of the heaviest rank; loaders add buffers.

    Logs: 0.01 to 0.1 GiB, up to 1.5% with repacking; MXFP4 experts 2.5% more under Marlin than under Triton kernels.
    """
    size = max(stage_weight_bytes(spec, deployment)) if size is None else size
    inexact = sum(tower.parameters for tower in spec.towers if not tower.exact)
    slack = 0.2 * inexact * spec.precision.unquantized.bytes_per_weight / deployment.tp
    spread = 1.035 if any(one.format.name == "mxfp4" for one in spec.stored) else 1.02
    top = Range(size - slack, size + 0.03 * GIB, size * spread + 0.1 * GIB + slack)
    return Term("weights", top, "computed", f"{spec.parameters / 1e9:.1f}B parameters as stored, split over ranks")


def _accounts(
    spec: ModelSpec, deployment: Deployment, device_bytes: float, weights: Term, calibration: Calibration | None
) -> tuple[tuple[Term, ...], tuple[Term, ...], float]:
    """Terms inside and outside the budget, and the budget."""
    known = {} if calibration is None else {term.name: term for term in calibration.terms}
    activations = known.get("activations") or overheads.activations(spec, deployment, device_bytes)
    other = known.get("non_torch") or overheads.non_torch(deployment)
    graphs = known.get("graphs") or overheads.graphs(deployment)
    weights = known.get("weights") or weights
    worn = overheads.fragmentation(device_bytes)
    context = known.get("context") or overheads.context(deployment)
    if deployment.engine.name == "sglang":
        # The pool is what loading left above (1 - fraction) of what was available before: activations and graphs
        # must fit into that remainder.
        free = device_bytes - context.size.expected
        return (weights,), (context, activations, other, graphs, worn), free * deployment.utilization
    budget = device_bytes * deployment.utilization
    inside = (weights, activations, other)
    if deployment.engine.charges_graphs:
        return (*inside, graphs), (context, worn), budget
    return inside, (context, graphs, worn), budget


class _Holder:
    """What bytes for the cache become, by engine."""

    def __init__(self, spec: ModelSpec, deployment: Deployment, batch: int, seats: int, layout: Layout | None) -> None:
        self.spec, self.deployment, self.batch, self.seats = spec, deployment, batch, seats
        self.is_vllm = deployment.engine.name == "vllm"
        self.layout = (layout or layout_of(spec, deployment)) if self.is_vllm else None

    def pool(self, kv_bytes: float) -> Pool | Pools | None:
        if kv_bytes <= 0:
            return None
        if self.is_vllm:
            return pool_of(self.spec, self.deployment, kv_bytes, self.batch, self.layout)
        share = self.deployment.state_share if has_states(self.spec) else 0.0
        kept = kv_bytes / (1 + share)
        return pools_of(self.spec, self.deployment, kept, kv_bytes - kept)

    def printed(self, kv: Range) -> Range:
        def of(size: float) -> float:
            pool = self.pool(size)
            if pool is None:
                return 0
            return pool.printed_tokens if isinstance(pool, Pool) else pool.tokens

        return Range(of(kv.low), of(kv.expected), of(kv.high))

    def count(self, kv_bytes: float, context: int) -> int:
        """Sequences of one data-parallel copy that memory holds while they decode."""
        pool = self.pool(kv_bytes)
        if pool is None:
            return 0
        if isinstance(pool, Pool):
            if not pool.groups:
                return self.seats
            each = blocks_of_request(pool.groups, context, self.spec, self.deployment, 1)
            prefill = blocks_of_request(pool.groups, context, self.spec, self.deployment, self.batch) - each
            # One block is the null block; one request at a time is being prefilled and holds more of its windows.
            return max(0, (pool.blocks - 1 - prefill) // each)
        held = pool.tokens // context if pool.token_bytes else self.seats
        if pool.window_tokens:
            held = min(held, pool.window_tokens // min(context, self.window() + self.batch))
        return min(held, pool.state_slots) if has_states(self.spec) else held

    def window(self) -> int:
        return max((getattr(layer.mixer, "window", 0) for layer in self.spec.layers), default=0)

    def sessions(self, kv: Range, context: int) -> Sessions:
        found = [self.count(size, context) for size in (kv.low, kv.expected, kv.high)]
        seats, copies = self.seats, self.deployment.dp
        limit = "max_num_seqs" if self.is_vllm and found[1] > seats else "memory"
        low, expected, high = (min(one, seats) if self.is_vllm else one for one in found)
        return Sessions(context, Range(low * copies, expected * copies, high * copies), limit)

    def tokens(self, kv: Range) -> Range:
        longest = self.deployment.max_model_len
        low, expected, high = (self.count(size, longest) * longest for size in (kv.low, kv.expected, kv.high))
        return Range(low, expected, high).map(self.deployment.dp)

    def longest(self, kv_bytes: float) -> int:
        if kv_bytes <= 0:
            return 0
        if self.is_vllm:
            return longest_context(self.spec, self.deployment, kv_bytes, self.batch, self.layout)
        pool = self.pool(kv_bytes)
        assert isinstance(pool, Pools)
        return min(pool.tokens, self.deployment.max_model_len)


def _lines(deployment: Deployment, weights: Term, kv: Range, pool: Pool | Pools | None) -> tuple[str, ...]:
    loaded = weights.size.expected / GIB
    if isinstance(pool, Pool):
        longest = f"{deployment.max_model_len:,}"
        share = f"Maximum concurrency for {longest} tokens per request: {pool.printed_concurrency:.2f}x"
        if deployment.engine.is_v0:
            return (f"# GPU blocks: {pool.blocks}", share)
        return (
            f"Model loading took {loaded:.2f} GiB",
            f"Available KV cache memory: {kv.expected / GIB:.2f} GiB",
            f"GPU KV cache size: {pool.printed_tokens:,} tokens",
            share,
        )
    if isinstance(pool, Pools):
        size = pool.tokens * pool.token_bytes / deployment.dcp / GIB
        half = f"K size: {size / 2:.2f} GB, V size: {size / 2:.2f} GB"
        lines = [f"KV Cache is allocated. #tokens: {pool.tokens}, {half}", f"max_total_num_tokens={pool.tokens}"]
        if pool.state_slots:
            lines.insert(0, f"Mamba Cache is allocated. max_mamba_cache_size: {pool.state_slots}")
        return tuple(lines)
    return (f"Available KV cache memory: {kv.expected / GIB:.2f} GiB",)


def _reasons(fit: Fit, kv: Range, spare: Range, deployment: Deployment, longest: int) -> tuple[str, ...]:
    found = []
    if kv.expected <= 0:
        found.append(f"Weights and buffers exceed the budget by {-kv.expected / GIB:.1f} GiB a rank.")
    elif fit == "no":
        found.append(f"One request of {deployment.max_model_len:,} tokens does not fit; {longest:,} tokens would.")
    elif fit == "uncertain":
        found.append(f"Between {kv.low / GIB:.1f} and {kv.high / GIB:.1f} GiB are left for the cache: it may not fit.")
    if spare.expected < 0:
        found.append(f"Outside the budget {-spare.expected / GIB:.1f} GiB are missing: lower the utilization.")
    elif spare.low < 0:
        found.append(f"Outside the budget up to {-spare.low / GIB:.1f} GiB may be missing: out of memory under load.")
    return tuple(found)
