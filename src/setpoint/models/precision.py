"""How weights are stored: bytes per weight, scales included, and which modules are stored how.

Sources of the layouts: OCP Microscaling specification 1.0 (MXFP4, MXFP8: one 8-bit scale per 32 values), NVIDIA
NVFP4 (one FP8 scale per 16 values, and one FP32 scale a tensor), DeepSeek-V3 (FP8 with one FP32 scale per 128 by 128
block), AWQ and GPTQ (16-bit scale and packed zero point per group), QLoRA (NF4: 32-bit scale per 64 values; with
double quantization an 8-bit one, and a 32-bit one per 256 of those).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class Format:
    """One way to store a weight matrix.

    Attributes:
        name: ``bf16``, ``fp8``, ``nvfp4``, ``mxfp4``, ``int4``…
        bits: Bits of one value.
        overhead_bits: Bits of scales and zero points per value, on average.
    """

    name: str
    bits: float
    overhead_bits: float = 0.0

    @property
    def bytes_per_weight(self) -> float:
        """Scales and zero points included."""
        return (self.bits + self.overhead_bits) / 8


FP32 = Format("fp32", 32)
BF16 = Format("bf16", 16)
FP16 = Format("fp16", 16)
FP8 = Format("fp8", 8)
FP8_BLOCK128 = Format("fp8", 8, 32 / (128 * 128))
INT8 = Format("int8", 8)
NVFP4 = Format("nvfp4", 4, 8 / 16)
MXFP4 = Format("mxfp4", 4, 8 / 32)
MXFP8 = Format("mxfp8", 8, 8 / 32)
NF4 = Format("nf4", 4, 32 / 64)
NF4_DOUBLE = Format("nf4", 4, 8 / 64 + 32 / (64 * 256))


def grouped_integer(bits: int, group: int, *, zero_points: bool) -> Format:
    """Integers with a 16-bit scale, and with asymmetric schemes a packed zero point, per group of one column."""
    return Format(f"int{bits}", bits, (16 + (bits if zero_points else 0)) / group if group > 0 else 0.0)


@dataclass(frozen=True, slots=True)
class Rule:
    """Modules whose name a pattern matches are stored in a format.

    Attributes:
        pattern: Regular expression, searched in the module's name from ``layers.`` on (or the whole name outside
            the layers).
        format: The format there.
    """

    pattern: str
    format: Format


@dataclass(frozen=True, slots=True)
class Precision:
    """How the checkpoint stores its weights.

    Attributes:
        method: ``none``, ``fp8``, ``modelopt``, ``compressed-tensors``, ``awq``, ``gptq``, ``bitsandbytes``,
            ``mxfp4``, ``gguf``...
        unquantized: Format of everything that is not quantized.
        quantized: Format of the linear layers inside the decoder that nothing below names.
        exact: Module name (from ``layers.`` on) to the format of everything below it; the longest name wins.
        rules: Patterns, tried after ``exact``; the first match wins.
        kv: Element type of the KV cache that the checkpoint asks for; empty when it does not.
    """

    method: str
    unquantized: Format
    quantized: Format
    exact: Mapping[str, Format] = field(default_factory=dict, hash=False)
    rules: tuple[Rule, ...] = ()
    kv: str = ""

    def of(self, name: str, *, linear: bool) -> Format:
        """The format of a module.

        Args:
            name: Its name from ``layers.`` on, or the whole name outside the layers.
            linear: A matrix inside the decoder or the output head; embeddings, norms and convolutions never are.
        """
        part = name if self.exact else ""
        while part:
            if part in self.exact:
                return self.exact[part]
            part = part.rpartition(".")[0] if linear else ""
        if not linear:
            return self.unquantized
        for rule in self.rules:
            if _compiled(rule.pattern).search(name):
                return rule.format
        return self.quantized


@lru_cache(maxsize=65536)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
