"""From a quantization section to a ``Precision``: one reader per method."""

import re
from collections.abc import Callable, Iterable
from typing import Any

from setpoint.errors import ModelSpecError
from setpoint.models import precision as formats
from setpoint.models.fields import Fields
from setpoint.models.precision import Format, Precision, Rule

_DTYPES = {"bfloat16": formats.BF16, "float16": formats.FP16, "float32": formats.FP32}
_ALGORITHMS = {
    "FP8": formats.FP8,
    "FP8_PER_CHANNEL_PER_TOKEN": formats.FP8,
    "FP8_PB_WO": formats.FP8_BLOCK128,
    "FP8_BLOCK_SCALES": formats.FP8_BLOCK128,
    "NVFP4": formats.NVFP4,
    "NVFP4_AWQ": formats.NVFP4,
    "W4A16_NVFP4": formats.NVFP4,
    "W4A8_NVFP4_FP8": formats.NVFP4,
    "MXFP4": formats.MXFP4,
    "W4A8_MXFP4_FP8": formats.MXFP4,
    "W4A16_MXFP4": formats.MXFP4,
    "MXFP8": formats.MXFP8,
    "W8A8_SQ_PER_CHANNEL": formats.INT8,
    "W8A16": formats.INT8,
    "INT8_SQ": formats.INT8,
    "W4A16": formats.grouped_integer(4, 128, zero_points=False),
    "W4A16_AWQ": formats.grouped_integer(4, 128, zero_points=False),
    "W4A8_AWQ": formats.grouped_integer(4, 128, zero_points=False),
}
_KV_SCHEMES = {"float 8": "FP8", "int 8": "INT8", "float 4": "NVFP4"}
_KV = {"FP8": "fp8", "INT8": "int8", "NVFP4": "nvfp4", "FP4": "nvfp4"}
_WORDS = {
    "block_sparse_moe": "mlp", "feed_forward": "mlp", "ffn": "mlp", "moe": "mlp", "attn": "self_attn",
    "shared_expert": "shared_experts", "shared_experts*": "shared_experts*", "shared_expert*": "shared_experts*",
    "router": "gate", "w1": "gate_proj", "w3": "up_proj", "w2": "down_proj", "head": "lm_head", "o_b_proj": "o_proj",
}  # fmt: skip
_FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
_BESIDE = re.compile(r"vision|visual|audio|image|mm_projector|multi_modal|patch_merge")
_HEAD = Rule(r"^lm_head$", formats.BF16)


def dtype_format(name: str) -> Format | None:
    """The format of unquantized weights; None when the name is unknown."""
    return _DTYPES.get(name.removeprefix("torch."))


def precision_of(section: Fields | None, plain: Format, expert_dtype: str = "") -> Precision:
    """How a checkpoint stores its weights.

    Args:
        section: ``quantization_config``, or ``quantization`` of ``hf_quant_config.json``; None when there is none.
        plain: Format of what is not quantized.
        expert_dtype: DeepSeek V4's ``expert_dtype``; empty when not stated.

    Raises:
        ModelSpecError: the method, or something in it that decides about bytes, is unknown.
    """
    if section is None:
        return Precision("none", plain, plain)
    method = section.text("quant_method", default="modelopt" if section.has("quant_algo") else "")
    reader = _METHODS.get(method)
    if reader is None:
        raise section.wrong("quant_method", f"one of {', '.join(_METHODS)}")
    found = reader(section, plain)
    if expert_dtype:
        if expert_dtype != "fp4":
            raise ModelSpecError(f"{section.where}: expert_dtype is {expert_dtype!r}, expected 'fp4'.")
        rule = Rule(r"\.experts\.", formats.MXFP4)
        found = Precision(found.method, plain, found.quantized, found.exact, (*found.rules, rule), found.kv)
    return found


def _made(
    method: str,
    plain: Format,
    quantized: Format,
    skipped: Iterable[object],
    *,
    named: dict[str, Format] | None = None,
    rules: tuple[Rule, ...] = (),
    kv: str = "",
) -> Precision:
    exact, patterns = _names((item, plain) for item in skipped)
    more, named_rules = _names((named or {}).items())
    # What is named with a format beats what is skipped by a pattern, and both beat the default.
    head = () if "lm_head" in more else (Rule(_HEAD.pattern, plain),)
    return Precision(method, plain, quantized, {**exact, **more}, (*named_rules, *head, *patterns, *rules), kv)


def _names(pairs: Iterable[tuple[object, Format]]) -> tuple[dict[str, Format], tuple[Rule, ...]]:
    exact: dict[str, Format] = {}
    rules: list[Rule] = []
    for item, form in pairs:
        if not isinstance(item, str) or len(item) > 1000:
            raise ModelSpecError(f"A quantization section names a module {str(item)[:80]!r}, expected text.")
        if item.startswith("re:"):
            rules.append(Rule(_checked(item[3:]), form))
            continue
        for name in _canonical(item):
            if "*" in name:
                rules.append(Rule(_wildcard(name), form))
            elif "." in name or name == "lm_head":
                exact[name] = form
            else:
                rules.append(Rule(rf"(^|\.){re.escape(name)}($|\.)", form))
    return exact, tuple(rules)


