"""OpenAI chat, completions and embeddings: events and bodies into ``Observed``."""

import msgspec

from setpoint.protocol.judgement import Call, Observed
from setpoint.protocol.sse import Event
from setpoint.protocol.template import Template, places
from setpoint.protocol.wire import (
    NOT_DECODED,
    Choice,
    Delta,
    OpenAIAnswer,
    ToolCall,
    decoded_error,
    error_kind,
    openai_answer,
)

DONE = b"[DONE]"


def read_event(event: Event, seen: Observed, now_s: float) -> None:
    """One event of a stream. ``event: error`` and ``data: {"error": …}`` are errors whatever the status said."""
    payload = event.payload
    if payload == DONE:
        seen.terminal = True
        return
    if event.name == b"error":
        seen.error = error_kind(decoded_error(payload))
        return
    try:
        answer = openai_answer(payload)
    except NOT_DECODED as error:
        if payload.strip() == DONE:
            seen.terminal = True
        elif seen.malformed is None:
            seen.malformed = f"an event is not the protocol: {_reason(error)}"
        return
    text = _only_text(answer)
    if text is None:
        read_answer(answer, seen, now_s)
    else:
        seen.content(text, now_s)


def _only_text(answer: OpenAIAnswer) -> str | None:
    """The text of the commonest event by far: one piece of visible text and nothing else. None for any other."""
    choices = answer.choices
    if not choices or len(choices) != 1 or answer.usage is not None or answer.error is not None:
        return None
    choice = choices[0]
    if choice.finish_reason is not None or answer.timings is not None or answer.data is not None:
        return None
    delta = choice.delta
    if delta is None:
        return choice.text or None if choice.message is None else None
    content = delta.content
    if type(content) is not str or not content or delta.tool_calls or delta.refusal:
        return None
    return None if delta.reasoning_content or delta.reasoning else content


def template_of(payload: bytes) -> Template | None:
    """The form of an event that is one piece of visible text and nothing else; None for any other event.

    That the text stands where it seems to is shown by another text in its place.
    """
    try:
        text = _only_text(openai_answer(payload))
        if text is None:
            return None
        other = text + "."
        for before, behind in places(payload, text):
            if _only_text(openai_answer(before + other.encode() + behind)) == other:
                return Template(before, behind)
    except NOT_DECODED:
        pass
    return None


def read_body(body: bytes, seen: Observed, now_s: float) -> None:
    """A whole answer in one JSON document."""
    try:
        answer = openai_answer(body)
    except NOT_DECODED as error:
        seen.malformed = f"the body is not the protocol: {_reason(error)}"
        return
    if not answer.choices and answer.data is None and answer.error is None:
        seen.malformed = "the body has neither choices nor data"
        return
    read_answer(answer, seen, now_s)
    seen.terminal = True


def read_answer(answer: OpenAIAnswer, seen: Observed, now_s: float) -> None:
    """A decoded chunk or body."""
    if answer.error is not None:
        seen.error = error_kind(answer.error)
        return
    choices = answer.choices
    if choices:
        for choice in choices:
            _read_choice(choice, seen, now_s)
    if answer.data is not None:
        _read_vectors(answer, seen, now_s)
    usage = answer.usage
    if usage is not None:
        seen.prompt_tokens = usage.prompt_tokens if usage.prompt_tokens is not None else seen.prompt_tokens
        if usage.completion_tokens is not None:
            seen.completion_tokens = usage.completion_tokens
        if usage.prompt_tokens_details is not None:
            seen.cached_tokens = usage.prompt_tokens_details.cached_tokens
        if usage.completion_tokens_details is not None:
            seen.reasoning_tokens = usage.completion_tokens_details.reasoning_tokens
    timings = answer.timings
    if timings is not None:
        seen.prefill_s = None if timings.prompt_ms is None else timings.prompt_ms / 1e3
        seen.decode_s = None if timings.predicted_ms is None else timings.predicted_ms / 1e3
        seen.draft_tokens, seen.accepted_tokens = timings.draft_n, timings.draft_n_accepted


def _read_choice(choice: Choice, seen: Observed, now_s: float) -> None:
    delta = choice.delta or choice.message
    if delta is not None:
        _read_delta(delta, seen, now_s)
    elif choice.text:
        seen.content(choice.text, now_s)
    if choice.finish_reason is not None:
        seen.finish_reason = choice.finish_reason


def _read_delta(delta: Delta, seen: Observed, now_s: float) -> None:
    hidden = delta.reasoning_content or delta.reasoning
    if hidden:
        seen.reasoning(len(hidden), now_s)
    content = delta.content
    if content:
        text = content if isinstance(content, str) else _join_parts(content)
        if text:
            seen.content(text, now_s)
    if delta.refusal:
        seen.content(delta.refusal, now_s)
    if delta.tool_calls:
        for piece in delta.tool_calls:
            _read_call(piece, seen, now_s)


def _join_parts(parts: list[object]) -> str:
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))


def _read_call(piece: ToolCall, seen: Observed, now_s: float) -> None:
    name = piece.function.name if piece.function else None
    position = find_call(piece, seen)
    arguments = piece.function.arguments if piece.function else None
    if position is None:
        seen.malformed = seen.malformed or "tool arguments before any tool call"
    else:
        call = seen.calls[position]
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
            call.whole = True
        if arguments:
            call.arguments.append(arguments)
    if name or arguments:
        seen.tool(len(name or "") + len(arguments or ""), now_s)


def find_call(piece: ToolCall, seen: Observed) -> int | None:
    """Position in ``seen.calls`` of the call that a piece belongs to, begun if it is new; None for a piece of no call.

    Servers number parallel calls, or give all of them index 0: a new id, or a second name, starts a new call.
    """
    name = piece.function.name if piece.function else None
    if piece.id:
        for position, call in enumerate(seen.calls):
            if call.id == piece.id:
                call.name = call.name or name
                return position
    starts = bool(piece.id or name)
    if starts and not piece.id and seen.calls and not seen.calls[-1].name:
        starts = False  # the name of a call that began with its id
        seen.calls[-1].name = name
    if starts:
        seen.calls.append(Call(id=piece.id, name=name))
        seen.call_at[piece.index or 0] = len(seen.calls) - 1
        return len(seen.calls) - 1
    if not seen.calls:
        return None
    return seen.call_at.get(piece.index or 0, len(seen.calls) - 1)


def _read_vectors(answer: OpenAIAnswer, seen: Observed, now_s: float) -> None:
    vectors = answer.data or []
    if not vectors or any(not vector.embedding for vector in vectors):
        seen.malformed = "an embedding is missing or empty"
        return
    seen.vectors = len(vectors)
    seen.tool(len(vectors), now_s)
    seen.visible_chars = 0


def _reason(error: Exception) -> str:
    """The parser's message without any of the content it may quote."""
    return str(error).split(" - at ")[0].split("`")[0].strip()[:80] or type(error).__name__
