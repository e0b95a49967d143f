"""OpenAI responses: events and bodies into ``Observed``."""

from typing import Any

import msgspec

from setpoint.protocol.judgement import Call, Observed
from setpoint.protocol.sse import Event
from setpoint.protocol.wire import error_kind


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Part(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    content: list[_Part] | None = None
    summary: list[_Part] | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    status: str | None = None
    output: list[_Item] | None = None
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: Any = None


class _Event(msgspec.Struct):
    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    item: _Item | None = None
    response: _Response | None = None
    error: Any = None
    code: str | None = None


_event = msgspec.json.Decoder(_Event).decode
_response = msgspec.json.Decoder(_Response).decode
_ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled")


def read_event(event: Event, seen: Observed, now_s: float) -> None:
    """One event of a stream; its type stands in the data."""
    try:
        data = _event(event.payload)
    except msgspec.DecodeError:
        if event.name == b"error":
            seen.error = "error"
        elif seen.malformed is None and event.payload.strip() != b"[DONE]":
            seen.malformed = "an event is not the protocol"
        return
    kind, text = data.type or (event.name or b"").decode("ascii", "replace"), data.delta
    if kind in ("response.output_text.delta", "response.refusal.delta"):
        if text:
            seen.content(text, now_s)
    elif kind in ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"):
        if text:
            seen.reasoning(len(text), now_s)
    elif kind == "response.output_item.added" and data.item is not None and data.item.type == "function_call":
        seen.calls.append(Call(id=data.item.call_id or data.item.id, name=data.item.name))
        seen.call_at[data.output_index or 0] = len(seen.calls) - 1
        seen.tool(len(data.item.name or ""), now_s)
    elif kind == "response.function_call_arguments.delta" and text:
        position = seen.call_at.get(data.output_index or 0)
        if position is None:
            seen.malformed = seen.malformed or "tool arguments before any tool call"
            return
        seen.calls[position].arguments.append(text)
        seen.tool(len(text), now_s)
    elif kind in _ENDS and data.response is not None:
        _end(data.response, seen)
    elif kind == "error":
        seen.error = error_kind(data.error) if data.error is not None else (data.code or "error")[:60]


def read_body(body: bytes, seen: Observed, now_s: float) -> None:
    """A whole response in one JSON document."""
    try:
        data = _response(body)
    except msgspec.DecodeError:
        seen.malformed = "the body is not the protocol"
        return
    if data.output is None and data.error is None:
        seen.malformed = "the body has no output"
        return
    for item in data.output or ():
        _read_item(item, seen, now_s)
    _end(data, seen)


def _read_item(item: _Item, seen: Observed, now_s: float) -> None:
    if item.type == "function_call":
        seen.calls.append(Call(id=item.call_id or item.id, name=item.name, arguments=[item.arguments or ""]))
        seen.tool(len(item.name or "") + len(item.arguments or ""), now_s)
        return
    for part in item.content or ():
        text = part.text or part.refusal
        if text and item.type == "reasoning":
            seen.reasoning(len(text), now_s)
        elif text:
            seen.content(text, now_s)
    for part in item.summary or ():
        if part.text:
            seen.reasoning(len(part.text), now_s)


def _end(data: _Response, seen: Observed) -> None:
    usage = data.usage
    if usage is not None:
        seen.prompt_tokens, seen.completion_tokens = usage.input_tokens, usage.output_tokens
        if usage.input_tokens_details is not None:
            seen.cached_tokens = usage.input_tokens_details.cached_tokens
        if usage.output_tokens_details is not None:
            seen.reasoning_tokens = usage.output_tokens_details.reasoning_tokens
    if data.error is not None:
        seen.error = error_kind(data.error)
    elif data.status in ("failed", "cancelled"):
        seen.error = data.status
    elif data.status == "incomplete":
        reason = data.incomplete_details.reason if data.incomplete_details is not None else None
        seen.finish_reason = reason or "length"
    elif data.status == "completed":
        seen.finish_reason = "stop"
    seen.terminal = seen.error is None and data.status in ("completed", "incomplete")
