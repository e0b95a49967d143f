"""A kernel's run, and which family its name belongs to."""

import re
from dataclasses import dataclass

# The first pattern that fits decides. Names as NVIDIA's libraries, Triton, PyTorch, FlashAttention, FlashInfer and
# vLLM give them; a name that fits none is ``other``, never guessed.
FAMILIES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (family, re.compile(pattern, re.IGNORECASE))
    for family, pattern in (
        ("copy", r"memcpy|memset"),
        ("communication", r"nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|cross_device_reduce|multimem"),
        ("mixture of experts", r"\bmoe|_moe|topk_?softmax|topkgating|grouped_?gemm|expert"),
        ("KV cache", r"reshape_and_cache|kv_?cache|concat_and_cache|copy_blocks|swap_blocks"),
        ("attention", r"flash|fmha|attention|attn|paged|mla_|prefill.*kernel|decode.*kernel|splitkv"),
        ("quantization", r"quant|dequant|scaled_fp8|cvt_|fp8_cast"),
        ("matrix multiplication", r"gemm|gemv|cutlass|cublas|wgmma|matmul|nvjet|xmma|splitk|marlin|machete|_mm_"),
        ("normalization", r"norm"),
        ("rotary embedding", r"rotary|rope"),
        ("activation", r"silu|gelu|swiglu|act_and_mul|relu"),
        ("sampling", r"sampl|softmax|argmax|topk|top_k|top_p|multinomial|penalt|sort|cumsum|scan"),
        ("embedding", r"embedding|gather|index_select|indexselect"),
        ("elementwise", r"elementwise|vectorized|copy_kernel|fill|triton_poi|triton_red|triton_per|reduce_kernel|cat"),
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel, or one copy, on one device.

    Attributes:
        name: As recorded.
        device: Its number.
        stream: Likewise.
        start_s: On the trace's clock.
        length_s: Its time.
        flops: Floating-point operations; None where no shapes were recorded.
        bytes: Bytes that it must move at least; None likewise.
    """

    name: str
    device: int
    stream: int
    start_s: float
    length_s: float
    flops: float | None = None
    bytes: float | None = None

    @property
    def end_s(self) -> float:
        """When it was over."""
        return self.start_s + self.length_s

    @property
    def family(self) -> str:
        """What it does, by its name."""
        return family_of(self.name)


def family_of(name: str) -> str:
    """The family of a kernel's name; ``other`` when none fits."""
    return next((family for family, pattern in FAMILIES if pattern.search(name)), "other")
