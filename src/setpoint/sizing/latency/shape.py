"""What a latency estimate needs to know of a model: parameters, cache and attention work by kind of layer."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from setpoint.errors import UsageError
from setpoint.hardware import Precision


@dataclass(frozen=True, slots=True)
class Encoding:
    """How the weights of a component are stored, and the precision its products are computed in where a chip can.

    Attributes:
        bytes_per_parameter: Including the scales of its blocks.
        precision: Of the operands of the matrix product.
    """

    bytes_per_parameter: float
    precision: Precision


ENCODINGS: Mapping[str, Encoding] = MappingProxyType(
    {
        "fp32": Encoding(4.0, "bf16"),
        "bf16": Encoding(2.0, "bf16"),
        "fp16": Encoding(2.0, "fp16"),
        "fp8": Encoding(1.0, "fp8"),
        "fp8_block": Encoding(1.0 + 4 / 128**2, "fp8"),
        "int8": Encoding(1.0, "int8"),
        "nvfp4": Encoding(0.5 + 1 / 16, "fp4"),
        "mxfp4": Encoding(0.5 + 1 / 32, "fp4"),
        "int4": Encoding(0.5 + 2 / 128, "bf16"),
    }
)
"""Weights by name. Block scales: FP8 one FP32 for 128 × 128, NVFP4 one FP8 for 16, MXFP4 one E8M0 for 32, INT4 one
FP16 for 128; INT4 is weight-only, its products are in BF16."""


def encoding(name: str) -> Encoding:
    """The encoding of that name.

    Raises:
        UsageError: unknown, with those that are known.
    """
    if name not in ENCODINGS:
        raise UsageError(f"Weights stored as {name!r} are not known; expected one of {', '.join(ENCODINGS)}.")
    return ENCODINGS[name]


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Equal layers of a model.

    Attributes:
        count: How many.
        attention_parameters: Of the projections of one layer, output projection included.
        cache_elements: Elements a token leaves in the cache of one layer, all heads, keys and values.
        cache_heads: Heads that tensor parallelism can divide the cache by; 1 for a latent that each rank holds whole.
        decode_operations: Operations of attention per new token and token of context while decoding.
        prefill_operations: The same while prefilling (a latent is expanded then, so it is cheaper).
        window: Tokens of context attention looks at, or None for all of it (sliding windows, selected top-k).
        scanned_elements: Elements per token of context read to select which tokens are attended (sparse attention).
        scanned_operations: Operations per new token and token of context of that selection.
        state_bytes: State read and written per sequence and step (linear attention, Mamba); 0 without.
        dense_parameters: Of the dense MLP or the shared experts, active for every token.
        expert_parameters: Of one routed expert; 0 without.
        experts: Routed experts.
        experts_per_token: Of which a token is sent to.
    """

    count: int
    attention_parameters: float
    cache_elements: float = 0.0
    cache_heads: int = 1
    decode_operations: float = 0.0
    prefill_operations: float = 0.0
    window: int | None = None
    scanned_elements: float = 0.0
    scanned_operations: float = 0.0
    state_bytes: float = 0.0
    dense_parameters: float = 0.0
    expert_parameters: float = 0.0
    experts: int = 0
    experts_per_token: int = 0


@dataclass(frozen=True, slots=True)
class Shape:
    """A model as the latency estimate sees it.

    Attributes:
        name: For messages.
        layers: Its kinds of layers.
        hidden: Width of the residual stream.
        vocabulary: Rows of the output matrix.
        attention: Encoding of the attention projections.
        dense: Encoding of dense MLPs and shared experts.
        experts: Encoding of routed experts.
        head: Encoding of the output matrix.
        cache_bytes: Bytes of one cache element.
        draft_layers: Layers of the built-in draft (multi-token prediction); 0 without.
    """

    name: str
    layers: tuple[LayerKind, ...]
    hidden: int
    vocabulary: int
    attention: Encoding = ENCODINGS["bf16"]
    dense: Encoding = ENCODINGS["bf16"]
    experts: Encoding = ENCODINGS["bf16"]
    head: Encoding = ENCODINGS["bf16"]
    cache_bytes: float = 2.0
    draft_layers: int = 0

    @property
    def depth(self) -> int:
        """Number of layers."""
        return sum(kind.count for kind in self.layers)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights that a step may read, the input embedding left out (one row a token is read of it)."""
        per_layer = sum(
            k.count
            * (
                k.attention_parameters * self.attention.bytes_per_parameter
                + k.dense_parameters * self.dense.bytes_per_parameter
                + k.experts * k.expert_parameters * self.experts.bytes_per_parameter
            )
            for k in self.layers
        )
        return per_layer + self.hidden * self.vocabulary * self.head.bytes_per_parameter
