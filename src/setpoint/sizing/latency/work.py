"""The work of one engine step on one accelerator, component by component, as seconds at its peak rates.

Nothing here is fitted: bytes over datasheet bandwidth, operations over datasheet rate, counts of kernels and
collectives. How far from the peak a real engine stays is the matter of ``service``.
"""

import math
from dataclasses import astuple, dataclass

from setpoint.errors import UsageError
from setpoint.hardware import Accelerator
from setpoint.sizing.latency.shape import LayerKind, Shape

ACTIVATION_BYTES = 2.0


@dataclass(frozen=True, slots=True)
class Split:
    """How a model is spread over accelerators.

    Attributes:
        accelerators: In one replica.
        attention_data: Data-parallel ranks of attention; each holds its sequences and the whole attention weights.
        pipeline: Stages.
        expert: Whether experts are placed whole (expert parallelism) or each cut over the ranks.
    """

    accelerators: int
    attention_data: int = 1
    pipeline: int = 1
    expert: bool = False

    def __post_init__(self) -> None:
        if min(self.accelerators, self.attention_data, self.pipeline) < 1:
            raise UsageError("A placement counts accelerators, data-parallel ranks and stages from 1.")
        if self.accelerators % (self.attention_data * self.pipeline):
            raise UsageError(
                f"{self.accelerators} accelerators cannot be divided into {self.pipeline} stages of "
                f"{self.attention_data} data-parallel ranks."
            )

    @property
    def stage(self) -> int:
        """Accelerators of one stage."""
        return self.accelerators // self.pipeline

    @property
    def tensor(self) -> int:
        """Ranks that share the attention of one sequence."""
        return self.stage // self.attention_data


@dataclass(frozen=True, slots=True)
class Work:
    """One step on one accelerator of the busiest rank. Names in ``_s`` are seconds at peak; the others are counts.

    Attributes:
        weights_s: Reading dense and attention weights and the output matrix.
        experts_s: Reading the experts that the step's tokens reach.
        cache_s: Reading keys, values and state of the context.
        dense_s: Dense products, at the rate of their precision.
        routed_s: Products of routed experts.
        attention_s: Products of attention with its context, in BF16.
        reduced_s: Bytes of collectives over the link.
        reduced_steps: Collectives times the logarithm of their ranks.
        layers: Layers passed.
        routed_layers: Of which with routed experts.
        state_layers: Of which with linear attention or state.
        tokens: New tokens of the step on one attention rank.
    """

    weights_s: float
    experts_s: float
    cache_s: float
    dense_s: float
    routed_s: float
    attention_s: float
    reduced_s: float
    reduced_steps: float
    layers: float
    routed_layers: float
    state_layers: float
    tokens: float

    def values(self) -> tuple[float, ...]:
        """All fields in order."""
        return astuple(self)


def coverage(experts: int, per_token: int, tokens: float) -> float:
    """Expected number of distinct experts that ``tokens`` tokens reach when each picks ``per_token`` evenly."""
    return experts * -math.expm1(tokens * math.log1p(-per_token / experts)) if per_token < experts else float(experts)


def step(
    shape: Shape,
    accelerator: Accelerator,
    split: Split,
    *,
    tokens: float,
    sequences: float,
    context: float,
    prefill: bool,
) -> Work:
    """The work of one step.

    Args:
        shape: The model.
        accelerator: Each of the accelerators.
        split: Placement.
        tokens: New tokens on one attention rank.
        sequences: Sequences they belong to; a token of output is computed for each.
        context: Tokens of context each new token attends to, on average.
        prefill: Whether the tokens are a prompt's.
    """
    terms = [_layers(kind, shape, accelerator, split, tokens, sequences, context, prefill) for kind in shape.layers]
    total = [sum(column) for column in zip(*terms, strict=True)]
    ranks = split.stage
    head = shape.hidden * shape.vocabulary
    head_s = head * shape.head.bytes_per_parameter / ranks / accelerator.bandwidth_bytes_per_s.value
    head_operations = 2 * head * sequences * split.attention_data / ranks
    depth = shape.depth
    return Work(
        weights_s=total[0] + head_s,
        experts_s=total[1],
        cache_s=total[2],
        dense_s=total[3] + head_operations / accelerator.rate(shape.head.precision).value,
        routed_s=total[4],
        attention_s=total[5],
        reduced_s=total[6],
        reduced_steps=total[7],
        layers=depth,
        routed_layers=sum(k.count for k in shape.layers if k.experts),
        state_layers=sum(k.count for k in shape.layers if k.state_bytes),
        tokens=tokens,
    )


def _layers(
    kind: LayerKind,
    shape: Shape,
    chip: Accelerator,
    split: Split,
    tokens: float,
    sequences: float,
    context: float,
    prefill: bool,  # noqa: FBT001
) -> tuple[float, ...]:
    bandwidth = chip.bandwidth_bytes_per_s.value
    ranks, tensor, n = split.stage, split.tensor, kind.count
    everywhere = tokens * split.attention_data
    attended = min(context, kind.window) if kind.window else context
    cache_share = max(1 / tensor, 1 / kind.cache_heads)
    # A prompt's attention reads each tile of its context once for many of its tokens.
    readers = sequences if prefill else tokens
    cache = readers * (attended * kind.cache_elements * cache_share + context * kind.scanned_elements)
    cache_bytes = cache * shape.cache_bytes + 2 * sequences * kind.state_bytes / tensor
    attention = kind.attention_parameters / tensor
    dense = kind.dense_parameters / ranks
    per_token = kind.prefill_operations if prefill else kind.decode_operations
    operations = tokens * (attended * per_token + context * kind.scanned_operations) / tensor
    experts_bytes = routed = 0.0
    if kind.experts:
        reached = coverage(kind.experts, kind.experts_per_token, everywhere)
        experts_bytes = reached * kind.expert_parameters * shape.experts.bytes_per_parameter / ranks
        routed = 2 * everywhere * kind.experts_per_token * kind.expert_parameters / ranks
    exchanged, exchanges = _collectives(kind, shape, split, tokens)
    return (
        n * (attention * shape.attention.bytes_per_parameter + dense * shape.dense.bytes_per_parameter) / bandwidth,
        n * experts_bytes / bandwidth,
        n * cache_bytes / bandwidth,
        n
        * 2
        * (
            tokens * attention / chip.rate(shape.attention.precision).value
            + everywhere * dense / chip.rate(shape.dense.precision).value
        ),
        n * routed / chip.rate(shape.experts.precision).value,
        n * operations / chip.rate("bf16").value,
        n * exchanged / chip.links.slowest(ranks),
        n * exchanges,
    )


def _collectives(kind: LayerKind, shape: Shape, split: Split, tokens: float) -> tuple[float, float]:
    """Bytes one rank sends in one layer, and its collectives times the logarithm of the ranks."""
    if split.stage == 1:
        return 0.0, 0.0
    row = shape.hidden * ACTIVATION_BYTES
    volume = steps = 0.0
    if split.tensor > 1:
        # An all-reduce after attention and, unless attention is data-parallel, one after the MLP.
        reduces = 1 if split.attention_data > 1 else 2
        volume += reduces * 2 * (split.tensor - 1) / split.tensor * tokens * row
        steps += reduces * math.log2(split.tensor)
    if split.attention_data > 1:
        # Tokens are gathered to the ranks that hold their experts and scattered back.
        copies = min(kind.experts_per_token, split.stage) if split.expert and kind.experts else split.attention_data
        volume += 2 * tokens * row * copies * (split.stage - 1) / split.stage
        steps += 2 * math.log2(split.stage)
    return volume, steps
