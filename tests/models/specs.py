"""Specs of models whose configuration is public but not in the project's data; only the fields that matter."""

from typing import Any

from tests import shared

from setpoint.models.config import spec_from_config, spec_from_fields
from setpoint.models.layer import Dense, LatentAttention, Layer
from setpoint.models.precision import BF16, Precision
from setpoint.models.spec import ModelSpec


def stored(name: str) -> ModelSpec:
    return spec_from_config(shared.config(name), quantization=shared.quantization(name), name=name)


def dense(
    model_type: str,
    layers: int,
    hidden: int,
    heads: int,
    kv: int,
    width: int,
    feed: int,
    vocabulary: int,
    **more: Any,  # noqa: ANN401 - further fields of the configuration
) -> ModelSpec:
    fields = {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": width,
        "intermediate_size": feed,
        "vocab_size": vocabulary,
        "torch_dtype": "bfloat16",
        **more,
    }
    return spec_from_fields(fields)


def gdn(layers: int, hidden: int, heads: int, kv: int, values: int, feed: int) -> ModelSpec:
    """Qwen 3.5 and kin: every fourth layer attention of width 256, states of 16 keys by 128."""
    text = {
        "model_type": "qwen3_5_text",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": 256,
        "intermediate_size": feed,
        "vocab_size": 248320,
        "linear_num_value_heads": values,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1,
        "dtype": "bfloat16",
    }
    return spec_from_fields({"model_type": "qwen3_5", "text_config": text})


LLAMA_32_3B = dense("llama", 28, 3072, 24, 8, 128, 8192, 128256, tie_word_embeddings=True)
DISTILL_14B = dense("qwen2", 48, 5120, 40, 8, 128, 13824, 152064)
PHI_4 = dense("phi3", 40, 5120, 40, 10, 128, 17920, 100352)
QWEN_25_05B = dense("qwen2", 24, 896, 14, 2, 64, 4864, 151936, tie_word_embeddings=True)
QWQ_32B = dense("qwen2", 64, 5120, 40, 8, 128, 27648, 152064)
QWEN_25_VL_72B = dense("qwen2", 80, 8192, 64, 8, 128, 29568, 152064)
QWEN_35_9B = gdn(32, 4096, 16, 4, 32, 12288)
QWEN_35_08B = gdn(24, 1024, 8, 2, 16, 3584)
GEMMA_3_27B = spec_from_fields(
    {
        "model_type": "gemma3",
        "torch_dtype": "bfloat16",
        "text_config": {
            "hidden_size": 5376,
            "intermediate_size": 21504,
            "model_type": "gemma3_text",
            "num_attention_heads": 32,
            "num_hidden_layers": 62,
            "num_key_value_heads": 16,
            "head_dim": 128,
            "sliding_window": 1024,
        },
    }
)
GEMMA_4_E4B = spec_from_fields(
    {
        "model_type": "gemma4_text",
        "torch_dtype": "bfloat16",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 42,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 512,
        "num_kv_shared_layers": 18,
        "vocab_size": 262144,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144,
    }
)
GEMMA_4_E2B = spec_from_fields(
    {
        "model_type": "gemma4_text",
        "torch_dtype": "bfloat16",
        "hidden_size": 1536,
        "intermediate_size": 6144,
        "num_hidden_layers": 35,
        "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "global_head_dim": 512,
        "sliding_window": 512,
        "num_kv_shared_layers": 20,
        "use_double_wide_mlp": True,
        "vocab_size": 262144,
        "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144,
    }
)
_MLA = LatentAttention(32, 512, 64, 128, 128, None)
LING_MLA = ModelSpec(
    "Ling-3.0-flash, its seven latent layers",
    "bailing_moe_v3",
    "",
    (Layer(_MLA, Dense(1024)),) * 7,
    (),
    4096,
    157184,
    False,
    Precision("none", BF16, BF16),
    "bfloat16",
    262144,
)
