import json

import pytest

from setpoint.models.config import spec_from_config
from setpoint.sizing.deployment import Deployment
from setpoint.sizing.engine import engine_of
from setpoint.sizing.latency import Shape, shape_of, split_of

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16", "hidden_size": 4096,
    "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
}  # fmt: skip
GPT_OSS = {
    "model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "hidden_size": 2880, "intermediate_size": 2880,
    "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "vocab_size": 201088, "num_local_experts": 128, "num_experts_per_tok": 4, "experts_per_token": 4,
    "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 18, "attention_bias": True,
    "tie_word_embeddings": False, "max_position_embeddings": 131072, "torch_dtype": "bfloat16",
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
        ],
    },
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "hidden_size": 7168,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "moe_layer_freq": 1, "vocab_size": 129280,
    "num_nextn_predict_layers": 1, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    "max_position_embeddings": 163840,
    "quantization_config": {
        "quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic",
    },
}  # fmt: skip


def shape(config: dict[str, object], cache_bytes: float = 2.0) -> Shape:
    return shape_of(spec_from_config(json.dumps(config).encode(), name="model"), cache_bytes=cache_bytes)


def test_a_dense_model_is_one_kind_of_layer() -> None:
    found = shape(LLAMA)
    (kind,) = found.layers
    assert (kind.count, kind.cache_elements, kind.cache_heads, kind.window) == (32, 2 * 8 * 128, 8, None)
    assert kind.attention.parameters == {"bf16": 41_943_040}
    assert kind.dense.parameters == {"bf16": 176_160_768}
    assert found.weight_bytes == pytest.approx(2 * 7.505e9, rel=1e-3)
    assert kind.decode_operations == 4 * 32 * 128


def test_a_tied_head_is_read_like_any_other() -> None:
    assert shape({**LLAMA, "tie_word_embeddings": True}).head.total == 4096 * 128256


def test_windows_and_experts_of_gpt_oss() -> None:
    found = shape(GPT_OSS)
    assert sorted((k.count, k.window) for k in found.layers if k.window) == [(18, 128)]
    assert found.depth == 36
    kind = found.layers[0]
    assert (kind.experts, kind.experts_per_token) == (128, 4)
    assert kind.expert.parameters == {"fp4": 3 * 2880 * 2880}
    assert kind.expert.size == pytest.approx(3 * 2880 * 2880 * (0.5 + 1 / 32))
    assert set(kind.attention.parameters) == {"bf16"}


def test_a_latent_is_absorbed_while_decoding_and_expanded_in_prefill() -> None:
    found = shape(DEEPSEEK, cache_bytes=1.0)
    assert [k.count for k in found.layers] == [3, 58]
    kind = found.layers[1]
    assert (kind.cache_elements, kind.cache_heads) == (576, 1)
    assert kind.decode_operations == 2 * 128 * (576 + 512)
    assert kind.prefill_operations == 2 * 128 * (192 + 128)
    assert kind.replicated.total == pytest.approx(7168 * (1536 + 576) + 256 * 7168)
    assert found.draft_layers == 1
    # DeepSeek-V3: 671e9 parameters, nearly all in FP8.
    assert found.weight_bytes == pytest.approx(672e9, rel=0.01)


def test_a_split_follows_the_deployment() -> None:
    deployment = Deployment(engine_of("vllm", "0.19.0"), 4096, tp=2, dp=4, expert_parallel=True)
    found = split_of(deployment)
    assert (found.tp, found.dp, found.pp, found.expert, found.accelerators) == (2, 4, 1, True, 8)
