"""Which formats of weights and caches an engine computes on which chip, and where experts' slices end.

From vLLM's page "Supported hardware" of its quantization section, and its Marlin kernels: weights in a format that
the chip has no unit for are widened to BF16 on the way into the multiplier. Versions change this; a refusal here says
which rule refused.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from setpoint.hardware import Accelerator
from setpoint.models.layer import Dense, Experts
from setpoint.models.precision import Format
from setpoint.models.spec import ModelSpec
from setpoint.sizing.deployment import Deployment

How = Literal["native", "widened", "no"]

_NVIDIA = ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")
_AMD = ("CDNA3", "CDNA4")
# format: (first NVIDIA generation that computes in it, first that widens it, AMD generations that take it)
_FORMATS: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "fp8": ("Ada", "Ampere", _AMD),
    "mxfp8": ("Blackwell", "Ampere", ("CDNA4",)),
    "nvfp4": ("Blackwell", "Ampere", ()),
    "mxfp4": ("Blackwell", "Ampere", _AMD),
    "int8": ("Turing", "Turing", _AMD),
    "nf4": ("", "Turing", _AMD),
}
_OTHERS = ("", "Turing", _AMD)  # integers in groups and GGUF types: always widened
_CACHE_IN_FP8 = ("Ada", "Hopper", "Blackwell", *_AMD)


@dataclass(frozen=True, slots=True)
class Support:
    """How a chip takes a format.

    Attributes:
        how: ``native``, ``widened`` to 16 bits for the product, or ``no``.
        note: A sentence; empty when there is nothing to say.
    """

    how: How
    note: str = ""


def known_chip(chip: Accelerator) -> str:
    """Why the engines' memory rules are not known on a chip; empty when they are."""
    if _generation(chip) or chip.architecture in _AMD:
        return ""
    return f"How vLLM and SGLang account for memory on {chip.architecture} is not known: no start-up log was found."


def weights_on(form: Format, chip: Accelerator) -> Support:
    """How weights of a format are computed on a chip."""
    if form.name == "bf16" and "bf16" not in chip.flops:
        return Support("widened", f"{chip.name} has no BF16: start the engine with --dtype half.")
    if form.name in ("bf16", "fp16", "fp32"):
        return Support("native")
    native, widened, amd = _FORMATS.get(form.name, _OTHERS)
    if chip.architecture in _AMD:
        if chip.architecture not in amd:
            return Support("no", f"{form.name.upper()} weights are not computed on {chip.architecture}.")
        return Support("native" if form.name in chip.flops else "widened")
    rank = _NVIDIA.index(_generation(chip))
    if native and rank >= _NVIDIA.index(native):
        return Support("native")
    if rank >= _NVIDIA.index(widened):
        return Support(
            "widened", f"{form.name.upper()} weights are widened to 16 bits: fewer bytes, no faster products."
        )
    return Support("no", f"{form.name.upper()} weights need {widened} or later; {chip.name} is {chip.architecture}.")


def cache_on(kv_dtype: str, chip: Accelerator) -> str:
    """Why a cache of that type is not kept on a chip; empty when it is."""
    if not kv_dtype.startswith("fp8") or (_generation(chip) or chip.architecture) in _CACHE_IN_FP8:
        return ""
    return f"An FP8 cache needs Ada, Hopper, Blackwell or CDNA3; {chip.name} is {chip.architecture}."


def _generation(chip: Accelerator) -> str:
    if chip.vendor != "NVIDIA":
        return ""
    return next((word for word in _NVIDIA if chip.architecture.startswith(word)), "")


def group_of(form: Format) -> int:
    """Weights that share a scale along the input; 1 when slices may end anywhere."""
    if form.overhead_bits == 0 or form.name in ("nf4", "fp32", "bf16", "fp16"):
        return 1
    if form.name == "fp8":
        return round(math.sqrt(32 / form.overhead_bits))
    if form.name in ("nvfp4", "mxfp4", "mxfp8"):
        return 16 if form.name == "nvfp4" else 32
    for scale in (16, 16 + form.bits):
        group = scale / form.overhead_bits
        if group.is_integer() and int(group) & (int(group) - 1) == 0:
            return int(group)
    return 1


def cut_through(spec: ModelSpec, deployment: Deployment) -> str:
    """Why quantization groups do not allow a split; empty when they do.

    The down projection is sliced along its input, so a slice must hold whole groups; engines refuse to load otherwise
    ("not aligned with the quantized weight shape", "not divisible by weight quantization block_n").
    """
    group = group_of(spec.precision.quantized)
    if group == 1 or (spec.precision.quantized.name == "mxfp4" and deployment.engine.name == "vllm"):
        return ""
    for layer in spec.layers:
        part = layer.feed_forward
        ranks = deployment.tp
        if isinstance(part, Dense):
            width = part.width
        elif isinstance(part, Experts) and not deployment.expert_parallel:
            width, ranks = part.width, deployment.tp * deployment.dp
        else:
            continue
        if width % ranks or width // ranks % group:
            return (
                f"An intermediate size of {width:,} over {ranks} ranks is not a whole number of quantization groups "
                f"of {group}."
            )
    return ""
