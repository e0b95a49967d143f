"""Licences of open-weight models: what a model card states, and what it means for commercial use.

Not legal advice, and assumed: the entries were written from general knowledge and have not been compared with the
sources they name. Whoever decides by one must read its source.
"""

import re
from dataclasses import dataclass
from typing import Literal

import yaml

Commercial = Literal["yes", "limited", "no", "unknown"]
LONGEST_FRONT_MATTER = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Licence:
    """One licence.

    Attributes:
        id: As model cards write it.
        name: Its full name.
        commercial: Whether commercial use is allowed.
        limit: The clause that limits; empty when there is none.
        source: Where the terms stand.
    """

    id: str
    name: str
    commercial: Commercial
    limit: str
    source: str


_HUB = "https://huggingface.co/docs/hub/repositories-licenses"
_LLAMA = "more than 700 million monthly users need a licence from Meta; 'Built with Llama' must be shown"
_ROWS: tuple[tuple[str, str, Commercial, str, str], ...] = (
    ("apache-2.0", "Apache License 2.0", "yes", "", "https://www.apache.org/licenses/LICENSE-2.0"),
    ("mit", "MIT License", "yes", "", "https://opensource.org/license/mit"),
    ("bsd-3-clause", "BSD 3-Clause", "yes", "", "https://opensource.org/license/bsd-3-clause"),
    ("cc-by-4.0", "CC BY 4.0", "yes", "the source must be named", "https://creativecommons.org/licenses/by/4.0/"),
    ("cc-by-sa-4.0", "CC BY-SA 4.0", "limited", "derivatives under the same licence",
     "https://creativecommons.org/licenses/by-sa/4.0/"),
    ("cc-by-nc-4.0", "CC BY-NC 4.0", "no", "not for commercial use",
     "https://creativecommons.org/licenses/by-nc/4.0/"),
    ("cc-by-nc-sa-4.0", "CC BY-NC-SA 4.0", "no", "not for commercial use",
     "https://creativecommons.org/licenses/by-nc-sa/4.0/"),
    ("llama2", "Llama 2 Community License", "limited", _LLAMA, "https://ai.meta.com/llama/license/"),
    ("llama3", "Llama 3 Community License", "limited", _LLAMA, "https://www.llama.com/llama3/license/"),
    ("llama3.1", "Llama 3.1 Community License", "limited", _LLAMA, "https://www.llama.com/llama3_1/license/"),
    ("llama3.2", "Llama 3.2 Community License", "limited",
     _LLAMA + "; vision models not for companies and residents of the EU", "https://www.llama.com/llama3_2/license/"),
    ("llama3.3", "Llama 3.3 Community License", "limited", _LLAMA, "https://www.llama.com/llama3_3/license/"),
    ("llama4", "Llama 4 Community License", "limited", _LLAMA + "; not for companies and residents of the EU",
     "https://www.llama.com/llama4/license/"),
    ("gemma", "Gemma Terms of Use", "limited", "use restrictions must be passed on to users",
     "https://ai.google.dev/gemma/terms"),
    ("qwen", "Tongyi Qianwen License", "limited", "more than 100 million monthly users need a licence from Alibaba",
     "https://huggingface.co/Qwen/Qwen2.5-72B-Instruct/blob/main/LICENSE"),
    ("qwen-research", "Qwen Research License", "no", "not for commercial use",
     "https://huggingface.co/Qwen/Qwen2.5-3B-Instruct/blob/main/LICENSE"),
    ("deepseek", "DeepSeek Model License", "limited", "use restrictions must be passed on to users",
     "https://github.com/deepseek-ai/DeepSeek-V3/blob/main/LICENSE-MODEL"),
    ("modified-mit", "Modified MIT License", "limited",
     "above 100 million monthly users or 20 million USD a month the model's name must be shown (Kimi K2)",
     "https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/LICENSE"),
    ("nvidia-open-model-license", "NVIDIA Open Model License", "yes", "guardrails must not be removed",
     "https://www.nvidia.com/en-us/agreements/enterprise-software/nvidia-open-model-license/"),
    ("mrl", "Mistral AI Research License", "no", "commercial use needs a licence from Mistral",
     "https://mistral.ai/licenses/MRL-0.1.md"),
    ("mnpl", "Mistral AI Non-Production License", "no", "not in production",
     "https://mistral.ai/licenses/MNPL-0.1.md"),
    ("bigscience-openrail-m", "BigScience OpenRAIL-M", "limited", "use restrictions must be passed on to users",
     "https://bigscience.huggingface.co/blog/bigscience-openrail-m"),
    ("bigcode-openrail-m", "BigCode OpenRAIL-M", "limited", "use restrictions must be passed on to users",
     "https://huggingface.co/spaces/bigcode/bigcode-model-license-agreement"),
    ("lfm1.0", "LFM Open License 1.0", "limited", "not for companies above 10 million USD of yearly revenue",
     "https://www.liquid.ai/lfm-license"),
)  # fmt: skip
LICENCES = {row[0]: Licence(*row) for row in _ROWS}
_SYNONYMS = {
    "mistral-ai-research-licence": "mrl", "mistral-research": "mrl", "tongyi-qianwen": "qwen", "llama-3.1": "llama3.1",
    "deepseek-license": "deepseek", "nvidia-open-model-license-agreement": "nvidia-open-model-license",
    "kimi-k2-modified-mit": "modified-mit",
}  # fmt: skip
_FRONT = re.compile(r"\A\ufeff?---\s*\n(.*?)\n---\s*(?:\n|\Z)", re.DOTALL)


def licence_named(word: str) -> Licence:
    """The licence that a model card names; ``unknown`` when its terms are not in the table."""
    key = word.strip().lower().replace(" ", "-").replace("_", "-")
    key = _SYNONYMS.get(key, key)
    unread = Licence(word[:80], word[:80], "unknown", "its terms are not known here: read them", _HUB)
    return LICENCES.get(key, unread)


def licence_of_card(readme: str) -> Licence | None:
    """The licence in the front matter of a model card; None when it states none.

    ``license: other`` is resolved by ``license_name``.
    """
    match = _FRONT.match(readme[:LONGEST_FRONT_MATTER])
    if match is None:
        return None
    try:
        front = yaml.safe_load(match.group(1))
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    if not isinstance(front, dict):
        return None
    word = front.get("license")
    if isinstance(word, list):
        word = word[0] if word else None
    if word == "other" and isinstance(front.get("license_name"), str):
        word = front["license_name"]
    return licence_named(word) if isinstance(word, str) and word else None
