"""What a fake engine does: its speed, its limits, its faults."""

from enum import StrEnum
from hashlib import sha256
from typing import Annotated

import msgspec

Number = Annotated[int, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class FaultKind(StrEnum):
    """What goes wrong with an answer."""

    FREEZE = "freeze"  # takes the request and never answers
    STALL = "stall"  # stops in the middle of the answer for `seconds`
    SLOW = "slow"  # first token `seconds` late
    TRUNCATE = "truncate"  # a clean end of the body without finish reason
    RESET = "reset"  # the connection is reset in the middle of the answer
    ERROR_EVENT = "error_event"  # an error inside a 200
    REJECT = "reject"  # 429 with Retry-After
    BUSY = "busy"  # 503
    FAIL = "fail"  # 500
    GARBAGE = "garbage"  # 200 with an HTML page
    EMPTY = "empty"  # a proper end with nothing in it
    REASONING = "reasoning"  # all tokens are reasoning
    BAD_TOOL = "bad_tool"  # tool arguments that are not JSON
    DIE = "die"  # the process ends


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault and when it strikes.

    Attributes:
        kind: What goes wrong.
        first: Number of the first request that it strikes, from 0.
        every: It strikes every n-th request from then on.
        last: Number of the last request that it may strike; None is no end.
        seconds: For ``stall`` and ``slow``.
    """

    kind: FaultKind
    first: Number = 0
    every: Count = 1
    last: Number | None = None
    seconds: Seconds = 1.0

    def strikes(self, number: int) -> bool:
        """Whether request ``number`` is struck."""
        inside = number >= self.first and (self.last is None or number <= self.last)
        return inside and (number - self.first) % self.every == 0


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """A scripted answer.

    Attributes:
        text: What is said.
        tool: Name of a tool that is called instead; empty for none.
        arguments: Its arguments as JSON text.
    """

    text: str = ""
    tool: str = ""
    arguments: str = "{}"


def said_key(prompt: str) -> str:
    """Under which an answer to this last message is found in ``Script.answers``."""
    return sha256(prompt.encode()).hexdigest()[:16]


class Script(msgspec.Struct, frozen=True, kw_only=True):
    """A fake engine: a queueing model with slots, prefill and decode.

    Bounds hold where a script is read (``--script``): a script outside them is refused with the field's name.

    Attributes:
        model: Name it serves.
        api_key: Key it demands; None demands none.
        slots: Requests served at once; others wait in order of arrival.
        prefill_token_s: Prefill seconds a prompt token that is not cached.
        decode_s: Seconds a decode step with one stream.
        decode_stream_s: Added to a step for each further stream.
        output_tokens: Length of an answer that is not forced.
        honours_ignore_eos: Whether ``ignore_eos`` forces the asked length.
        reasoning_tokens: Hidden tokens before each answer.
        template_tokens: Added to each prompt.
        context_tokens: Longest prompt and answer; more is refused with 400.
        prefix_cache: Whether prompt blocks of 16 tokens seen before cost nothing.
        reports_usage: Whether usage is reported.
        tokenizer: Whether ``/tokenize`` exists.
        metrics: Whether ``/metrics`` exists.
        startup_s: Time before it listens.
        prefill_stops_decode: Whether a prefill holds up every decode step, and prefills come one at a time.
        kv_tokens: Tokens that the KV cache holds: past it the youngest request is preempted and recomputed. None
            has room for all, and ``kv_usage`` is the share of slots in use.
        admit_usage: Share of the KV cache that admission fills; below 1 it is shy.
        cold_requests: First requests that pay ``cold_s`` before their first token.
        cold_s: What they pay.
        tokenize_token_s: CPU seconds a prompt token, on the one thread that also streams, cached or not.
        step_cpu_s: CPU seconds a decode step, on that thread: an engine that computes on the CPU.
        draft_tokens: Tokens drafted a step; 0 does not speculate.
        draft_token_s: Seconds a drafted token adds to its step.
        acceptance: Share of drafted tokens that are accepted.
        wedge_after: Number of requests after which nothing is generated any more; None never.
        tensor_parallel_size: What it says of itself; nothing else follows from it.
        sm_active: Share of time that the GPU's multiprocessors work, as DCGM would export it; None has no GPU.
        dram_active: Share of time that the GPU's memory moves data, likewise.
        faults: What goes wrong.
        answers: Answers by ``said_key`` of the last message; ``""`` answers all others. Without one it counts. A
            scripted tool is called in OpenAI chat only.
    """

    model: str = "fake"
    api_key: str | None = None
    slots: Count = 8
    prefill_token_s: Seconds = 0.0
    decode_s: Seconds = 0.001
    decode_stream_s: Seconds = 0.0
    output_tokens: Count = 16
    honours_ignore_eos: bool = True
    reasoning_tokens: Number = 0
    template_tokens: Number = 8
    context_tokens: Count = 100_000
    prefix_cache: bool = False
    reports_usage: bool = True
    tokenizer: bool = True
    metrics: bool = True
    startup_s: Seconds = 0.0
    prefill_stops_decode: bool = False
    kv_tokens: Count | None = None
    admit_usage: Share = 1.0
    cold_requests: Number = 0
    cold_s: Seconds = 0.0
    tokenize_token_s: Seconds = 0.0
    step_cpu_s: Seconds = 0.0
    draft_tokens: Number = 0
    draft_token_s: Seconds = 0.0
    acceptance: Share = 0.0
    wedge_after: Number | None = None
    tensor_parallel_size: Count = 1
    sm_active: Share | None = None
    dram_active: Share | None = None
    faults: tuple[Fault, ...] = ()
    answers: dict[str, Said] = {}
