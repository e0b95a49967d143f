"""Engines and what changed in their memory accounting, by version.

Every date below is tied to a start-up log in the gate (``tests/sizing``) or to the engine's source; where only the
logs on both sides of a change are known, the note says so.
"""

import re
from dataclasses import dataclass
from typing import Literal

from setpoint.errors import UsageError

Name = Literal["vllm", "sglang"]
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:[.\-+]?(?:rc|dev|post|alpha|beta|a|b)\S*)?")
_OLDEST = {"vllm": (0, 5, 0), "sglang": (0, 4, 0)}


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine at one version.

    Attributes:
        name: ``vllm`` or ``sglang``.
        version: (major, minor, patch).
        core: vLLM's generation, ``v0`` or ``v1``; None: the default of the version.
    """

    name: Name
    version: tuple[int, int, int]
    core: Literal["v0", "v1"] | None = None

    @property
    def label(self) -> str:
        """For people: ``vLLM 0.19.0``."""
        word = {"vllm": "vLLM", "sglang": "SGLang"}[self.name]
        return f"{word} {'.'.join(str(part) for part in self.version)}"

    @property
    def is_v0(self) -> bool:
        """VLLM's first engine core: the default before 0.8, gone after 0.10."""
        if self.name != "vllm":
            return False
        return (self.core or ("v0" if self.version < (0, 8) else "v1")) == "v0"

    @property
    def groups_layers(self) -> bool:
        """Windows and states keep only what they need (hybrid KV cache manager, on by default from 0.10)."""
        return self.name == "vllm" and not self.is_v0 and self.version >= (0, 10)

    @property
    def groups_chunks(self) -> bool:
        """Chunked attention too (``VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE``; version assumed)."""
        return self.groups_layers and self.version >= (0, 16)

    @property
    def counts_blocks_of_a_request(self) -> bool:
        """Concurrency is printed as blocks over blocks of a request (from 0.10), before as tokens over tokens."""
        return self.groups_layers

    @property
    def prints_capacity_of_requests(self) -> bool:
        """The printed cache size is concurrency times ``max_model_len`` (logs: not in 0.19 and 0.20, in 0.21)."""
        return self.name == "vllm" and self.version >= (0, 21)

    @property
    def charges_graphs(self) -> bool:
        """CUDA graphs are estimated and taken from the budget before the pool (logs: not in 0.19, in 0.20)."""
        return self.name == "vllm" and self.version >= (0, 20)

    @property
    def caches_states(self) -> bool:
        """Prefix caching of recurrent states is on by default (logs: off in 0.19, on in 0.21)."""
        return self.name == "vllm" and self.version >= (0, 21)

    @property
    def padding_ratio(self) -> float:
        """Layer counts closer than this are padded to one group size: 1.25, later 1.5 (source; version assumed)."""
        return 1.5 if self.version >= (0, 16) else 1.25

    @property
    def in_flight_batches(self) -> int:
        """Batches whose tokens a window must still hold: two with asynchronous scheduling (source; version assumed)."""
        return 2 if self.version >= (0, 26) else 1

    @property
    def follows_checkpoint_kv(self) -> bool:
        """``kv_cache_dtype=auto`` takes the checkpoint's KV quantization (source; version assumed)."""
        return self.name == "vllm" and self.version >= (0, 12)

    @property
    def sampler_bytes(self) -> tuple[float, float, float]:
        """Peak bytes per vocabulary entry and sequence in the profiled sampling step: low, expected, high.

        Solved from logs: V0 48.5 and 49.1 (0.7.3); V1 38.4, 38.5, 38.9, 39.6 (0.11.0, five models); 0.19 about 30;
        2026 builds about 25, when top-k and top-p stopped sorting.
        """
        if self.is_v0:
            return 38.0, 48.6, 50.0
        if self.version < (0, 16):
            return 24.0, 38.6, 40.0
        if self.version < (0, 20):
            return 20.0, 30.0, 40.0
        return 16.0, 25.0, 40.0


def engine_of(name: str, version: str, core: Literal["v0", "v1"] | None = None) -> Engine:
    """The engine of a name and a version such as ``0.19.0`` or ``0.26.1rc1.dev608``.

    Raises:
        UsageError: the engine is unknown, the version cannot be read, or is older than any whose rules are known.
    """
    word = name.lower()
    found = _VERSION.fullmatch(version.strip())
    if word not in _OLDEST:
        raise UsageError(f"The memory rules of the engine {name[:40]!r} are not known.", fix="Use vllm or sglang.")
    if found is None:
        raise UsageError(
            f"The version {version[:40]!r} of {word} cannot be read.", fix="Write it as major.minor.patch, e.g. 0.19.0."
        )
    major, minor, patch = (int(part or 0) for part in found.groups())
    if (major, minor, patch) < _OLDEST[word] or major > 0:
        oldest = ".".join(str(part) for part in _OLDEST[word])
        raise UsageError(
            f"The memory rules of {word} {version[:40]} are not known.", fix=f"Known: {oldest} to the latest 0.x."
        )
    return Engine("vllm" if word == "vllm" else "sglang", (major, minor, patch), core)
