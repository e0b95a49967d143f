"""What a latency estimate needs to know of a model: matrices, cache, attention work and kernels by kind of layer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from setpoint.hardware import Precision


@dataclass(frozen=True, slots=True)
class Matrices:
    """Weights that are read together.

    Attributes:
        size: Bytes as stored, scales included.
        parameters: How many are multiplied in each precision (of the operands, on a chip that has it).
    """

    size: float = 0.0
    parameters: Mapping[Precision, float] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def total(self) -> float:
        """Parameters in any precision."""
        return sum(self.parameters.values())

    @property
    def quantized(self) -> bool:
        """Whether activations are converted before the product, which is one kernel more."""
        return bool({"fp8", "fp4", "int8"} & set(self.parameters))


def matrices(parameters: float, bytes_per_parameter: float = 2.0, precision: Precision = "bf16") -> Matrices:
    """Matrices of one encoding."""
    return Matrices(parameters * bytes_per_parameter, MappingProxyType({precision: parameters}))


NOTHING = Matrices()


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Equal layers of a model.

    Attributes:
        count: How many.
        attention: Projections that tensor parallelism divides, output projection included.
        replicated: Matrices that each rank holds whole: down projections of a latent, indexer, router.
        dense: Dense MLP and shared experts: every token passes them.
        expert: One routed expert.
        experts: Routed experts.
        experts_per_token: Of which a token is sent to.
        cache_elements: Elements a token leaves in the cache of one layer, all heads, keys and values.
        cache_heads: Heads that tensor parallelism can divide the cache by; 1 for a latent that each rank holds whole.
        decode_operations: Operations of attention per new token and token of context while decoding.
        prefill_operations: The same while prefilling (a latent is expanded then, so it is cheaper).
        window: Tokens of context that attention looks at; None for all of them.
        scanned_elements: Elements per token of context that are read to choose the attended ones (sparse attention).
        scanned_operations: Operations of that choice per new token and token of context.
        state_bytes: State of one sequence, read and written each step (linear attention, Mamba).
        kernels: Kernels launched in one layer, those of activation quantization left out.
    """

    count: int
    attention: Matrices = NOTHING
    replicated: Matrices = NOTHING
    dense: Matrices = NOTHING
    expert: Matrices = NOTHING
    experts: int = 0
    experts_per_token: int = 0
    cache_elements: float = 0.0
    cache_heads: int = 1
    decode_operations: float = 0.0
    prefill_operations: float = 0.0
    window: int | None = None
    scanned_elements: float = 0.0
    scanned_operations: float = 0.0
    state_bytes: float = 0.0
    kernels: int = 0

    @property
    def launches(self) -> int:
        """Kernels launched in one layer."""
        return self.kernels + self.attention.quantized + (self.dense.quantized or self.expert.quantized)


@dataclass(frozen=True, slots=True)
class Shape:
    """A model as the latency estimate sees it.

    Attributes:
        name: For messages.
        layers: Its kinds of layers.
        hidden: Width of the residual stream.
        head: Output matrix.
        cache_bytes: Bytes of one cache element.
        draft_layers: Built-in draft layers (multi-token prediction).
    """

    name: str
    layers: tuple[LayerKind, ...]
    hidden: int
    head: Matrices
    cache_bytes: float = 2.0
    draft_layers: int = 0

    @property
    def depth(self) -> int:
        """Number of layers."""
        return sum(kind.count for kind in self.layers)

    @property
    def launches(self) -> int:
        """Kernels launched in one pass."""
        return sum(kind.count * kind.launches for kind in self.layers)

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights a step may read: no input embedding, of which a token reads one row."""
        return self.head.size + sum(
            k.count * (k.attention.size + k.replicated.size + k.dense.size + k.experts * k.expert.size)
            for k in self.layers
        )
