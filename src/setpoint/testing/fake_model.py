"""The queueing model behind a fake engine, in real time."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from setpoint.testing.script import Script

BLOCK_WORDS = 16


@dataclass(slots=True)
class Counters:
    """What ``/metrics`` shows."""

    requests: int = 0
    waiting: int = 0
    running: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    cached_tokens: int = 0


class FakeModel:
    """Serves prompts by the script; one a process.

    Args:
        script: How fast, how many at once.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.counters = Counters()
        self._slots = asyncio.Semaphore(script.slots)
        self._blocks: set[int] = set()

    def cached(self, words: list[str]) -> int:
        """Leading tokens of this prompt that an earlier one had too; remembers its blocks."""
        if not self.script.prefix_cache:
            return 0
        found, hit, chain = 0, True, 0
        for start in range(0, len(words) - BLOCK_WORDS + 1, BLOCK_WORDS):
            chain = hash((chain, *words[start : start + BLOCK_WORDS]))
            hit = hit and chain in self._blocks
            found += BLOCK_WORDS if hit else 0
            self._blocks.add(chain)
        return found

    async def tokens(
        self, words: list[str], count: int, late_s: float = 0.0, found: Callable[[int], None] = lambda _: None
    ) -> AsyncGenerator[int, None]:
        """Yields token numbers as they are made; the first after queue and prefill.

        ``found`` is told how many prompt tokens came from the prefix cache, before the first token.
        """
        counters, script = self.counters, self.script
        prompt = len(words) + script.template_tokens
        counters.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            counters.waiting -= 1
        counters.running += 1
        try:
            cached = self.cached(words)
            counters.prompt_tokens += prompt
            counters.cached_tokens += cached
            found(cached)
            await asyncio.sleep((prompt - cached) * script.prefill_token_s + late_s)
            for number in range(count):
                await asyncio.sleep(script.decode_s + script.decode_stream_s * (counters.running - 1))
                counters.generated_tokens += 1
                yield number
        finally:
            counters.running -= 1
            self._slots.release()

    def exposition(self) -> str:
        """Prometheus text under vLLM's names."""
        c = self.counters
        model = self.script.model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        usage = min(c.running / self.script.slots, 1.0)
        series = (
            ("num_requests_running", "gauge", c.running),
            ("num_requests_waiting", "gauge", c.waiting),
            ("kv_cache_usage_perc", "gauge", usage),
            ("prompt_tokens_total", "counter", c.prompt_tokens),
            ("generation_tokens_total", "counter", c.generated_tokens),
            ("prefix_cache_queries_total", "counter", c.prompt_tokens),
            ("prefix_cache_hits_total", "counter", c.cached_tokens),
            ("num_preemptions_total", "counter", 0),
        )
        lines = []
        for name, kind, value in series:
            family = name.removesuffix("_total")
            lines += [f"# HELP vllm:{family} fake", f"# TYPE vllm:{family} {kind}"]
            lines.append(f'vllm:{name}{{engine="0",model_name="{model}"}} {float(value)}')
        return "\n".join(lines) + "\n"
