"""Model folders of the tests: each model's own ``config.json``, reduced to what decides about memory and speed."""

from pathlib import Path

FOLDER = Path(__file__).parent / "fixtures"
LLAMA_70B = FOLDER / "Llama-3.1-70B-Instruct"
GPT_OSS = FOLDER / "gpt-oss-120b"
QWEN_HYBRID = FOLDER / "Qwen3.5-27B"
QWEN_MOE = FOLDER / "Qwen3-30B-A3B"
