"""What one answer was found to be."""

import json
from dataclasses import dataclass, field

import msgspec

from setpoint.records.exchange import ChunkKind, Outcome

# Finish reasons by what they mean for the user. Anything else that is set counts as a normal end.
CUT = frozenset({"length", "max_tokens", "model_length", "max_output_tokens", "model_context_window_exceeded"})
FAILED = frozenset({"error", "abort", "aborted", "cancelled", "load_shed"})
WITHHELD = frozenset({"content_filter", "refusal", "safety"})
CUT_SHORT = "its context or its own limit ended first"  # in the reason of an answer that nobody asked to be cut
SLACK_TOKENS = 1  # servers differ by one in whether the token that ends an answer is counted
_CONTENT = ChunkKind.CONTENT.value  # looked up once: it is needed for every token
CALLED = frozenset({"tool_calls", "tool_use", "function_call"})


@dataclass(slots=True)
class Call:
    """A tool call as it is put together."""

    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list)
    whole: bool = False  # the arguments came as an object, not as text

    @property
    def text(self) -> str:
        """The arguments, byte for byte as the server sent them."""
        return "".join(self.arguments)

    def fault(self) -> str | None:
        """Why nobody can execute this call, or None. A call without arguments is a call with none."""
        if not self.name:
            return "tool call without a name"
        try:
            value = json.loads(self.text or "{}")
        except (ValueError, RecursionError):
            return "tool arguments are not JSON"
        return None if isinstance(value, dict) else "tool arguments are not an object"


@dataclass(frozen=True, slots=True)
class Answer:
    """The text of an answer, held in memory for the next turn of a session; never recorded."""

    text: str
    calls: tuple[Call, ...]


class Observed(msgspec.Struct):
    """Everything seen of one answer so far; filled by the dialect readers.

    Attributes:
        chunk_s: Arrival of each delta, on the caller's clock.
        chunk_chars: Characters in each, for spreading reported tokens over deltas.
        chunk_kinds: ``ChunkKind`` letters.
        terminal: The dialect's terminal event was seen.
        error: Kind of an in-band error.
        malformed: What broke the protocol.
        call_at: Position in ``calls`` of the call that an index means at the moment.
        open_blocks: Anthropic blocks started and not stopped.
        parts: Visible text, when the caller asked to keep it.
    """

    chunk_s: list[float] = msgspec.field(default_factory=list)
    chunk_chars: list[int] = msgspec.field(default_factory=list)
    chunk_kinds: list[str] = msgspec.field(default_factory=list)
    finish_reason: str | None = None
    terminal: bool = False
    error: str | None = None
    malformed: str | None = None
    visible_chars: int = 0
    reasoning_chars: int = 0
    calls: list[Call] = msgspec.field(default_factory=list)
    call_at: dict[int, int] = msgspec.field(default_factory=dict)
    open_blocks: set[int] = msgspec.field(default_factory=set)
    vectors: int = 0
    parts: list[str] | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None

    def content(self, text: str, now_s: float) -> None:
        """A piece of visible text."""
        chars = len(text)
        self.visible_chars += chars
        self.chunk_s.append(now_s)
        self.chunk_chars.append(chars)
        self.chunk_kinds.append(_CONTENT)
        if self.parts is not None:
            self.parts.append(text)

    def contents(self, pieces: list[bytes], text: str, now_s: float) -> None:
        """Several pieces of visible text that came at once, none empty; ``text`` is all of them, ASCII."""
        self.visible_chars += len(text)
        self.chunk_s += [now_s] * len(pieces)
        self.chunk_chars += map(len, pieces)
        self.chunk_kinds += _CONTENT * len(pieces)
        if self.parts is not None:
            self.parts.append(text)

    def reasoning(self, chars: int, now_s: float) -> None:
        """A piece of hidden text."""
        self.reasoning_chars += chars
        self._chunk(ChunkKind.REASONING, chars, now_s)

    def tool(self, chars: int, now_s: float) -> None:
        """A piece of a tool call."""
        self.visible_chars += chars
        self._chunk(ChunkKind.TOOL, chars, now_s)

    def _chunk(self, kind: ChunkKind, chars: int, now_s: float) -> None:
        self.chunk_s.append(now_s)
        self.chunk_chars.append(chars)
        self.chunk_kinds.append(kind.value)

    def chunk_tokens(self) -> list[int]:
        """Tokens of each delta: one each, and where usage reports more, the rest spread by characters.

        The largest remainders get the odd tokens, so that the sum equals the reported count.
        """
        deltas, total = len(self.chunk_s), self.completion_tokens
        if total is None or total <= deltas or deltas == 0:
            return [1] * deltas
        surplus, chars = total - deltas, max(sum(self.chunk_chars), 1)
        shares = [surplus * c / chars for c in self.chunk_chars]
        tokens = [1 + int(s) for s in shares]
        order = sorted(range(deltas), key=lambda i: shares[i] - int(shares[i]), reverse=True)
        for i in order[: total - sum(tokens)]:
            tokens[i] += 1
        tokens[-1] += total - sum(tokens)
        return tokens


