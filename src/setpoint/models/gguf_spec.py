"""From a GGUF header to a model spec.

The metadata is put into the words of a ``config.json``; the types of the tensors become the precision.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from setpoint.errors import ModelSpecError
from setpoint.models.config import spec_from_fields
from setpoint.models.gguf_file import GgufHeader, read_gguf
from setpoint.models.precision import BF16, Format, Precision
from setpoint.models.safetensors_header import ReadRange
from setpoint.models.spec import ModelSpec

_TYPES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe",
    "phi3": "phi3", "granite": "granite", "gemma": "gemma", "gemma2": "gemma2", "gemma3": "gemma3_text",
    "gpt-oss": "gpt_oss", "command-r": "cohere", "cohere2": "cohere2", "olmo2": "olmo2", "internlm2": "internlm2",
    "starcoder2": "starcoder2", "smollm3": "smollm3", "glm4": "glm4", "glm4moe": "glm4_moe", "deepseek2": "deepseek_v3",
    "seed_oss": "seed_oss", "qwen2vl": "qwen2_vl", "qwen3vl": "qwen3_vl", "qwen3vlmoe": "qwen3_vl_moe",
}  # fmt: skip
_FIELDS = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.sliding_window": "sliding_window",
    "context_length": "max_position_embeddings",
    "vocab_size": "vocab_size",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_count": "n_shared_experts",
    "leading_dense_block_count": "first_k_dense_replace",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.q_lora_rank": "q_lora_rank",
    "nextn_predict_layers": "num_nextn_predict_layers",
}
_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_gate_exps": "mlp.experts.0.gate_proj", "ffn_up_exps": "mlp.experts.0.up_proj",
    "ffn_down_exps": "mlp.experts.0.down_proj", "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj", "ffn_down_shexp": "mlp.shared_experts.down_proj",
    "ffn_gate_inp": "mlp.gate", "attn_q_a": "self_attn.q_a_proj", "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": "self_attn.kv_b_proj", "attn_qkv": "self_attn.q_proj",
}  # fmt: skip
_BLOCK = re.compile(r"^blk\.(\d+)\.(\w+)\.weight$")


def spec_from_gguf(read: ReadRange, where: str, name: str = "") -> ModelSpec:
    """The spec of a GGUF file.

    Args:
        read: Reads a range of the file.
        where: File name, for messages.
        name: Name of the model; empty: ``general.name``.

    Raises:
        ModelSpecError: the file or its architecture is not understood.
    """
    header = read_gguf(read, where)
    config = _config(header, where)
    spec = spec_from_fields(config, name=name or str(header.metadata.get("general.name", "")), where=where)
    return replace(spec, precision=_precision(header), architecture="")


def _config(header: GgufHeader, where: str) -> dict[str, Any]:
    metadata = header.metadata
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or architecture not in _TYPES:
        raise ModelSpecError(
            f"{where}: general.architecture is {str(architecture)[:60]!r}, which is not understood.",
            fix="Supported: " + ", ".join(sorted(_TYPES)) + ".",
        )
    config: dict[str, Any] = {"model_type": _TYPES[architecture], "torch_dtype": "bfloat16"}
    for key, field in _FIELDS.items():
        value = metadata.get(f"{architecture}.{key}")
        if isinstance(value, list):
            value = _same(value, f"{architecture}.{key}", where)
        if value is not None:
            config[field] = value
    if not config.get("num_experts"):
        config.pop("num_experts", None)
    elif _TYPES[architecture] == "llama":
        config["model_type"] = "mixtral"
    if "vocab_size" not in config:
        config["vocab_size"] = _vocabulary(metadata, where)
    if architecture == "deepseek2":
        _latent(config, metadata)
    names = {tensor.name for tensor in header.tensors}
    config["tie_word_embeddings"] = "output.weight" not in names
    if architecture == "gpt-oss":
        count = int(config.get("num_hidden_layers", 0))
        config["layer_types"] = [("sliding_attention", "full_attention")[i % 2] for i in range(min(count, 2048))]
    return config


def _same(values: list[Any], key: str, where: str) -> object:
    kinds = Counter(values)
    if len(kinds) != 1:
        raise ModelSpecError(f"{where}: {key} differs from layer to layer, which is not understood.")
    return values[0]


def _vocabulary(metadata: Mapping[str, Any], where: str) -> int:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, tuple):
        return int(tokens[1])
    if isinstance(tokens, list) and tokens:
        return len(tokens)
    raise ModelSpecError(f"{where}: neither vocab_size nor tokenizer.ggml.tokens says how large the vocabulary is.")


def _latent(config: dict[str, Any], metadata: Mapping[str, Any]) -> None:
    """DeepSeek: keys are positional and other parts; new files state the expanded widths apart (``*_mla``)."""
    rope = metadata.get("deepseek2.rope.dimension_count", 64)
    key = metadata.get("deepseek2.attention.key_length_mla", metadata.get("deepseek2.attention.key_length", 192))
    value = metadata.get("deepseek2.attention.value_length_mla", metadata.get("deepseek2.attention.value_length", 128))
    config.pop("head_dim", None)
    config.pop("num_key_value_heads", None)
    config.update(qk_rope_head_dim=rope, qk_nope_head_dim=key - rope, v_head_dim=value)
    config["n_routed_experts"] = config.pop("num_experts", None)


def _precision(header: GgufHeader) -> Precision:
    exact: dict[str, Format] = {}
    weights: Counter[Format] = Counter()
    for tensor in header.tensors:
        form = Format(tensor.type.lower(), tensor.bits)
        match = _BLOCK.match(tensor.name)
        if match is not None and match.group(2) in _NAMES:
            name = f"layers.{match.group(1)}.{_NAMES[match.group(2)]}"
        elif tensor.name in ("token_embd.weight", "output.weight"):
            name = {"token_embd.weight": "embed_tokens", "output.weight": "lm_head"}[tensor.name]
        else:
            continue
        exact[name] = form
        size = 1
        for side in tensor.shape:
            size *= side
        weights[form] += size
    common = weights.most_common(1)[0][0] if weights else BF16
    return Precision("gguf", Format("fp32", 32), common, exact)
