"""OpenAI Responses: events and bodies into ``Observed``.

The terminal event is one of ``response.completed``, ``response.incomplete`` and ``response.failed``; a stream that
ends without one was cut, however cleanly it closed.
"""

from typing import Any

import msgspec

from setpoint.protocol.judgement import Call, Observed
from setpoint.protocol.sse import Event
from setpoint.protocol.wire import decoded_error, error_kind


class OutputPart(msgspec.Struct):
    """A part of an item: output_text, refusal, reasoning_text."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None


class OutputItem(msgspec.Struct):
    """An item of the output: message, reasoning, function_call, or a kind that only the server runs."""

    type: str = ""
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    content: list[OutputPart] | None = None
    summary: list[OutputPart] | None = None


class InputDetails(msgspec.Struct):
    """Where prompt tokens came from."""

    cached_tokens: int | None = None


class OutputDetails(msgspec.Struct):
    """What generated tokens were spent on."""

    reasoning_tokens: int | None = None


class ResponseUsage(msgspec.Struct):
    """Usage: cached tokens are inside the input."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None


class IncompleteDetails(msgspec.Struct):
    """Why a response is incomplete."""

    reason: str | None = None


class Response(msgspec.Struct):
    """A whole response, or the one inside an event."""

    status: str | None = None
    error: Any = None
    output: list[OutputItem] | None = None
    usage: ResponseUsage | None = None
    incomplete_details: IncompleteDetails | None = None


class ResponseEvent(msgspec.Struct):
    """Any event of a stream."""

    type: str = ""
    output_index: int = 0
    item: OutputItem | None = None
    delta: str | None = None
    arguments: str | None = None
    response: Response | None = None
    error: Any = None


_event = msgspec.json.Decoder(ResponseEvent).decode
_body = msgspec.json.Decoder(Response).decode
_HIDDEN = ("response.reasoning_text.delta", "response.reasoning_summary_text.delta")
_VISIBLE = ("response.output_text.delta", "response.refusal.delta")
_LAST = ("response.completed", "response.incomplete", "response.failed")


def read_event(event: Event, seen: Observed, now_s: float) -> None:
    """One event of a stream; its type stands in the data."""
    try:
        data = _event(event.payload)
    except msgspec.DecodeError:
        if event.name == b"error":
            seen.error = error_kind(decoded_error(event.payload))
        elif seen.malformed is None and event.payload.strip() != b"[DONE]":
            seen.malformed = "an event is not the protocol"
        return
    kind = data.type
    if kind in _VISIBLE:
        if data.delta:
            seen.content(data.delta, now_s)
    elif kind in _HIDDEN:
        if data.delta:
            seen.reasoning(len(data.delta), now_s)
    elif kind == "response.output_item.added":
        if data.item is not None and data.item.type == "function_call":
            seen.call_at[data.output_index] = len(seen.calls)
            _begin_call(data.item, seen, now_s)
    elif kind == "response.function_call_arguments.delta":
        _read_arguments(data, seen, now_s)
    elif kind == "error" or data.error is not None:
        seen.error = error_kind(data.error if data.error is not None else decoded_error(event.payload))
    elif kind in _LAST and data.response is not None:
        _read_end(data.response, seen)


def read_body(body: bytes, seen: Observed, now_s: float) -> None:
    """A whole response in one JSON document."""
    try:
        response = _body(body)
    except msgspec.DecodeError:
        seen.malformed = "the body is not the protocol"
        return
    if response.output is None and response.error is None:
        seen.malformed = "the body has no output"
        return
    for item in response.output or ():
        if item.type == "function_call":
            _begin_call(item, seen, now_s)
        for part in item.content or item.summary or ():
            text = part.text or part.refusal
            if text and item.type == "reasoning":
                seen.reasoning(len(text), now_s)
            elif text:
                seen.content(text, now_s)
    _read_end(response, seen)


def _begin_call(item: OutputItem, seen: Observed, now_s: float) -> None:
    arguments = [item.arguments] if item.arguments else []
    seen.calls.append(Call(id=item.call_id, name=item.name, arguments=arguments))
    seen.tool(len(item.name or "") + len(item.arguments or ""), now_s)


def _read_arguments(data: ResponseEvent, seen: Observed, now_s: float) -> None:
    position = seen.call_at.get(data.output_index)
    if position is None:
        seen.malformed = seen.malformed or "tool arguments outside a tool call"
    elif data.delta:
        seen.calls[position].arguments.append(data.delta)
        seen.tool(len(data.delta), now_s)


def _read_end(response: Response, seen: Observed) -> None:
    if response.error is not None or response.status == "failed":
        seen.error = error_kind(response.error)
        return
    seen.terminal = True
    if response.status == "completed":
        seen.finish_reason = "completed"
    elif response.incomplete_details is not None:
        seen.finish_reason = response.incomplete_details.reason
    usage = response.usage
    if usage is not None:
        seen.prompt_tokens, seen.completion_tokens = usage.input_tokens, usage.output_tokens
        if usage.input_tokens_details is not None:
            seen.cached_tokens = usage.input_tokens_details.cached_tokens
        if usage.output_tokens_details is not None:
            seen.reasoning_tokens = usage.output_tokens_details.reasoning_tokens
