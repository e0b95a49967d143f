"""The work of one engine step on one accelerator, component by component, as seconds at its peak rates.

Nothing here is fitted: bytes over datasheet bandwidth, operations over datasheet rate, counts of kernels and
collectives. How far from the peak a real engine stays is the matter of ``tuned`` and ``service``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from setpoint.errors import UsageError
from setpoint.hardware import Accelerator
from setpoint.sizing.deployment import Deployment
from setpoint.sizing.latency.shape import LayerKind, Matrices, Shape

FloatArray = NDArray[np.float64]
N = TypeVar("N", float, FloatArray)
ACTIVATION_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Split:
    """How one replica is spread over accelerators.

    Attributes:
        tp: Ranks that share the attention of one sequence.
        dp: Data-parallel ranks of attention; each holds its own sequences and whole attention weights.
        pp: Pipeline stages.
        expert: Whether experts are placed whole (expert parallelism) or each is cut over the ranks.
    """

    tp: int = 1
    dp: int = 1
    pp: int = 1
    expert: bool = False

    def __post_init__(self) -> None:
        for name in ("tp", "dp", "pp"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, expected at least 1.")

    @property
    def stage(self) -> int:
        """Accelerators of one pipeline stage."""
        return self.tp * self.dp

    @property
    def accelerators(self) -> int:
        """Accelerators of the replica."""
        return self.stage * self.pp


def split_of(deployment: Deployment) -> Split:
    """The split of a deployment."""
    return Split(deployment.tp, deployment.dp, deployment.pp, deployment.expert_parallel)


@dataclass(frozen=True, slots=True)
class Work(Generic[N]):
    """One step on one accelerator. Names in ``_s`` are seconds at peak; the others are counts.

    Attributes:
        weights_s: Reading attention and dense weights and the output matrix.
        experts_s: Reading the experts that the step's tokens reach.
        cache_s: Reading keys, values and state of the context.
        wide_s: Dense products in 16 bits.
        eight_s: Dense products in 8 bits.
        four_s: Dense products in 4 bits.
        routed_s: Products of routed experts.
        row_s: Products of one further row for each expert reached: kernels round rows up to tiles.
        attention_s: Products of attention with its context, in BF16.
        reduced_s: Bytes of collectives over the link.
        reduced_steps: Collectives times the logarithm of their ranks.
        pass_s: One pass over the activations of all layers.
        launches: Kernels.
        tokens: New tokens on one attention rank.
    """

    weights_s: N
    experts_s: N
    cache_s: N
    wide_s: N
    eight_s: N
    four_s: N
    routed_s: N
    row_s: N
    attention_s: N
    reduced_s: N
    reduced_steps: N
    pass_s: N
    launches: N
    tokens: N


def stack(works: Sequence[Work[float]]) -> Work[FloatArray]:
    """Many steps as columns."""
    names = [field.name for field in fields(Work)]
    table = np.array([[getattr(work, name) for name in names] for work in works], dtype=np.float64)
    return Work(*table.reshape(len(works), len(names)).T)


def coverage(experts: int, per_token: int, tokens: N) -> N:
    """Expected number of distinct experts that tokens reach when each picks ``per_token`` of them evenly."""
    missed = math.log1p(-per_token / experts) if per_token < experts else -math.inf
    return -experts * np.expm1(tokens * missed)  # type: ignore[no-any-return]


def step(
    shape: Shape,
    accelerator: Accelerator,
    split: Split,
    *,
    tokens: N,
    sequences: N,
    context: float,
    prefill: bool,
) -> Work[N]:
    """The work of one pass through the whole model, or of passes with several numbers of tokens at once.

    Args:
        shape: The model.
        accelerator: Each of the accelerators.
        split: Placement of a replica.
        tokens: New tokens on one attention rank.
        sequences: Sequences they belong to. A prompt needs one row of output, decoding one for each token.
        context: Tokens of context each new token attends to, on average.
        prefill: Whether the tokens are a prompt's.
    """
    rows = [_layers(k, shape, accelerator, split, tokens, sequences, context, prefill) for k in shape.layers]
    total = [sum(column) for column in zip(*rows, strict=True)]
    bandwidth = accelerator.bandwidth_bytes_per_s.value
    none = tokens * 0.0
    scored = sequences if prefill else tokens
    head = _products(shape.head, scored * split.dp / split.stage, accelerator)
    hop = tokens * shape.hidden * ACTIVATION_BYTES / accelerator.links.slowest(split.accelerators)
    return Work(
        weights_s=none + total[0] + shape.head.size / split.stage / bandwidth,
        experts_s=none + total[1],
        cache_s=none + total[2],
        wide_s=none + total[3] + head[0],
        eight_s=none + total[4] + head[1],
        four_s=none + total[5] + head[2],
        routed_s=none + total[6],
        row_s=none + total[7],
        attention_s=none + total[8],
        reduced_s=none + total[9] + (split.pp - 1) * hop,
        reduced_steps=none + total[10] + (split.pp - 1),
        pass_s=shape.depth * tokens * shape.hidden * ACTIVATION_BYTES / bandwidth,
        launches=none + shape.launches,
        tokens=tokens,
    )


def _products(weights: Matrices, rows: N, chip: Accelerator) -> tuple[N | float, N | float, N | float]:
    """Seconds at peak for ``rows`` rows through matrices, in 16, 8 and 4 bits as the chip computes them."""
    seconds: list[N | float] = [0.0, 0.0, 0.0]
    for precision, parameters in weights.parameters.items():
        used = chip.computes_in(precision)
        slot = {"fp8": 1, "int8": 1, "fp4": 2}.get(used, 0)
        seconds[slot] += 2 * rows * parameters / chip.flops[used].value
    return seconds[0], seconds[1], seconds[2]


def _layers(
    kind: LayerKind,
    shape: Shape,
    chip: Accelerator,
    split: Split,
    tokens: N,
    sequences: N,
    context: float,
    prefill: bool,  # noqa: FBT001 - one call, by position
) -> tuple[N | float, ...]:
    bandwidth = chip.bandwidth_bytes_per_s.value
    everywhere = tokens * split.dp
    attended = min(context, kind.window) if kind.window else context
    share = max(1 / split.tp, 1 / kind.cache_heads)
    # The tokens of one sequence read its context together: those of a prompt, and drafts with the token they follow.
    cache = sequences * (attended * kind.cache_elements * share + context * kind.scanned_elements) * shape.cache_bytes
    cache += 2 * sequences * kind.state_bytes / split.tp
    per_token = kind.prefill_operations if prefill else kind.decode_operations
    attention = tokens * (attended * per_token + context * kind.scanned_operations) / split.tp
    products: tuple[tuple[N | float, ...], ...] = (
        _products(kind.attention, tokens / split.tp, chip),
        _products(kind.replicated, tokens, chip),
        _products(kind.dense, everywhere / split.stage, chip),
    )
    experts: N | float = 0.0
    routed: N | float = 0.0
    row: N | float = 0.0
    if kind.experts:
        reached = coverage(kind.experts, kind.experts_per_token, everywhere)
        experts = reached * kind.expert.size / split.stage
        row = sum(_products(kind.expert, reached / split.stage, chip))
        routed = sum(_products(kind.expert, everywhere * kind.experts_per_token / split.stage, chip))
    sent, steps = _collectives(kind, shape, split, tokens)
    one = (
        (kind.attention.size / split.tp + kind.replicated.size + kind.dense.size / split.stage) / bandwidth,
        experts / bandwidth,
        cache / bandwidth,
        *(a + b + c for a, b, c in zip(*products, strict=True)),
        routed,
        row,
        attention / chip.rate("bf16").value,
        sent / chip.links.slowest(split.stage),
        steps,
    )
    return tuple(kind.count * value for value in one)


def _collectives(kind: LayerKind, shape: Shape, split: Split, tokens: N) -> tuple[N | float, float]:
    """Bytes that one rank sends in one layer, and its collectives times the logarithm of the ranks."""
    if split.stage == 1:
        return 0.0, 0.0
    row = shape.hidden * ACTIVATION_BYTES
    sent: N | float = 0.0
    steps = 0.0
    if split.tp > 1:
        # An all-reduce after attention and, unless attention is data-parallel, one after the MLP.
        reduces = 1 if split.dp > 1 else 2
        sent += reduces * 2 * (split.tp - 1) / split.tp * tokens * row
        steps += reduces * math.log2(split.tp)
    if split.dp > 1:
        # Tokens go to the ranks that hold their experts and come back.
        copies = min(kind.experts_per_token, split.stage) if split.expert and kind.experts else split.dp
        sent += 2 * tokens * row * copies * (split.stage - 1) / split.stage
        steps += 2 * math.log2(split.stage)
    return sent, steps