def _checked(pattern: str) -> str:
    """A pattern from a file, refused when it could take exponential time or is no pattern."""
    if re.search(r"[*+}][)\]]*[*+{]|\)[*+{]", pattern) or len(pattern) > 300:
        raise ModelSpecError(f"A quantization section has the pattern {pattern[:80]!r}, which nests repetitions.")
    try:
        re.compile(pattern)
    except re.error as error:
        raise ModelSpecError(f"A quantization section has the pattern {pattern[:80]!r}: {error}.") from None
    return pattern


def _wildcard(name: str) -> str:
    body = ".*".join(re.escape(part) for part in re.split(r"\*+", name))
    return f"^{body}$" if name.startswith("*") else f"(^|\\.){body}$"


def _canonical(item: str) -> list[str]:
    """Module names as this program writes them: from ``layers.`` on, with one word per part; none for encoders."""
    if _BESIDE.search(item):
        return []
    name = item
    if name.startswith("mtp"):
        name = "mtp*"
    elif "layers." in name and not name.startswith("*"):
        name = name[name.index("layers.") :]
    words = [_WORDS.get(word, word) for word in name.split(".")]
    for index, word in enumerate(words[:-1]):
        if word == "experts" and words[index + 1].isdigit() and words[index + 1] != "0":
            return []
    if len(words) >= 2 and words[0] != "layers" and words[-1] == "lm_head":
        words = ["lm_head"]
    last = words[-1]
    return [".".join([*words[:-1], word]) for word in _FUSED.get(last, (last,))]


def _skipped(s: Fields) -> list[Any]:
    found = []
    for name in ("modules_to_not_convert", "ignore", "exclude_modules", "llm_int8_skip_modules", "ignored_layers"):
        s.read.add(name)
        value = s.values.get(name) or []
        if not isinstance(value, list):
            raise s.wrong(name, "a list of module names")
        found.extend(value)
    return found


def kv_of(s: Fields) -> str:
    """The KV element type that a section asks for; empty when it does not."""
    for name in ("kv_cache_quant_algo", "kv_cache_scheme"):
        value = s.values.get(name)
        if isinstance(value, dict):
            value = _KV_SCHEMES.get(f"{value.get('type')} {value.get('num_bits')}")
            if value is None:
                raise s.wrong(name, "8-bit float, 8-bit int or 4-bit float")
        if value is not None:
            if not isinstance(value, str) or value.upper() not in _KV:
                raise s.wrong(name, f"one of {', '.join(_KV)}")
            return _KV[value.upper()]
    return ""


def _fp8(s: Fields, plain: Format) -> Precision:
    block = s.whole("weight_block_size", least=1)
    form = formats.FP8 if not block else Format("fp8", 8, 32 / (block[0] * block[-1]))
    named = _quantized_layers(s) if s.has("quantized_layers") else {}
    # With named layers, what is skipped is skipped by the second quantization and stays FP8.
    return _made("fp8", plain, form, [] if named else _skipped(s), named=named, kv=kv_of(s))


def _algorithm(s: Fields, name: str, group: int) -> Format:
    algorithm = s.text(name)
    if algorithm not in _ALGORITHMS:
        raise s.wrong(name, f"one of {', '.join(_ALGORITHMS)}")
    if algorithm in ("W4A16", "W4A16_AWQ", "W4A8_AWQ") and group:
        return formats.grouped_integer(4, group, zero_points=False)
    return _ALGORITHMS[algorithm]


def _quantized_layers(s: Fields) -> dict[str, Format]:
    layers = s.inner("quantized_layers")
    if layers is None:
        raise s.wrong("quantized_layers", "an object, as quant_algo is MIXED_PRECISION")
    named = {}
    for name in layers.values:
        one = layers.inner(name)
        if one is None:
            raise layers.wrong(name, "an object")
        named[name] = _algorithm(one, "quant_algo", one.integer("group_size", default=0))
    return named


def _modelopt(s: Fields, plain: Format) -> Precision:
    if s.text("quant_algo") == "MIXED_PRECISION":
        return _made("modelopt", plain, plain, _skipped(s), named=_quantized_layers(s), kv=kv_of(s))
    form = _algorithm(s, "quant_algo", s.integer("group_size", default=0))
    return _made("modelopt", plain, form, _skipped(s), kv=kv_of(s))


