"""GGUF to a bf16 checkpoint, for engines that read no GGUF.

Runs in the engine's own environment: ``python gguf_checkpoint.py MODEL.gguf FOLDER``. It needs ``transformers``,
``torch``, ``gguf`` and ``accelerate``, and nothing of Setpoint.
"""

import sys
from pathlib import Path


def convert(source: Path, folder: Path) -> None:
    """Writes configuration, weights (bf16, safetensors), tokenizer and chat template into ``folder``."""
    import torch  # noqa: PLC0415 - of the engine's environment
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig  # noqa: PLC0415

    where = {"pretrained_model_name_or_path": str(source.parent), "gguf_file": source.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    plain = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.bfloat16, quantization_config=plain)
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.hf_quantizer = None  # the weights are plain now
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)
    if tokenizer.chat_template:
        (folder / "chat_template.jinja").write_text(tokenizer.chat_template, encoding="utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
