"""The queueing model behind a fake engine, in real time."""

import asyncio
import time
from collections import deque
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
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0


@dataclass(slots=True, eq=False)
class _Sequence:
    """One request: the tokens it needs or holds in the KV cache."""

    tokens: int
    evicted: bool = False


class FakeModel:
    """Serves prompts by the script; one a process.

    Args:
        script: How fast, how many at once.
    """

    def __init__(self, script: Script) -> None:
        self.script = script
        self.counters = Counters()
        self._queue: deque[tuple[_Sequence, asyncio.Future[None]]] = deque()
        self._running: list[_Sequence] = []
        self._blocks: set[int] = set()
        self._prefill = asyncio.Lock()
        self._served = 0

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
        _spin(prompt * script.tokenize_token_s)
        sequence = _Sequence(prompt)
        await self._enter(sequence)
        try:
            self._served += 1
            cold_s = script.cold_s if self._served <= script.cold_requests else 0.0
            cached = self.cached(words)
            counters.prompt_tokens += prompt
            counters.cached_tokens += cached
            found(cached)
            await self._fill(prompt - cached, late_s + cold_s)
            number, credit = 0, 0.0
            while number < count:
                await self._step(sequence)
                credit += script.draft_tokens * script.acceptance
                accepted = min(int(credit), count - number - 1)
                credit -= accepted
                counters.drafted_tokens += script.draft_tokens
                counters.accepted_tokens += accepted
                for _ in range(1 + accepted):
                    self._grow(sequence)
                    counters.generated_tokens += 1
                    yield number
                    number += 1
        finally:
            self._leave(sequence)

    async def _fill(self, tokens: int, late_s: float) -> None:
        if not self.script.prefill_stops_decode:
            await asyncio.sleep(tokens * self.script.prefill_token_s + late_s)
            return
        async with self._prefill:
            await asyncio.sleep(tokens * self.script.prefill_token_s + late_s)

    async def _step(self, sequence: _Sequence) -> None:
        """One decode step; a sequence that was evicted meanwhile waits for room and is computed again first."""
        script, counters = self.script, self.counters
        if script.wedge_after is not None and self._served > script.wedge_after:
            await asyncio.Event().wait()
        if sequence.evicted:
            counters.preemptions += 1
            sequence.evicted = False
            self._leave(sequence)
            await self._enter(sequence, first=True)
            await self._fill(sequence.tokens, 0.0)
        while self._prefill.locked():
            async with self._prefill:
                pass
        _spin(script.step_cpu_s)
        draft_s = script.draft_tokens * script.draft_token_s
        await asyncio.sleep(script.decode_s + draft_s + script.decode_stream_s * (counters.running - 1))

    # the KV cache and the slots

    @property
    def _used(self) -> int:
        return sum(s.tokens for s in self._running)

    def _grow(self, sequence: _Sequence) -> None:
        sequence.tokens += 1
        capacity = self.script.kv_tokens
        staying = [s for s in self._running if not s.evicted]
        if capacity is not None and len(staying) > 1 and sum(s.tokens for s in staying) > capacity:
            staying[-1].evicted = True

    async def _enter(self, sequence: _Sequence, *, first: bool = False) -> None:
        """Waits for a slot and for room, in order of arrival; one that was preempted comes first."""
        entry = sequence, asyncio.get_running_loop().create_future()
        if first:
            self._queue.appendleft(entry)
        else:
            self._queue.append(entry)
        self.counters.waiting += 1
        self._admit()
        try:
            await entry[1]
        except asyncio.CancelledError:
            if entry in self._queue:
                self._queue.remove(entry)
                self.counters.waiting -= 1
            else:
                self._leave(sequence)
            raise

    def _leave(self, sequence: _Sequence) -> None:
        if sequence in self._running:
            self._running.remove(sequence)
            self.counters.running -= 1
            self._admit()

    def _admit(self) -> None:
        script = self.script
        while self._queue and len(self._running) < script.slots:
            sequence, ready = self._queue[0]
            room = None if script.kv_tokens is None else script.kv_tokens * script.admit_usage
            if room is not None and self._running and self._used + sequence.tokens > room:
                return
            self._queue.popleft()
            self.counters.waiting -= 1
            if ready.cancelled():
                continue
            self._running.append(sequence)
            self.counters.running += 1
            ready.set_result(None)

    def exposition(self) -> str:
        """Prometheus text under vLLM's names, and DCGM's where the script has a GPU."""
        c, script = self.counters, self.script
        model = script.model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        usage = c.running / script.slots if script.kv_tokens is None else self._used / script.kv_tokens
        series: list[tuple[str, str, float]] = [
            ("vllm:num_requests_running", "gauge", c.running),
            ("vllm:num_requests_waiting", "gauge", c.waiting),
            ("vllm:kv_cache_usage_perc", "gauge", min(usage, 1.0)),
            ("vllm:prompt_tokens_total", "counter", c.prompt_tokens),
            ("vllm:generation_tokens_total", "counter", c.generated_tokens),
            ("vllm:prefix_cache_queries_total", "counter", c.prompt_tokens),
            ("vllm:prefix_cache_hits_total", "counter", c.cached_tokens),
            ("vllm:num_preemptions_total", "counter", c.preemptions),
        ]
        if script.draft_tokens:
            series.append(("vllm:spec_decode_num_draft_tokens_total", "counter", c.drafted_tokens))
            series.append(("vllm:spec_decode_num_accepted_tokens_total", "counter", c.accepted_tokens))
        if script.sm_active is not None:
            series.append(("DCGM_FI_PROF_SM_ACTIVE", "gauge", script.sm_active))
            series.append(("DCGM_FI_DEV_GPU_UTIL", "gauge", 100.0))
        if script.dram_active is not None:
            series.append(("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", script.dram_active))
        lines = []
        for name, kind, value in series:
            family = name.removesuffix("_total")
            lines += [f"# HELP {family} fake", f"# TYPE {family} {kind}"]
            lines.append(f'{name}{{engine="0",model_name="{model}"}} {float(value)}')
        return "\n".join(lines) + "\n"


def _spin(cpu_s: float) -> None:
    """Uses CPU time, not the clock's: a process that others crowd out takes longer."""
    end_s = time.thread_time() + cpu_s
    while time.thread_time() < end_s:
        pass
