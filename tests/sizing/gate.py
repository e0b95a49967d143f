"""How each row of ``kv_truth.csv`` is held against the rules: the model, the deployment, and what the row can show.

A row says what an engine printed. Nothing here states a result: specs come from configurations, deployments from the
row's columns and notes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.models import specs
from tests.models.specs import stored

from setpoint.models.spec import ModelSpec
from setpoint.sizing.deployment import Deployment
from setpoint.sizing.engine import engine_of


@dataclass(frozen=True)
class Case:
    """One row.

    Attributes:
        row: Its index in the table.
        kind: ``uniform`` (tokens from bytes), ``exact`` (hybrid: tokens and concurrency to the digit, within the
            rounding of the printed GiB), ``printed`` (no bytes given: a whole number of blocks gives both figures),
            ``smaller_rank`` (the printed bytes are of another rank than the one that decides).
        spec: The model.
        deployment: How it was run.
        batch: ``max_num_batched_tokens``.
    """

    row: int
    kind: str
    spec: Callable[[], ModelSpec]
    deployment: Deployment
    batch: int = 2048


def case(
    row: int,
    kind: str,
    spec: str | ModelSpec,
    engine: str,
    longest: int = 32768,
    batch: int = 2048,
    **more: Any,  # noqa: ANN401 - fields of Deployment
) -> Case:
    name, version, *core = engine.split()
    made = engine_of(name, version, core[0] if core else None)  # type: ignore[arg-type]
    found = (lambda: stored(spec)) if isinstance(spec, str) else (lambda: spec)
    return Case(row, kind, found, Deployment(made, longest, **more), batch)


Q235 = "Qwen--Qwen3-235B-A22B-FP8"
LLAMA_8B, LLAMA_70B = "meta-llama--Meta-Llama-3.1-8B", "meta-llama--Meta-Llama-3.1-70B"
QWEN_27B = "Qwen--Qwen3.5-27B"
R1, V32 = "deepseek-ai--DeepSeek-R1", "deepseek-ai--DeepSeek-V3.2"
BF16: dict[str, Any] = {"kv_dtype": "bfloat16"}

CASES = [
    case(0, "smaller_rank", Q235, "vllm 0.9.2", tp=4, **BF16),
    case(1, "uniform", Q235, "sglang 0.4.9", tp=4, **BF16),
    case(2, "uniform", Q235, "vllm 0.10.2", tp=8, expert_parallel=True, **BF16),
    case(3, "uniform", Q235, "vllm 0.10.2", tp=8, expert_parallel=True, **BF16),
    case(4, "uniform", Q235, "vllm 0.11.0", tp=8, expert_parallel=True, **BF16),
    case(5, "uniform", LLAMA_8B, "vllm 0.6.4 v0", 20000, **BF16),
    case(6, "uniform", LLAMA_8B, "vllm 0.6.4 v0", 29000, **BF16),
    case(7, "printed", LLAMA_70B, "vllm 0.7.0 v1", 2048, **BF16),
    case(8, "printed", "Qwen--Qwen3-32B", "vllm 0.8.5", 16384, tp=2, **BF16),
    case(9, "uniform", "blis--qwen2.5-7b-instruct", "vllm 0.22.0", 4096, **BF16),
    case(10, "printed", "blis--qwen2.5-7b-instruct", "vllm 0.8.4", 4096, **BF16),
    case(11, "uniform", specs.LLAMA_32_3B, "vllm 0.15.0", 8192, **BF16),
    case(12, "smaller_rank", specs.DISTILL_14B, "vllm 0.7.2 v0", 131072, tp=2, **BF16),
    case(14, "uniform", LLAMA_8B, "vllm 0.10.1", 8192, **BF16),
    case(15, "uniform", specs.PHI_4, "vllm 0.7.3 v0", 512, **BF16),
    case(16, "uniform", specs.QWEN_25_05B, "vllm 0.7.3 v0", 32768, **BF16),
    case(17, "printed", "Qwen--Qwen3-30B-A3B", "vllm 0.8.5", 40960, tp=2, **BF16),
    case(19, "uniform", "moonshotai--Kimi-K2-Instruct", "vllm 0.11.0", 131072, tp=8, **BF16),
    case(20, "printed", R1, "vllm 0.8.4 v1", 138, tp=16, **BF16),
    case(21, "printed", V32, "vllm 0.14.0", 163840, tp=8, pp=4, **BF16),
    case(23, "exact", specs.GEMMA_3_27B, "vllm 0.11.0rc2", 4096, batch=8192, **BF16),
    case(24, "exact", specs.QWEN_35_9B, "vllm 0.19.0", 262144, prefix_caching=False, **BF16),
    case(25, "exact", "nvidia--Qwen3.6-27B-NVFP4", "vllm 0.21.0", 262144, tp=2, kv_dtype="fp8_e5m2"),
    case(
        26,
        "exact",
        "nvidia--Qwen3.6-27B-NVFP4",
        "vllm 0.24.0",
        262144,
        tp=2,
        kv_dtype="fp8",
        speculative_tokens=3,
        draft_layers=1,
    ),
    case(27, "exact", "nvidia--Qwen3.6-35B-A3B-NVFP4", "vllm 0.24.0", 131072, kv_dtype="fp8"),
    # The three rows of one recipe give no bytes. Qwen3.8-27B has the layers of Qwen3.5-27B (its own logs: block 784).
    # The first two are whole numbers of blocks with 16-bit keys only, though the table says fp8.
    case(30, "printed", QWEN_27B, "vllm 0.26.1rc1.dev608", 262144, tp=2, draft_layers=1, **BF16),
    case(31, "printed", QWEN_27B, "vllm 0.26.1rc1.dev608", 262144, tp=2, draft_layers=1, **BF16),
    case(32, "printed", QWEN_27B, "vllm 0.26.1rc1.dev608", 262144, tp=2, draft_layers=1, kv_dtype="fp8"),
    case(44, "uniform", specs.QWQ_32B, "sglang 0.4.3", 131072, tp=4, **BF16),
    case(45, "uniform", QWEN_27B, "sglang 0.5.9", 2048, **BF16),
    case(46, "uniform", "blis--qwen2.5-7b-instruct", "sglang 0.5.4", **BF16),
    case(48, "uniform", specs.LING_MLA, "sglang 0.5.12", 262144, **BF16),
    case(49, "uniform", specs.LING_MLA, "sglang 0.5.12", 262144, **BF16),
    case(50, "uniform", specs.GEMMA_4_E4B, "sglang 0.5.13", **BF16),
]

ELSEWHERE = {
    13: "states a budget: test_plan",
    18: "an error message: test_vllm_pool",
    22: "a ratio: test_vllm_pool",
    29: "states a budget: test_plan",
    36: "fails to start: test_plan",
    37: "states weights only: test_plan",
    38: "states a budget: test_plan",
    39: "states a budget: test_plan",
    40: "states a budget: test_plan",
    41: "states a budget: test_plan",
    42: "states a budget: test_plan",
    43: "states a budget: test_plan",
}

UNKNOWN = {
    28: "the drafter's layers are not stated",
    33: "neither model nor KV type is stated",
    34: "a fork's KV type (nvfp4_ds_mla)",
    35: "a fork's KV type (nvfp4_ds_mla)",
    47: "an engine bug: the pool is sized by temporaries of the loader",
}