def _compressed_tensors(s: Fields, plain: Format) -> Precision:
    groups = s.inner("config_groups")
    if groups is None or not groups.values:
        raise s.wrong("config_groups", "an object with at least one group")
    if s.text("format", default="") == "dense":
        return _made("compressed-tensors", plain, plain, [])
    default, named = plain, {}
    for name in groups.values:
        group = groups.inner(name)
        weights = group.inner("weights") if group is not None else None
        if group is None or weights is None:
            raise groups.wrong(name, "an object with weights")
        form = _tensor_format(weights, group.text("format", default=""))
        for target in group.items("targets") or ["Linear"]:
            if target == "Linear":
                default = form
            elif isinstance(target, str):
                named[target] = form
    return _made("compressed-tensors", plain, default, _skipped(s), named=named, kv=kv_of(s))


def _tensor_format(w: Fields, layout: str) -> Format:
    bits, kind = w.integer("num_bits"), w.text("type")
    group = w.integer("group_size", default=0, least=-1)
    if kind == "int" and bits in (2, 3, 4, 8):
        return formats.grouped_integer(bits, group, zero_points=not w.flag("symmetric", default=True))
    if kind == "float" and bits == 8:
        block = w.whole("block_structure", least=1)
        if group == 32:
            return formats.MXFP8
        return Format("fp8", 8, 32 / (block[0] * block[-1])) if block else formats.FP8
    if kind == "float" and bits == 4 and group in (16, 32):
        return formats.NVFP4 if group == 16 and "mx" not in layout else formats.MXFP4
    raise w.wrong("num_bits", "int of 2, 3, 4 or 8 bits, float of 8, or float of 4 in groups of 16 or 32")


def _integer(s: Fields, plain: Format, *, zero_points: bool) -> Precision:
    bits = s.integer("bits", "w_bit")
    if bits not in (2, 3, 4, 8):
        raise s.wrong("bits", "2, 3, 4 or 8")
    group = s.integer("group_size", "q_group_size", default=128, least=-1)
    skipped = _skipped(s)
    blocks = (
        s.text("block_name_to_quantize", default="") if isinstance(s.values.get("block_name_to_quantize"), str) else ""
    )
    form = formats.grouped_integer(bits, group, zero_points=zero_points)
    special = _autoround_exceptions(s, plain)
    rules = (Rule(r"^mtp", plain),) if blocks else ()
    return _made(s.text("quant_method"), plain, form, skipped, named=special, rules=rules)


def _autoround_exceptions(s: Fields, plain: Format) -> dict[str, Format]:
    """AutoRound's ``extra_config`` and GPTQModel's ``dynamic``: modules with other bits, 16 meaning not quantized."""
    named = {}
    extra = s.inner("extra_config")
    for name in extra.values if extra is not None else ():
        one = extra.inner(name) if extra is not None else None
        if one is not None and not any(sign in name for sign in "*+\\("):
            bits = one.integer("bits", default=16)
            group = one.integer("group_size", default=128, least=-1)
            named[name] = plain if bits >= 16 else formats.grouped_integer(bits, group, zero_points=False)
    return named


def _awq(s: Fields, plain: Format) -> Precision:
    return _integer(s, plain, zero_points=s.flag("zero_point", default=True))


def _gptq(s: Fields, plain: Format) -> Precision:
    # The packed zero points are stored even where the scheme is symmetric.
    return _integer(s, plain, zero_points=True)


def _bitsandbytes(s: Fields, plain: Format) -> Precision:
    if s.flag("load_in_8bit", "_load_in_8bit") and not s.flag("load_in_4bit", "_load_in_4bit"):
        return _made("bitsandbytes", plain, formats.INT8, _skipped(s))
    if not s.flag("load_in_4bit", "_load_in_4bit"):
        raise s.wrong("load_in_4bit", "true, or load_in_8bit true")
    double = s.flag("bnb_4bit_use_double_quant")
    return _made("bitsandbytes", plain, formats.NF4_DOUBLE if double else formats.NF4, _skipped(s))


def _mxfp4(s: Fields, plain: Format) -> Precision:
    skipped = [*_skipped(s), "*.self_attn.*", "*.gate"]
    return _made("mxfp4", plain, formats.MXFP4, skipped)


def _quark(s: Fields, plain: Format) -> Precision:
    whole = s.inner("global_quant_config")
    weight = whole.inner("weight") if whole is not None else None
    if weight is None:
        raise s.wrong("global_quant_config", "an object with weight")
    known = {"fp4": formats.MXFP4, "fp8_e4m3": formats.FP8, "int8": formats.INT8}
    name = weight.text("dtype")
    if name not in known:
        raise weight.wrong("dtype", f"one of {', '.join(known)}")
    s.read.add("exclude")
    return _made("quark", plain, known[name], s.values.get("exclude") or [])


_METHODS: dict[str, Callable[[Fields, Format], Precision]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "modelopt_mixed": _modelopt,
    "compressed-tensors": _compressed_tensors,
    "awq": _awq,
    "gptq": _gptq,
    "auto-round": _gptq,
    "intel/auto-round": _gptq,
    "bitsandbytes": _bitsandbytes,
    "mxfp4": _mxfp4,
    "quark": _quark,
}