class Judgement(msgspec.Struct, frozen=True):
    """The verdict on one answer.

    Attributes:
        outcome: As the design defines it.
        error: A short reason without content; None for an answer.
        observed: What it was judged from.
    """

    outcome: Outcome
    error: str | None
    observed: Observed


def judge_status(status: int) -> tuple[Outcome, str] | None:
    """The outcome that an HTTP status alone decides; None for 2xx."""
    if 200 <= status < 300:
        return None
    if status in (429, 503, 529):
        return Outcome.REJECTED, f"HTTP {status}"
    if 400 <= status < 500:
        return Outcome.REFUSED, f"HTTP {status}"
    if 300 <= status < 400:
        return Outcome.ERROR, f"HTTP {status}, a redirect, which is not followed"
    return Outcome.ERROR, f"HTTP {status}"


def judge_whole(seen: Observed) -> tuple[Outcome, str | None]:
    """The outcome of an answer whose bytes ended cleanly.

    The order matters: what the server admits (an error) weighs more than what is missing, and what is missing more
    than what the finish reason claims.
    """
    if seen.error is not None:
        return Outcome.ERROR, f"in-band {seen.error}"
    if seen.malformed is not None:
        return Outcome.MALFORMED, seen.malformed
    if seen.vectors:
        return Outcome.COMPLETE, None
    if seen.finish_reason is None:
        return Outcome.TRUNCATED, "the stream ended without a finish reason"
    if not seen.terminal:
        return Outcome.TRUNCATED, "the stream ended without its terminal event"
    if seen.finish_reason in FAILED:
        return Outcome.ERROR, f"finish reason {seen.finish_reason}"
    if seen.finish_reason in WITHHELD:
        return Outcome.REFUSED, f"finish reason {seen.finish_reason}"
    return _judge_content(seen)


def _judge_content(seen: Observed) -> tuple[Outcome, str | None]:
    if seen.open_blocks:
        return Outcome.MALFORMED, "a content block was never stopped"
    for call in seen.calls:
        fault = call.fault()
        if fault is not None:
            return Outcome.MALFORMED, fault
    if not seen.visible_chars and not seen.calls:
        if seen.reasoning_chars or seen.reasoning_tokens:
            return Outcome.REASONING_EXHAUSTED, "tokens were spent on reasoning and nothing visible came"
        return Outcome.EMPTY, f"nothing visible in {seen.completion_tokens or 0} tokens"
    if seen.finish_reason in CALLED and not seen.calls:
        return Outcome.MALFORMED, "finish reason names a tool call and there is none"
    return (Outcome.LENGTH if seen.finish_reason in CUT else Outcome.COMPLETE), None


def judge_length(judgement: Judgement, asked_tokens: int) -> Judgement:
    """The same verdict, unless the answer was cut before the limit that was asked for: then nobody asked for the cut.

    A server whose context ends first (a llama.cpp slot, a capped deployment) says ``length`` too. That answer is
    truncated, however politely it ended. Decided only where the server counted the tokens; tokens that it streamed and
    left out of its count (hidden reasoning) count here. An answer that the model ended itself is as long as it is.

    Args:
        judgement: Of the bytes.
        asked_tokens: The limit in the request.
    """
    seen = judgement.observed
    if judgement.outcome is not Outcome.LENGTH or seen.completion_tokens is None:
        return judgement
    tokens = max(seen.completion_tokens, len(seen.chunk_s))
    if tokens + SLACK_TOKENS >= asked_tokens:
        return judgement
    error = f"cut after {tokens} of the {asked_tokens} tokens asked for: {CUT_SHORT}"
    return Judgement(Outcome.TRUNCATED, error, seen)
