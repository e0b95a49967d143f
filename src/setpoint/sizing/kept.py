"""What a layer keeps: bytes per token, and bytes per sequence whatever its length; before any rounding to pages."""

from setpoint.errors import UsageError
from setpoint.models.layer import (
    Attention,
    CompressedAttention,
    Indexer,
    LatentAttention,
    Layer,
    Recurrent,
    Scope,
    StateKind,
)
from setpoint.models.spec import ModelSpec
from setpoint.sizing.deployment import Deployment, kv_heads_of_rank
from setpoint.sizing.engine import Engine

_ANY = Engine("vllm", (0, 20, 0))
ELEMENT_BYTES = {
    "float32": 4.0,
    "bfloat16": 2.0,
    "float16": 2.0,
    "fp8": 1.0,
    "fp8_e4m3": 1.0,
    "fp8_e5m2": 1.0,
    "fp8_ds_mla": 1.0,
    "int8": 1.0,
    "nvfp4": 0.5 + 1 / 16,
}
"""Bytes per element of the KV cache; NVFP4 has one 8-bit scale per 16 values."""

INDEXER_BLOCK = 128
"""Values that share one 32-bit scale in the indexer's FP8 keys (DeepSeek-V3.2)."""


def kv_dtype_of(spec: ModelSpec, deployment: Deployment) -> str:
    """The element type that the engine stores keys and values in.

    Raises:
        UsageError: the type is unknown.
    """
    asked = deployment.kv_dtype
    if asked in ("bf16", "fp16"):
        asked = {"bf16": "bfloat16", "fp16": "float16"}[asked]
    engine = deployment.engine
    if asked == "auto":
        follows = spec.precision.kv and engine.follows_checkpoint_kv
        asked = spec.precision.kv if follows else spec.activation_dtype
        if any(isinstance(layer.mixer, CompressedAttention) for layer in spec.layers):
            return "fp8_ds_mla"
    if asked not in ELEMENT_BYTES:
        raise UsageError(f"kv_dtype is {asked!r}.", fix=f"Choose auto or one of: {', '.join(ELEMENT_BYTES)}.")
    # vLLM has one FP8 layout for sparse MLA and for DeepSeek V4 (``DeepseekV32ForCausalLM`` in its model overrides).
    own_layout = any(
        isinstance(layer.mixer, CompressedAttention)
        or (isinstance(layer.mixer, LatentAttention) and layer.mixer.indexer)
        for layer in spec.layers
    )
    return "fp8_ds_mla" if asked.startswith("fp8") and own_layout and engine.name == "vllm" else asked


def indexer_bytes(indexer: Indexer) -> int:
    """Bytes of one indexer key: FP8 values and their scales (132 for 128 values)."""
    return indexer.head_dim + -(-indexer.head_dim // INDEXER_BLOCK) * 4


def latent_bytes(mixer: LatentAttention, dtype: str) -> float:
    """Bytes of one token's latent on a rank; every tensor-parallel rank keeps all of it.

    ``fp8_ds_mla`` keeps the latent in FP8 with a 32-bit scale per 128 values, and the positional part in 16 bits:
    656 bytes for 512 + 64 (FlashMLA sparse layout).
    """
    if dtype == "fp8_ds_mla":
        return mixer.kv_rank + -(-mixer.kv_rank // 128) * 4 + 2 * mixer.rope_dim
    return mixer.kept_per_token * ELEMENT_BYTES[dtype]


def compressed_bytes(mixer: CompressedAttention, dtype: str) -> float:
    """Bytes of one kept latent of DeepSeek V4: 448 FP8 + 64 16-bit + 8 of scales = 584 for a head of 512."""
    if dtype == "fp8_ds_mla":
        flat = mixer.head_dim - mixer.rope_dim
        return flat + 2 * mixer.rope_dim + -(-flat // 64) + 1
    return mixer.head_dim * ELEMENT_BYTES[dtype]


def token_bytes(layer: Layer, dtype: str, tp: int = 1) -> float:
    """Bytes that a layer adds to a rank per token within its reach; 0 for recurrent layers."""
    match layer.mixer:
        case Attention() as mixer:
            if mixer.shares_kv_with is not None:
                return 0.0
            width = mixer.head_dim + mixer.v_head_dim
            key = indexer_bytes(mixer.indexer) if mixer.indexer is not None else 0
            return kv_heads_of_rank(mixer.kv_heads, tp) * width * ELEMENT_BYTES[dtype] + key
        case LatentAttention() as mixer:
            return latent_bytes(mixer, dtype) + (indexer_bytes(mixer.indexer) if mixer.indexer is not None else 0)
        case CompressedAttention() as mixer if mixer.ratio:
            key = indexer_bytes(mixer.indexer) if mixer.indexer is not None else 0
            return (compressed_bytes(mixer, dtype) + key) / mixer.ratio
        case _:
            return 0.0


def state_bytes(mixer: Recurrent, spec: ModelSpec, deployment: Deployment) -> int:
    """Bytes of one sequence's convolution window and state on a rank.

    The window is in the activations' type; drafting lengthens it. The state is in the type that the deployment, else
    the model asks for; where neither does, vLLM takes the activations' type and SGLang 32 bits. Groups of Mamba 2 that
    are fewer than ranks are copied.
    """
    tp = deployment.tp
    plain = ELEMENT_BYTES[spec.activation_dtype]
    unasked = "float32" if deployment.engine.name == "sglang" else spec.activation_dtype
    name = deployment.state_dtype or mixer.state_dtype or unasked
    if name not in ELEMENT_BYTES:
        raise UsageError(f"state_dtype is {name!r}.", fix=f"Choose one of: {', '.join(ELEMENT_BYTES)}.")
    conv = mixer.conv_elements(deployment.speculative_tokens)
    if mixer.kind is StateKind.MAMBA2 and mixer.groups % tp:
        columns = mixer.conv_kernel - 1 + deployment.speculative_tokens
        conv = (mixer.inner // tp + 2 * max(1, mixer.groups // tp) * mixer.key_dim) * columns
    else:
        conv //= tp
    return round(conv * plain + mixer.state_elements // tp * ELEMENT_BYTES[name])


def reach(layer: Layer, tokens: int) -> int:
    """Tokens of a sequence that a layer still keeps."""
    mixer = layer.mixer
    if isinstance(mixer, Attention) and mixer.scope is not Scope.FULL:
        return min(tokens, mixer.window)
    return tokens


def kept_bytes(spec: ModelSpec, tokens: int, dtype: str = "bfloat16", deployment: Deployment | None = None) -> float:
    """Bytes that one sequence needs, before rounding to pages.

    Args:
        spec: The model.
        tokens: Length of the sequence.
        dtype: Element type of the KV cache.
        deployment: Split over ranks; the answer is then of one rank of each stage together. None: of the whole model.
    """
    tp = deployment.tp if deployment is not None else 1
    whole = deployment or Deployment(_ANY, max(tokens, 1))
    total = 0.0
    for layer in spec.layers:
        mixer = layer.mixer
        total += token_bytes(layer, dtype, tp) * reach(layer, tokens)
        if isinstance(mixer, CompressedAttention):
            total += compressed_bytes(mixer, dtype) * min(tokens, mixer.window)
        elif isinstance(mixer, Recurrent):
            total += state_bytes(mixer, spec, whole)
    return total


def bytes_per_token(spec: ModelSpec, dtype: str = "bfloat16", tp: int = 1) -> float:
    """Bytes per token on a rank while every layer still grows, i.e. within the shortest window."""
    return sum(token_bytes(layer, dtype, tp) for layer in spec.layers)
