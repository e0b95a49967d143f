"""What sequences keep: figures by hand, and figures that other calculators get wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.models.specs import GEMMA_3_27B, GEMMA_4_E4B, stored

from setpoint.errors import UsageError
from setpoint.models.config import spec_from_fields
from setpoint.sizing.deployment import Deployment
from setpoint.sizing.engine import engine_of
from setpoint.sizing.kept import bytes_per_token, kept_bytes, kv_dtype_of

GIB = 2**30
CONTEXT = 131072
NEWEST = engine_of("vllm", "0.24.0")


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("deepseek-ai--DeepSeek-V3", 8.58),
        ("openai--gpt-oss-120b", 4.50),
        ("Qwen--Qwen3.5-27B", 8.14),
        ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 0.80),
        ("meta-llama--Meta-Llama-3.1-70B", 40.0),
    ],
)
def test_128k_tokens_need_what_the_layers_keep(name: str, gib: float) -> None:
    """Calculators in use say 213, 9.0, 32 and 6.5 GiB for the first four: they count heads or layers that keep none."""
    assert kept_bytes(stored(name), CONTEXT) / GIB == pytest.approx(gib, abs=0.006)


def test_llama_70b_keeps_320_kib_per_token() -> None:
    assert bytes_per_token(stored("meta-llama--Meta-Llama-3.1-70B")) == 320 * 1024


def test_windows_stop_growing() -> None:
    grown = kept_bytes(GEMMA_3_27B, 8192) - kept_bytes(GEMMA_3_27B, 4096)
    assert grown == 10 * 4096 * 8192


def test_layers_that_read_earlier_keys_keep_none() -> None:
    assert bytes_per_token(GEMMA_4_E4B) == 20 * 2048 + 4 * 4096


def test_more_ranks_than_kv_heads_save_nothing() -> None:
    spec = stored("Qwen--Qwen3-235B-A22B-FP8")
    assert bytes_per_token(spec, tp=4) == bytes_per_token(spec, tp=8) == 48128


def test_every_rank_keeps_the_whole_latent() -> None:
    spec = stored("deepseek-ai--DeepSeek-R1")
    assert bytes_per_token(spec, tp=16) == bytes_per_token(spec) == 70272


def test_sparse_latents_have_their_own_fp8_layout_in_vllm() -> None:
    spec = stored("deepseek-ai--DeepSeek-V3.2")
    assert kv_dtype_of(spec, Deployment(NEWEST, 4096, kv_dtype="fp8")) == "fp8_ds_mla"
    assert bytes_per_token(spec, "fp8_ds_mla") == 61 * (656 + 132)
    dense = stored("deepseek-ai--DeepSeek-V3")
    assert kv_dtype_of(dense, Deployment(NEWEST, 4096, kv_dtype="fp8")) == "fp8"


def test_auto_follows_the_checkpoint_from_012_on() -> None:
    spec = stored("nvidia--Qwen3-235B-A22B-NVFP4")
    assert kv_dtype_of(spec, Deployment(NEWEST, 4096)) == "fp8"
    assert kv_dtype_of(spec, Deployment(engine_of("vllm", "0.10.0"), 4096)) == "bfloat16"


def test_an_unknown_element_type_is_refused() -> None:
    with pytest.raises(UsageError, match="kv_dtype is 'fp6'"):
        kv_dtype_of(stored("Qwen--Qwen3-8B"), Deployment(NEWEST, 4096, kv_dtype="fp6"))


NAMES = (
    "Qwen--Qwen3.5-35B-A3B",
    "openai--gpt-oss-20b",
    "deepseek-ai--DeepSeek-V4-Flash",
    "moonshotai--Kimi-K3",
    "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
)
SPECS = [stored(name) for name in NAMES]


@given(st.sampled_from(SPECS), st.integers(1, 10**6), st.integers(0, 10**5))
def test_a_longer_sequence_never_keeps_less(spec: object, tokens: int, more: int) -> None:
    assert kept_bytes(spec, tokens + more) >= kept_bytes(spec, tokens)  # type: ignore[arg-type]


def mixture(active: int) -> dict[str, object]:
    return {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 64,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 1536,
        "moe_intermediate_size": 1536,
        "num_experts": 260,
        "num_experts_per_tok": active,
        "vocab_size": 150000,
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }


def test_a_mixture_of_320b_needs_320_gb_in_fp8_whatever_is_active() -> None:
    few, many = spec_from_fields(mixture(4)), spec_from_fields(mixture(32))
    assert few.parameters == pytest.approx(320e9, rel=0.02)
    assert few.active_parameters < 0.3 * many.active_parameters
    assert few.checkpoint_bytes == many.checkpoint_bytes == pytest.approx(320e9, rel=0.02)


def test_an_8b_model_in_16_bits_needs_16_gb() -> None:
    assert stored("meta-llama--Meta-Llama-3.1-8B").checkpoint_bytes == pytest.approx(16e9, rel=0.01)
