"""The same model with its linear layers stored in another format, as LLM Compressor and its like would store it."""

from collections.abc import Mapping
from dataclasses import replace

from setpoint.models import precision as formats
from setpoint.models.precision import Format, Precision, Rule
from setpoint.models.spec import ModelSpec

TARGETS: Mapping[str, Format] = {
    "fp8": formats.FP8,
    "int4": formats.grouped_integer(4, 128, zero_points=True),
    "nvfp4": formats.NVFP4,
}
"""Formats that an unquantized checkpoint is commonly converted to: FP8 per channel, AWQ in groups of 128, NVFP4."""


def requantized(spec: ModelSpec, target: str) -> ModelSpec:
    """The model with every linear layer of the decoder in a format of ``TARGETS``.

    Embedding, output head, routers and norms keep their type, which is the default recipe of LLM Compressor.
    """
    plain = spec.precision.unquantized
    precision = Precision(
        method=target,
        unquantized=plain,
        quantized=TARGETS[target],
        rules=(Rule(r"^lm_head$", plain), Rule(r"^mtp", plain)),
        kv=spec.precision.kv,
    )
    return replace(spec, precision=precision)


def choices(spec: ModelSpec) -> dict[str, ModelSpec]:
    """The model as stored, by the name of its format, and what it could be converted to when it is not quantized."""
    stored = spec.precision.quantized.name
    if spec.precision.method != "none":
        return {stored: spec}
    return {stored: spec, **{name: requantized(spec, name) for name in TARGETS}}
