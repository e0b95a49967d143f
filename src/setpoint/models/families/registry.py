"""Every ``model_type`` that is understood, and the family that reads it."""

from collections.abc import Callable

from setpoint.models.families import decoder, hybrid, interleaved, latent
from setpoint.models.families.body import Body
from setpoint.models.fields import Fields

Family = Callable[[Fields], Body]

FAMILIES: dict[str, Family] = {
    **dict.fromkeys(
        (
            "llama", "mistral", "mistral3", "ministral", "ministral3", "qwen2", "qwen2_vl", "qwen2_vl_text",
            "qwen2_5_vl", "qwen2_5_vl_text", "mimo", "phi3", "granite", "internlm2", "internlm3", "smollm3", "seed_oss",
            "glm", "glm4", "exaone", "olmo", "olmo2", "stablelm", "baichuan", "gemma", "ernie4_5", "hunyuan_v1_dense",
            "arcee", "apertus",
        ),
        decoder.decoder,
    ),
    **dict.fromkeys(("qwen3", "qwen3_text", "qwen3_vl", "qwen3_vl_text"), decoder.qwen),
    **dict.fromkeys(("cohere",), decoder.tied_decoder),
    **dict.fromkeys(("starcoder2", "gpt_neox", "phi", "nemotron"), decoder.plain),
    **dict.fromkeys(
        (
            "mixtral", "qwen2_moe", "qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text", "minimax_m2", "glm4_moe",
            "phimoe", "olmoe", "granitemoe", "ernie4_5_moe", "dots1", "bailing_moe", "hunyuan_v1_moe", "glm4v_moe_text",
        ),
        decoder.mixture,
    ),
    "gpt_oss": decoder.mixture,
    "nemotron-nas": decoder.nemotron_nas,
    "deci": decoder.nemotron_nas,
    "mimo_v2_flash": decoder.mimo_v2,
    "gemma2": interleaved.gemma2,
    "gemma3_text": interleaved.gemma3,
    "gemma3": interleaved.gemma3,
    "gemma4": interleaved.gemma4,
    "gemma4_text": interleaved.gemma4,
    "cohere2": interleaved.cohere2,
    "olmo3": interleaved.every_fourth,
    "exaone4": interleaved.every_fourth,
    "llama4": interleaved.llama4,
    "llama4_text": interleaved.llama4,
    "step3p7": interleaved.step3,
    **dict.fromkeys(
        (
            "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "glm4_moe_lite",
            "minicpm3",
        ),
        latent.deepseek,
    ),
    "deepseek_v4": latent.deepseek_v4,
    "deepseek_ref": latent.deepseek_v4,
    "minimax_m3": latent.minimax_m3,
    "minimax_m3_vl": latent.minimax_m3,
    "nemotron_h": hybrid.nemotron_h,
    **dict.fromkeys(
        ("qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"), hybrid.qwen3_next
    ),
    "granitemoehybrid": hybrid.granite_hybrid,
    "bamba": hybrid.bamba,
    "lfm2": hybrid.lfm2,
    "lfm2_moe": hybrid.lfm2,
    "jamba": hybrid.jamba,
    "minimax": hybrid.minimax_text,
    "minimax_text_01": hybrid.minimax_text,
    "kimi_linear": hybrid.kimi_linear,
    "kimi_k3": hybrid.kimi_linear,
}  # fmt: skip
