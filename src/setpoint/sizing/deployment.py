"""How a model is to be run: engine, split over ranks, and the knobs that decide about memory."""

from dataclasses import dataclass

from setpoint.errors import UsageError
from setpoint.models.layer import Attention, LatentAttention, Layer, Recurrent
from setpoint.models.spec import ModelSpec
from setpoint.sizing.engine import Engine


@dataclass(frozen=True, slots=True)
class Deployment:
    """One replica (and how many of it).

    Attributes:
        engine: Engine and version.
        max_model_len: Longest sequence that one request may reach, in tokens.
        tp: Tensor-parallel ranks.
        pp: Pipeline stages.
        dp: Data-parallel copies of the attention layers.
        expert_parallel: Experts are dealt out whole over tp * dp ranks rather than sliced.
        dcp: Decode-context-parallel ranks: one sequence's keys are dealt out over so many of the tp ranks.
        stage_layers: Layers of each pipeline stage; empty: as the engine divides them.
        utilization: vLLM's ``gpu_memory_utilization`` or SGLang's ``mem_fraction_static``.
        kv_dtype: ``auto``, ``bfloat16``, ``float16``, ``fp8``, ``fp8_e5m2``, ``fp8_ds_mla``, ``int8`` or ``nvfp4``.
        state_dtype: Element type of recurrent states; empty: what the model asks for.
        block_tokens: Tokens per block (vLLM) or page (SGLang); None: the engine's default.
        block_step: What vLLM rounds the blocks of recurrent hybrids up to; None: 16, or 64 for MLA. Some kernels need
            more (32 for FlashInfer on Blackwell with heads of 256, 128 for CUTLASS MLA).
        max_num_batched_tokens: Tokens of one step; None: the engine's default.
        max_num_seqs: Sequences of one step; None: the engine's default.
        prefix_caching: None: the engine's default.
        speculative_tokens: Draft tokens per step; 0 without speculation.
        draft_layers: MTP layers of the model that draft; they keep keys and values like the others.
        graphs: CUDA graphs are captured.
        hybrid_manager: vLLM's hybrid KV cache manager; False keeps everything for windows too, as with most KV
            connectors. None: on where the version has it, but for chunked attention only from 0.16.
        window_share: SGLang's ``swa_full_tokens_ratio``.
        state_share: SGLang's ``mamba_full_memory_ratio``.
    """

    engine: Engine
    max_model_len: int
    tp: int = 1
    pp: int = 1
    dp: int = 1
    expert_parallel: bool = False
    dcp: int = 1
    stage_layers: tuple[int, ...] = ()
    utilization: float = 0.9
    kv_dtype: str = "auto"
    state_dtype: str = ""
    block_tokens: int | None = None
    block_step: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    prefix_caching: bool | None = None
    speculative_tokens: int = 0
    draft_layers: int = 0
    graphs: bool = True
    hybrid_manager: bool | None = None
    window_share: float = 0.8
    state_share: float = 0.9

    def __post_init__(self) -> None:
        for name in ("max_model_len", "tp", "pp", "dp", "dcp"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}, expected at least 1.")
        for name in ("block_tokens", "block_step", "max_num_batched_tokens", "max_num_seqs"):
            if (getattr(self, name) or 1) < 1 or getattr(self, name) == 0:
                raise UsageError(f"{name} is {getattr(self, name)}, expected at least 1.")
        for name in ("speculative_tokens", "draft_layers"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}, expected at least 0.")
        if not 0 < self.utilization <= 1:
            raise UsageError(f"utilization is {self.utilization}, expected a share above 0 and at most 1.")
        if self.tp % self.dcp:
            raise UsageError(f"dcp is {self.dcp}, expected a divisor of tp ({self.tp}).")
        if self.stage_layers and len(self.stage_layers) != self.pp:
            raise UsageError(f"stage_layers has {len(self.stage_layers)} items, expected one per stage ({self.pp}).")

    @property
    def ranks(self) -> int:
        """Accelerators of one replica, its data-parallel copies included."""
        return self.tp * self.pp * self.dp


def kv_heads_of_rank(heads: int, tp: int) -> int:
    """KV heads that one rank keeps: its share, or a copy of one head where there are more ranks than heads."""
    return max(1, heads // tp)


def check_split(spec: ModelSpec, tp: int) -> None:
    """Whether tensor parallelism can split the model.

    Raises:
        UsageError: a layer's heads can be neither dealt out evenly nor copied evenly.
    """
    for layer in spec.layers:
        mixer = layer.mixer
        heads = getattr(mixer, "heads", 0)
        if heads % tp:
            if isinstance(mixer, Recurrent) and heads == 1:
                continue
            raise UsageError(f"{heads} heads cannot be split over {tp} ranks.", fix="Choose a divisor of the heads.")
        if isinstance(mixer, Attention) and mixer.kv_heads % tp and tp % mixer.kv_heads:
            raise UsageError(f"{mixer.kv_heads} KV heads can be neither dealt out nor copied over {tp} ranks.")


def stages(spec: ModelSpec, deployment: Deployment) -> list[range]:
    """Layers of each pipeline stage.

    vLLM divides evenly and gives what is left over to the stages before the last, from the back.

    Raises:
        UsageError: there are more stages than layers, or ``stage_layers`` adds up to something else.
    """
    count, pp = len(spec.layers), deployment.pp
    if pp > count:
        raise UsageError(f"{count} layers cannot be split over {pp} stages.")
    sizes = list(deployment.stage_layers) or [count // pp] * pp
    if sum(sizes) != count and deployment.stage_layers:
        raise UsageError(f"stage_layers adds up to {sum(sizes)}, expected {count}.")
    for number in range(count - sum(sizes)):
        sizes[-2 - number if pp > 1 else 0] += 1
    found, start = [], 0
    for size in sizes:
        found.append(range(start, start + size))
        start += size
    return found


def drafting(spec: ModelSpec, deployment: Deployment) -> tuple[Layer, ...]:
    """The MTP layers that draft.

    Raises:
        UsageError: the model has fewer than the deployment uses.
    """
    if deployment.draft_layers > len(spec.mtp_layers):
        raise UsageError(
            f"draft_layers is {deployment.draft_layers}, but the model has {len(spec.mtp_layers)} MTP layers.",
            fix="Use fewer, or describe the drafter's layers in the spec.",
        )
    return spec.mtp_layers[: deployment.draft_layers]


def is_latent(spec: ModelSpec) -> bool:
    """Whether any layer keeps MLA latents."""
    return any(isinstance(layer.mixer, LatentAttention) for layer in spec.layers)


def has_states(spec: ModelSpec) -> bool:
    """Whether any layer is recurrent."""
    return any(isinstance(layer.mixer, Recurrent) for layer in spec.layers)
