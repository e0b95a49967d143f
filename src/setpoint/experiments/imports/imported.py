"""What every format is read into."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.errors import UsageError
from setpoint.records.exchange import Exchange, Outcome

NO_PINS = "engine, its version and flags, hardware and precision: unknown, so equality with other runs is an assumption"
NO_CERTIFICATE = "a certificate of the load generator: whether the client was the bottleneck is not known"
NO_FINISH = "finish reasons: an answer that was cut off counts as complete"


@dataclass(frozen=True, slots=True)
class Imported:
    """One run of another tool.

    Attributes:
        rows: Its exchanges.
        pins: What is known.
        load: In words.
        lacks: What the tool did not write down, a sentence each.
    """

    rows: list[Exchange]
    pins: dict[str, Any]
    load: str
    lacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Seen:
    """One request as a tool saw it. Times are seconds on one clock, relative to the run's first send.

    Attributes:
        scheduled_s: Planned send; equal to ``started_s`` where the tool does not say.
        started_s: Actual send.
        done_s: End.
        first_s: First token of any kind; None without one.
        visible_s: First visible token; None without one.
        last_s: Last token; None without one.
        chunk_s: Arrival of each chunk; empty where the tool kept none.
        prompt_tokens: As the tool counted.
        output_tokens: As the tool counted.
        by_server: Whether that was the server's count.
        cached_tokens: As the server counted; None when it did not say.
        outcome: How it ended.
        error: Its kind, without content.
        status: HTTP status; None when unknown.
        session: Of several turns; None counts requests.
        turn: Position in it.
        warmup: Not part of the measurement.
    """

    scheduled_s: float
    started_s: float
    done_s: float
    first_s: float | None
    visible_s: float | None
    last_s: float | None
    chunk_s: Sequence[float]
    prompt_tokens: int | None
    output_tokens: int | None
    by_server: bool
    outcome: Outcome
    cached_tokens: int | None = None
    error: str | None = None
    status: int | None = None
    session: int | None = None
    turn: int = 0
    warmup: bool = False


def exchange_of(index: int, seen: Seen) -> Exchange:
    """The row of a request.

    A count that the server did not make is spread over the chunks, so that it is never taken for the server's. Of more
    chunks than tokens the last ones have none: a tool counts chunks without text, too.
    """
    chunks = list(seen.chunk_s)
    tokens = seen.output_tokens or 0
    spread = [1] * min(tokens, len(chunks)) + [0] * (len(chunks) - tokens)
    if chunks:
        spread[-1] += max(tokens - len(chunks), 0)
    elif tokens:
        spread = [tokens]
    outcome = seen.outcome
    if outcome is Outcome.COMPLETE and not tokens:
        outcome = Outcome.EMPTY
    return Exchange(
        index=index,
        session=index if seen.session is None else seen.session,
        turn=seen.turn,
        warmup=seen.warmup,
        worker=0,
        scheduled_s=seen.scheduled_s,
        started_s=seen.started_s,
        connected_s=None,
        sent_s=seen.started_s,
        headers_s=None,
        first_token_s=seen.first_s,
        first_visible_s=seen.visible_s,
        last_token_s=seen.last_s,
        done_s=seen.done_s,
        chunk_s=chunks,
        chunk_tokens=spread,
        chunk_kinds="c" * len(chunks),
        outcome=outcome,
        status=seen.status,
        finish_reason=None,
        error=seen.error,
        retry_after_s=None,
        planned_prompt_tokens=seen.prompt_tokens or 0,
        planned_output_tokens=tokens,
        prompt_tokens=seen.prompt_tokens if outcome.answered else None,
        completion_tokens=tokens if seen.by_server and outcome.answered else None,
        cached_tokens=seen.cached_tokens,
        reasoning_tokens=None,
        tokens_source="usage" if seen.by_server and outcome.answered else "tool",
        visible_chars=0,
        reasoning_chars=0,
        tool_calls=0,
    )


def outcome_of(words: str, status: int | None = None) -> Outcome:
    """The outcome of a request that a tool calls failed, from its kind of error and HTTP status."""
    if status in (429, 503):
        return Outcome.REJECTED
    if status is not None and 400 <= status < 499:
        return Outcome.REFUSED
    return Outcome.TIMEOUT if "timeout" in words.lower() or "timed out" in words.lower() else Outcome.ERROR


def same_length(what: str, **columns: Sequence[object]) -> int:
    """The common length of columns.

    Raises:
        UsageError: they differ; names them.
    """
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        named = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise UsageError(f"{what} differ in length: {named}; expected one entry a request.")
    return next(iter(lengths.values()))
