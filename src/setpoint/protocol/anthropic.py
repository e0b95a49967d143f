"""Anthropic messages: events and bodies into ``Observed``."""

import msgspec

from setpoint.protocol.judgement import Call, Observed
from setpoint.protocol.sse import Event
from setpoint.protocol.wire import NOT_DECODED, AnthropicEvent, AnthropicUsage, Block, anthropic_event, error_kind


def read_event(event: Event, seen: Observed, now_s: float) -> None:
    """One event of a stream; its type stands in the data, the ``event`` field only repeats it."""
    try:
        data = anthropic_event(event.payload)
    except NOT_DECODED:
        if event.name == b"error":
            seen.error = "error"
        elif seen.malformed is None and event.payload.strip() != b"[DONE]":
            seen.malformed = "an event is not the protocol"
        return
    kind = data.type or (event.name or b"").decode("ascii", "replace")
    if kind == "content_block_delta":
        _read_delta(data, seen, now_s)
    elif kind == "content_block_start":
        _start_block(data, seen, now_s)
    elif kind == "content_block_stop":
        seen.open_blocks.discard(data.index or 0)
    elif kind == "message_delta":
        if data.delta is not None and data.delta.stop_reason is not None:
            seen.finish_reason = data.delta.stop_reason
        _read_usage(data.usage, seen)
    elif kind == "message_start":
        if data.message is not None:
            _read_usage(data.message.usage, seen)
    elif kind == "message_stop":
        seen.terminal = True
    elif kind == "error" or data.error is not None:
        seen.error = error_kind(data.error)


def read_body(body: bytes, seen: Observed, now_s: float) -> None:
    """A whole message in one JSON document."""
    try:
        data = anthropic_event(body)
    except NOT_DECODED:
        seen.malformed = "the body is not the protocol"
        return
    if data.type == "error" or data.error is not None:
        seen.error = error_kind(data.error)
        return
    if data.content is None:
        seen.malformed = "the body has no content"
        return
    for block in data.content:
        _read_block(block, seen, now_s)
    seen.finish_reason = data.stop_reason
    _read_usage(data.usage, seen)
    seen.terminal = True


def _read_block(block: Block, seen: Observed, now_s: float) -> None:
    if block.type == "text" and block.text:
        seen.content(block.text, now_s)
    elif block.type == "thinking" and block.thinking:
        seen.reasoning(len(block.thinking), now_s)
    elif block.type == "tool_use":
        arguments = msgspec.json.encode(block.input if block.input is not None else {}).decode()
        seen.calls.append(Call(id=block.id, name=block.name, arguments=[arguments], whole=True))
        seen.tool(len(block.name or "") + len(arguments), now_s)


def _start_block(data: AnthropicEvent, seen: Observed, now_s: float) -> None:
    index, block = data.index or 0, data.content_block
    if index in seen.open_blocks:
        seen.malformed = seen.malformed or "a content block was started twice"
    seen.open_blocks.add(index)
    if block is None:
        seen.malformed = seen.malformed or "a content block without its type"
    elif block.type == "tool_use":
        seen.calls.append(Call(id=block.id, name=block.name))
        seen.call_at[index] = len(seen.calls) - 1
        seen.tool(len(block.name or ""), now_s)
        if block.input:
            seen.calls[-1].arguments.append(msgspec.json.encode(block.input).decode())
            seen.calls[-1].whole = True
    elif block.type == "text" and block.text:
        seen.content(block.text, now_s)
    elif block.type == "thinking" and block.thinking:
        seen.reasoning(len(block.thinking), now_s)


def _read_delta(data: AnthropicEvent, seen: Observed, now_s: float) -> None:
    delta, index = data.delta, data.index or 0
    if delta is None or index not in seen.open_blocks:
        seen.malformed = seen.malformed or "a delta outside its content block"
        return
    if delta.type == "text_delta":
        if delta.text:
            seen.content(delta.text, now_s)
    elif delta.type == "thinking_delta":
        if delta.thinking:
            seen.reasoning(len(delta.thinking), now_s)
    elif delta.type == "input_json_delta" and delta.partial_json:
        position = seen.call_at.get(index)
        if position is None:
            seen.malformed = seen.malformed or "tool arguments outside a tool call"
            return
        call = seen.calls[position]
        if call.whole:
            call.arguments, call.whole = [], False  # the start event's input was a placeholder
        call.arguments.append(delta.partial_json)
        seen.tool(len(delta.partial_json), now_s)


def _read_usage(usage: AnthropicUsage | None, seen: Observed) -> None:
    """Anthropic counts cached prompt tokens beside ``input_tokens``; the whole prompt is the sum."""
    if usage is None:
        return
    if usage.output_tokens is not None:
        seen.completion_tokens = usage.output_tokens
    if usage.input_tokens is not None and (usage.input_tokens or seen.prompt_tokens is None):
        cached = usage.cache_read_input_tokens
        previous = seen.cached_tokens if cached is None else cached
        created = usage.cache_creation_input_tokens or 0
        seen.cached_tokens = previous
        seen.prompt_tokens = usage.input_tokens + (previous or 0) + created
