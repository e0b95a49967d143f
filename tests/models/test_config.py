"""Configurations to specs: the project's 139 files, sizes that model cards state, and every kind of bad input."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import shared
from tests.models.specs import GEMMA_4_E4B, stored

from setpoint.errors import ModelSpecError
from setpoint.models.config import spec_from_config, spec_from_fields
from setpoint.models.families.registry import FAMILIES
from setpoint.models.layer import Attention, Experts, LatentAttention, Recurrent, Scope
from setpoint.models.spec import ModelSpec
from setpoint.models.weights import Component

FOLDER = shared.shared_data() / "model_configs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.json") if not path.name.endswith(".hf_quant.json"))
REFUSED = {
    "partial--granite-4.0-h-small": "layer_types is missing",
    "transformers-default--Glm4MoeConfig": "num_attention_heads is '96', expected a divisor of hidden_size",
}


@pytest.mark.shared
def test_every_file_is_read_or_listed() -> None:
    assert len(NAMES) + len(list(FOLDER.glob("*.hf_quant.json"))) == 139
    assert set(REFUSED) <= set(NAMES)


@pytest.mark.shared
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_configuration_becomes_a_spec(name: str) -> None:
    spec = stored(name)
    assert spec.layers
    assert 0 < spec.active_parameters <= spec.parameters * 1.001
    assert spec.checkpoint_bytes > 0.4 * spec.parameters


@pytest.mark.parametrize(("name", "reason"), REFUSED.items())
def test_a_refused_configuration_names_the_field(name: str, reason: str) -> None:
    with pytest.raises(ModelSpecError, match=reason):
        stored(name)


@pytest.mark.parametrize(
    ("name", "total", "active"),
    [
        # Billions, as model cards and papers state them.
        ("meta-llama--Meta-Llama-3.1-8B", 8.03, None),
        ("meta-llama--Meta-Llama-3.1-405B", 405.9, None),
        ("Qwen--Qwen3-235B-A22B", 235.1, 22),
        ("Qwen--Qwen3-30B-A3B", 30.5, 3.3),
        ("deepseek-ai--DeepSeek-V3", 671.0, 37),
        ("moonshotai--Kimi-K2-Instruct", 1026.0, 32),
        ("openai--gpt-oss-120b", 116.8, 5.1),
        ("openai--gpt-oss-20b", 20.9, 3.6),
        ("mistralai--Mixtral-8x7B-v0.1", 46.7, 12.9),
        ("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.6, 3.2),
        ("meta-llama--Llama-4-Maverick-17B-128E-Instruct", 400.7, 17),
        ("XiaomiMiMo--MiMo-V2-Flash", 309, 15),
        ("zai-org--GLM-5", 744, 40),
        ("Qwen--Qwen3.5-397B-A17B", 397, 17),
        ("deepseek-ai--DeepSeek-V4-Flash", 284, 13),
    ],
)
def test_parameters_are_those_of_the_model_card(name: str, total: float, active: float | None) -> None:
    spec = stored(name)
    assert spec.parameters / 1e9 == pytest.approx(total, rel=0.005)
    if active is not None:
        assert spec.active_parameters / 1e9 == pytest.approx(active, rel=0.1)


@pytest.mark.parametrize(
    ("name", "gib", "tolerance"),
    [
        # Sizes of published checkpoints, and "Model loading took" of logs.
        ("openai--gpt-oss-120b", 60.8, 0.01),
        ("Qwen--Qwen3-32B", 61.03, 0.005),
        ("meta-llama--Meta-Llama-3.1-8B", 14.99, 0.005),
        ("nvidia--Llama-3.1-70B-Instruct-FP8", 67.7, 0.005),
        ("moonshotai--Kimi-K2.5", 554, 0.02),
        ("nvidia--Gemma-4-31B-IT-NVFP4", 30.5, 0.03),
    ],
)
def test_checkpoints_have_their_published_size(name: str, gib: float, tolerance: float) -> None:
    assert stored(name).checkpoint_bytes / 2**30 == pytest.approx(gib, rel=tolerance)


def kinds(spec: ModelSpec) -> list[str]:
    return [type(layer.mixer).__name__ for layer in spec.layers]


def test_nemotron_3_nano_has_six_attention_layers() -> None:
    spec = stored("nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16")
    assert (kinds(spec).count("Attention"), kinds(spec).count("Recurrent"), len(spec.layers)) == (6, 23, 52)


def test_kimi_k3_counts_its_attention_layers_from_one() -> None:
    spec = stored("moonshotai--Kimi-K3")
    assert [index for index, kind in enumerate(kinds(spec)) if kind == "LatentAttention"][:2] == [3, 7]
    assert kinds(spec)[-1] == "LatentAttention"


def test_gemma_4_shares_keys_of_the_last_layer_of_the_same_kind() -> None:
    sharing = [layer.mixer for layer in GEMMA_4_E4B.layers if isinstance(layer.mixer, Attention)]
    assert {mixer.shares_kv_with for mixer in sharing[24:]} == {22, 23}
    assert all(mixer.shares_kv_with is None for mixer in sharing[:24])


def test_llama_4_has_every_fourth_layer_full() -> None:
    spec = stored("meta-llama--Llama-4-Scout-17B-16E-Instruct")
    scopes = [layer.mixer.scope for layer in spec.layers if isinstance(layer.mixer, Attention)]
    assert scopes[:4] == [Scope.CHUNKED, Scope.CHUNKED, Scope.CHUNKED, Scope.FULL]


def test_kinds_of_attention_are_named() -> None:
    def kind(name: str) -> str:
        mixer = stored(name).layers[-1].mixer
        assert isinstance(mixer, Attention | LatentAttention)
        return mixer.kind

    assert kind("blis--llama-2-7b-hf") == "MHA"
    assert kind("meta-llama--Meta-Llama-3.1-8B") == "GQA"
    assert kind("deepseek-ai--DeepSeek-V3") == "MLA"
    assert kind("deepseek-ai--DeepSeek-V3.2") == "MLA+indexer"


def test_glm_52_has_an_indexer_in_some_layers_only() -> None:
    mixers = [layer.mixer for layer in stored("zai-org--GLM-5.2").layers]
    with_indexer = [m for m in mixers if isinstance(m, LatentAttention) and m.indexer is not None]
    assert 3 < len(with_indexer) < len(mixers) / 2


def test_only_experts_are_packed_where_the_section_says_so() -> None:
    spec = stored("moonshotai--Kimi-K2.5")
    formats = {weight.component: spec.format_of(weight).name for weight in spec.weights}
    assert formats[Component.EXPERTS] == "int4"
    assert formats[Component.ATTENTION] == formats[Component.SHARED_EXPERTS] == formats[Component.LM_HEAD] == "bf16"


def test_named_layers_of_a_mixed_checkpoint_keep_their_formats() -> None:
    spec = stored("nvidia--Qwen3.6-27B-NVFP4")
    formats = {weight.name: spec.format_of(weight).name for weight in spec.weights}
    assert formats["layers.0.linear_attn.in_proj_qkv"] == "fp8"
    assert formats["layers.0.mlp.up_proj"] == "nvfp4"
    assert formats["lm_head"] == "nvfp4"
    assert {spec.format_of(weight).name for weight in spec.mtp_weights} == {"bf16"}


def test_a_drafting_layer_is_no_part_of_the_total() -> None:
    spec = stored("deepseek-ai--DeepSeek-V3")
    assert spec.parameters_by_component[Component.MTP] == pytest.approx(11.5e9, rel=0.05)
    assert spec.parameters == pytest.approx(671e9, rel=0.001)


def test_recurrent_states_have_the_shapes_that_engines_allocate() -> None:
    mixer = stored("Qwen--Qwen3.5-27B").layers[0].mixer
    assert isinstance(mixer, Recurrent)
    assert (mixer.state_elements, mixer.conv_elements(), mixer.conv_elements(3)) == (48 * 128 * 128, 30720, 61440)


GOOD: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_key_value_heads": 3}, "num_key_value_heads is '3', expected a divisor of num_attention_heads"),
        ({"num_attention_heads": 7, "num_key_value_heads": 7}, "expected a divisor of hidden_size"),
        ({"model_type": "mystery"}, "model_type is 'mystery', which is not understood"),
        ({"model_type": None}, "model_type is 'None', expected text"),
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "64"}, "hidden_size is '64', expected a whole number"),
        ({"hidden_size": 10**12}, "hidden_size"),
        ({"num_hidden_layers": 10**8}, "at most 2048"),
        ({"num_hidden_layers": -1}, "num_hidden_layers is '-1'"),
        ({"torch_dtype": "int3"}, "torch_dtype"),
        ({"layer_types": ["full_attention"]}, "layer_types .* expected 4 items"),
        ({"layer_types": ["warp"] * 4}, "only items among"),
        ({"kv_lora_rank": 512}, "kv_lora_rank is '512', expected nothing: this field is not understood"),
        ({"num_experts": 8}, "num_experts is '8', expected nothing"),
        ({"quantization_config": {"quant_method": "zip"}}, "quant_method is 'zip', expected one of"),
        ({"quantization_config": "fp8"}, "quantization_config is 'fp8', expected an object"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 5}}, "bits is '5', expected 2, 3, 4 or 8"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "FP3"}}, "quant_algo is 'FP3'"),
        ({"quantization_config": {"quant_method": "fp8", "ignore": ["re:(a+)+b"]}}, "nests repetitions"),
        ({"quantization_config": {"quant_method": "fp8", "kv_cache_scheme": {"num_bits": 3}}}, "kv_cache_scheme"),
    ],
)
def test_one_clear_error_names_the_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelSpecError, match=message):
        spec_from_fields({key: value for key, value in {**GOOD, **change}.items() if key})


@pytest.mark.parametrize("field", ["num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules"])
def test_more_draft_layers_than_any_model_has_are_refused_before_they_take_memory(field: str) -> None:
    with pytest.raises(ModelSpecError, match=f"{field} is '10000000', expected at most 2048 layers"):
        spec_from_fields({**GOOD, field: 10_000_000})


def test_a_pattern_of_more_layers_than_any_model_has_is_refused() -> None:
    name = "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"
    for change in (
        {"mtp_hybrid_override_pattern": "*E" * 1000, "num_nextn_predict_layers": 2000},
        {"hybrid_override_pattern": "*" * 3000, "layers_block_type": None},
    ):
        with pytest.raises(ModelSpecError, match="at most 2048"):
            spec_from_fields(json.loads(shared.config(name)) | change)


@pytest.mark.parametrize(
    ("section", "bytes_per_weight"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, 0.5 + 2.5 / 128),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "sym": True}, 0.5 + 2.5 / 32),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, 0.5159),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, 1.0),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 16384),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}, 0.5625),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, 0.53125),
    ],
)
def test_packed_weights_count_their_scales(section: dict[str, Any], bytes_per_weight: float) -> None:
    spec = spec_from_fields({**GOOD, "quantization_config": section})
    weight = next(weight for weight in spec.weights if weight.name == "layers.0.mlp.up_proj")
    assert spec.format_of(weight).bytes_per_weight == pytest.approx(bytes_per_weight, abs=1e-4)
    head = next(weight for weight in spec.weights if weight.name == "lm_head")
    assert spec.format_of(head).name == "bf16"


def test_deep_and_large_json_is_refused() -> None:
    for content in (b"[" * 10**6, b'{"a":' * 100 + b"1" + b"}" * 100, b"[]", b"{", b'{"a": ' + b"9" * 10000 + b"}"):
        with pytest.raises(ModelSpecError):
            spec_from_config(content)


class Large(bytes):
    def __len__(self) -> int:
        return 2**40


def test_a_file_larger_than_any_configuration_is_refused_unread() -> None:
    with pytest.raises(ModelSpecError, match="more than any model configuration"):
        spec_from_config(Large(b"not json"))


def test_every_model_type_has_a_family() -> None:
    assert len(FAMILIES) > 80
    assert all(callable(family) for family in FAMILIES.values())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**10) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)
SAMPLES = [
    json.loads(shared.config(name))
    for name in (
        "Qwen--Qwen3.5-35B-A3B",
        "google--gemma-4-26B-A4B",
        "nvidia--NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4",
        "deepseek-ai--DeepSeek-V4-Flash",
        "moonshotai--Kimi-K3",
        "meta-llama--Llama-4-Scout-17B-16E-Instruct",
        "zai-org--GLM-5.2",
        "nvidia--Llama-3_3-Nemotron-Super-49B-v1",
    )
]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_value_of_any_field_gives_a_spec_or_one_error(data: st.DataObject) -> None:
    config = dict(data.draw(st.sampled_from(SAMPLES)))
    place = config
    if "text_config" in config and data.draw(st.booleans()):
        place = config["text_config"] = dict(config["text_config"])
    field = data.draw(st.sampled_from(sorted(place)))
    place[field] = data.draw(JSON)
    with suppress(ModelSpecError):
        spec = spec_from_fields(config)
        assert spec.parameters > 0
        assert spec.checkpoint_bytes > 0


def test_experts_beside_a_dense_part_are_matched_as_siblings() -> None:
    spec = stored("nvidia--Gemma-4-26B-A4B-NVFP4")
    assert isinstance(spec.layers[0].feed_forward, Experts)
    formats = {weight.component: spec.format_of(weight).name for weight in spec.weights}
    assert (formats[Component.EXPERTS], formats[Component.MLP]) == ("nvfp4", "bf16")


KEPT = sorted(p.stem for p in (shared.RECORDED / "model_configs").glob("*.json") if ".hf_quant" not in p.name)


@pytest.mark.parametrize("name", [name for name in KEPT if name not in REFUSED])
def test_configuration_that_is_kept_here_becomes_a_spec(name: str) -> None:
    spec = stored(name)
    assert spec.layers
    assert 0 < spec.active_parameters <= spec.parameters * 1.001
