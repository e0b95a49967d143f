"""The exchange: one request and everything observed about its answer.

Load generator, simulator and gateway emit the same row, so one ``metrics`` judges all three. An exchange holds no
text: lengths, times and outcomes only.
"""

from enum import StrEnum

import msgspec


class Outcome(StrEnum):
    """How an exchange ended. Only the first two are answers; all else counts against every promise."""

    COMPLETE = "complete"  # finish reason and the terminal event of the dialect
    LENGTH = "length"  # the same, cut by the output limit that was asked for
    REJECTED = "rejected"  # 429 or 503: the server said no for lack of capacity or allowance
    REFUSED = "refused"  # another 4xx: the server will not do this request (too long, unknown model, bad key)
    ERROR = "error"  # 5xx, a broken connection before the answer, or an error inside a 200
    TIMEOUT = "timeout"  # one of the client's phase limits passed
    TRUNCATED = "truncated"  # no finish reason or no terminal event; or cut before the limit that was asked for
    EMPTY = "empty"  # a formally complete answer with nothing in it
    MALFORMED = "malformed"  # not the protocol: bad JSON, bad tool arguments, wrong types
    CANCELLED = "cancelled"  # ended by the client on purpose (Ctrl-C, budget)
    REASONING_EXHAUSTED = "reasoning_exhausted"  # tokens were spent on reasoning and nothing visible came

    @property
    def answered(self) -> bool:
        """Whether the user got an answer."""
        return self in (Outcome.COMPLETE, Outcome.LENGTH)


class ChunkKind(StrEnum):
    """What a chunk of an answer carries. Content and tool calls are visible to a user, reasoning is not."""

    CONTENT = "c"
    TOOL = "t"
    REASONING = "r"


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer. All times are seconds on the monotonic clock since the run's origin.

    Attributes:
        index: Position among the planned requests of the schedule.
        session: Index of the session.
        turn: Position in the session, from 0.
        warmup: Sent before the measured part; never mixed with it.
        worker: Client process that sent it.
        scheduled_s: When the schedule (open loop), or the previous answer plus think time, asked for the send.
        started_s: When the client began to work on it; ``started_s - scheduled_s`` is the client's lag.
        connected_s: When a connection was in hand; equals ``started_s`` for one kept alive. None: never.
        sent_s: Last request byte handed to the kernel. None: never.
        headers_s: Response headers complete.
        first_token_s: First delta of any kind (content, reasoning, tool arguments).
        first_visible_s: First delta that a user sees (content or tool call).
        last_token_s: Last delta of any kind.
        done_s: End of the exchange, whatever the outcome.
        chunk_s: Arrival of each chunk that carried a delta.
        chunk_tokens: Tokens in each of these chunks: as reported, else 1 a delta (see ``tokens_source``).
        chunk_kinds: One ``ChunkKind`` letter a chunk, e.g. ``"rrccc"``.
        outcome: How it ended.
        status: HTTP status; None when no response line arrived.
        finish_reason: As the server gave it.
        error: A short reason without any content of prompt or answer.
        retry_after_s: The server's ``Retry-After``.
        planned_prompt_tokens: Tokens of the whole prompt as planned (history included).
        planned_output_tokens: Answer length asked for.
        prompt_tokens: As the server counted; None when it did not say.
        completion_tokens: As the server counted; None when it did not say.
        cached_tokens: Prompt tokens that the server took from its cache; None when it did not say.
        reasoning_tokens: As the server counted.
        tokens_source: ``usage`` when the server counted the completion, ``chunks`` when deltas were counted,
            ``tool`` when another load generator counted and does not say how.
        visible_chars: Characters of content and tool arguments.
        reasoning_chars: Characters of reasoning.
        tool_calls: Number of tool calls in the answer.
        server_prefill_s: Prefill time by the server's own clock, where it reports it (llama.cpp ``timings``).
        server_decode_s: Decode time likewise.
        draft_tokens: Speculative tokens drafted, where reported.
        accepted_tokens: Of these, accepted.
        reused_connection: Sent on a kept-alive connection.
        within: The limit that a ``timeout`` crossed: connect, first_token, gap or total.
    """

    index: int
    session: int
    turn: int
    warmup: bool
    worker: int
    scheduled_s: float
    started_s: float
    connected_s: float | None
    sent_s: float | None
    headers_s: float | None
    first_token_s: float | None
    first_visible_s: float | None
    last_token_s: float | None
    done_s: float
    chunk_s: list[float]
    chunk_tokens: list[int]
    chunk_kinds: str
    outcome: Outcome
    status: int | None
    finish_reason: str | None
    error: str | None
    retry_after_s: float | None
    planned_prompt_tokens: int
    planned_output_tokens: int
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    reasoning_tokens: int | None
    tokens_source: str
    visible_chars: int
    reasoning_chars: int
    tool_calls: int
    server_prefill_s: float | None = None
    server_decode_s: float | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    reused_connection: bool = False
    within: str | None = None
