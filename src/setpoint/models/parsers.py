"""Which tool-call and reasoning parsers engines have for a model.

Names are vLLM's, from its pages "Tool calling" and "Reasoning outputs" (https://docs.vllm.ai/en/latest/features/).
"""

import re
from dataclasses import dataclass

from setpoint.models.spec import ModelSpec


@dataclass(frozen=True, slots=True)
class Parsers:
    """Parsers for one model.

    Attributes:
        tools: vLLM's ``--tool-call-parser``; None when none is known.
        reasoning: vLLM's ``--reasoning-parser``; None when none is known, or the model does not reason.
    """

    tools: str | None
    reasoning: str | None


# (model_type, pattern in the name, tools, reasoning): the first row that matches both.
_ROWS: tuple[tuple[str, str, str | None, str | None], ...] = (
    ("llama4|llama4_text", "", "llama4_pythonic", None),
    ("llama", r"deepseek-r1", None, "deepseek_r1"),
    ("llama", r"hermes", "hermes", None),
    ("llama", r"llama-?3([.\-_]|$)", "llama3_json", None),
    ("qwen2", r"deepseek-r1|qwq", "hermes", "deepseek_r1"),
    ("qwen2|qwen2_moe|qwen2_5_vl|qwen2_vl", "", "hermes", None),
    ("qwen3_moe|qwen3_next", r"coder", "qwen3_coder", None),
    ("qwen3|qwen3_moe|qwen3_next|qwen3_vl|qwen3_vl_moe", "", "hermes", "qwen3"),
    ("qwen3_5|qwen3_5_moe", "", "qwen3_coder", "qwen3"),
    ("deepseek_v3", r"v3\.1", "deepseek_v31", "deepseek_v3"),
    ("deepseek_v3", "", "deepseek_v3", "deepseek_r1"),
    ("deepseek_v32", "", "deepseek_v32", "deepseek_v3"),
    ("deepseek_v4|deepseek_ref", "", "deepseek_v4", "deepseek_v4"),
    ("kimi_k2|kimi_k25|kimi_k3", "", "kimi_k2", "kimi_k2"),
    ("glm4_moe|glm4_moe_lite", "", "glm45", "glm45"),
    ("glm_moe_dsa", "", "glm47", "glm45"),
    ("gpt_oss", "", "openai", "openai_gptoss"),
    ("minimax_m2", "", "minimax_m2", "minimax_m2_append_think"),
    ("minimax|minimax_text_01", "", "minimax", None),
    ("mistral|mistral3|ministral|ministral3|mixtral", r"magistral", "mistral", "mistral"),
    ("mistral|mistral3|ministral|ministral3|mixtral", "", "mistral", None),
    ("granite|granitemoe|granitemoehybrid", "", "granite", "granite"),
    ("gemma4", "", "gemma4", "gemma4"),
    ("seed_oss", "", "seed_oss", "seed_oss"),
    ("ernie4_5_moe|ernie4_5", "", "ernie45", "ernie45"),
    ("hunyuan_v1_moe|hunyuan_v1_dense", "", "hunyuan_a13b", "hunyuan_a13b"),
    ("internlm2|internlm3", "", "internlm", None),
    ("jamba", "", "jamba", None),
    ("olmo3", "", "olmo3", "olmo3"),
    ("nemotron_h", r"nemotron-3", "qwen3_coder", "nemotron_v3"),
    ("phi3", r"phi-?4-mini", "phi4_mini_json", None),
    ("step3p7", "", "step3p5", "step3p5"),
)  # fmt: skip


def parsers_of(spec: ModelSpec) -> Parsers:
    """The parsers for a model, by its type and name."""
    name = spec.name.lower()
    for kinds, pattern, tools, reasoning in _ROWS:
        if spec.model_type in kinds.split("|") and re.search(pattern, name):
            return Parsers(tools, reasoning)
    return Parsers(None, None)
