"""From ``config.json`` (and ``hf_quant_config.json``) to a model spec."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from setpoint.errors import ModelSpecError
from setpoint.models.families.registry import FAMILIES
from setpoint.models.fields import Fields, read_json
from setpoint.models.precision import Precision
from setpoint.models.quantization import dtype_format, kv_of, precision_of
from setpoint.models.spec import ModelSpec
from setpoint.models.towers import towers_of

# Names that decide how much is kept or multiplied. A field that sounds so, says something, and was not read by the
# family means that the family does not know this variant of the model.
_STRUCTURAL = re.compile(
    r"^(num|n)_\w*(layers|heads|experts)$|lora_rank$|^(sliding|attention)_(window|chunk)\w*$|layer_types$|layers_block_type$"
    r"|override_pattern$|_layer_pattern$|compress_ratio|^kv_\w*(rank|dim|heads)$|^(mamba|ssm|linear)_\w*(heads|state|dim)$"
)
_HARMLESS = frozenset(
    {
        "num_hash_layers", "n_shared_experts", "num_hidden_layers", "max_window_layers", "num_experts_per_tok",
        "num_mtp_modules", "num_reward_heads", "no_rope_layers", "mamba_expand", "attention_window",
        "num_attention_heads", "num_key_value_heads", "sliding_window", "num_expert_groups",
    }
)  # fmt: skip
_TEXT = ("text_config", "llm_config", "language_config", "thinker_config")


def spec_from_config(
    content: bytes, *, quantization: bytes | None = None, name: str = "", where: str = "config.json"
) -> ModelSpec:
    """A model spec from the bytes of a configuration.

    Args:
        content: ``config.json``.
        quantization: ``hf_quant_config.json``, for checkpoints that keep it apart; used when ``config.json`` has no
            quantization section of its own.
        name: Name of the model, for the spec.
        where: File name, for messages.

    Raises:
        ModelSpecError: naming the field that is missing, contradicts another, or is not understood.
    """
    config = read_json(content, where)
    apart = read_json(quantization, f"{where}: hf_quant_config.json") if quantization is not None else None
    return spec_from_fields(config, quantization=apart, name=name, where=where)


def spec_from_fields(
    config: Mapping[str, Any],
    *,
    quantization: Mapping[str, Any] | None = None,
    name: str = "",
    where: str = "config.json",
) -> ModelSpec:
    """Like :func:`spec_from_config`, from objects that are already decoded."""
    whole = Fields(config, where)
    text = next((inner for word in _TEXT if (inner := whole.inner(word)) is not None), whole)
    model_type = whole.text("model_type")
    kind = next(
        (k for k in (text.values.get("model_type"), model_type) if isinstance(k, str) and k in FAMILIES), model_type
    )
    if kind not in FAMILIES:
        found = text.values.get("model_type") if text is not whole else model_type
        raise ModelSpecError(
            f"{where}: model_type is {str(found)[:80]!r}, which is not understood.",
            fix="Supported: " + ", ".join(sorted(FAMILIES)) + ".",
        )
    body = FAMILIES[kind](text)
    hidden = text.integer("hidden_size", "n_embd")
    _check_understood(text)
    architectures = whole.items("architectures") or []
    dtype = text.text("torch_dtype", "dtype", default=whole.text("torch_dtype", "dtype", default="bfloat16"))
    plain = dtype_format(dtype)
    if plain is None:
        raise whole.wrong("torch_dtype", "bfloat16, float16 or float32")
    notes = list(body.notes)
    if not (text.has("torch_dtype", "dtype") or whole.has("torch_dtype", "dtype")):
        notes.append("torch_dtype is not stated; bfloat16 is assumed.")
    if text is not whole and not whole.has("vision_config", "audio_config") and _has_encoder(architectures):
        notes.append("The class has an encoder, but no vision_config or audio_config says how large it is.")
    section = _section(whole, text, quantization)
    return ModelSpec(
        name=name or whole.text("_name_or_path", default=""),
        model_type=model_type,
        architecture=str(architectures[0]) if architectures else "",
        layers=body.layers,
        mtp_layers=body.mtp_layers,
        hidden=hidden,
        vocabulary=text.integer("vocab_size", default=262208 if kind.startswith("gemma3") else None),
        tied=text.flag("tie_word_embeddings", default=whole.flag("tie_word_embeddings", default=body.tied)),
        precision=_with_kv(precision_of(section, plain, text.text("expert_dtype", default="")), quantization, where),
        activation_dtype=dtype.removeprefix("torch."),
        max_positions=text.integer("max_position_embeddings", "max_seq_len", "seq_length", default=0, least=0),
        towers=towers_of(whole, hidden),
        extra=body.extra,
        notes=tuple(notes),
    )


def _has_encoder(architectures: list[Any]) -> bool:
    return any("ConditionalGeneration" in str(word) for word in architectures)


def _section(whole: Fields, text: Fields, apart: Mapping[str, Any] | None) -> Fields | None:
    for config in (whole, text):
        inner = config.inner("quantization_config")
        if inner is not None:
            return inner
    if apart is None:
        return None
    file = Fields(apart, f"{whole.where}: hf_quant_config.json")
    section = file.inner("quantization")
    if section is None:
        raise file.wrong("quantization", "an object")
    return section


def _with_kv(precision: Precision, apart: Mapping[str, Any] | None, where: str) -> Precision:
    """Some checkpoints state the type of their KV cache in ``hf_quant_config.json`` only."""
    if precision.kv or apart is None:
        return precision
    section = Fields(apart, f"{where}: hf_quant_config.json").inner("quantization")
    return precision if section is None else replace(precision, kv=kv_of(section))


def _check_understood(text: Fields) -> None:
    for field, value in text.values.items():
        if field in text.read or field in _HARMLESS or value in (None, False, 0, [], "") or isinstance(value, dict):
            continue
        if _STRUCTURAL.search(field):
            raise text.wrong(field, "nothing: this field is not understood for this model_type")
