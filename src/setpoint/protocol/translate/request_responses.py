"""OpenAI Responses requests for engines that speak chat. Nothing is stored: each request carries its whole history."""

from typing import Any

import msgspec

from setpoint.protocol.translate.fields import Fields, refuse

CARRIED = ("model", "temperature", "top_p", "stream", "parallel_tool_calls")
DROPPED = (
    "client_metadata",
    "include",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "service_tier",
    "store",
    "stream_options",
    "truncation",
)
NEUTRAL: dict[str, tuple[object, ...]] = {"background": (False,), "top_logprobs": (0,)}
"""Members without a counterpart, and the values that ask for nothing."""


class InputPart(msgspec.Struct):
    """A part of a message, of reasoning, or of a function's output."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    detail: str | None = None


class InputItem(msgspec.Struct):
    """An item of the history; a message may leave out its type."""

    type: str = "message"
    role: str | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None
    summary: list[InputPart] | None = None


class FunctionTool(msgspec.Struct):
    """A tool; only functions have a counterpart."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    """A forced function."""

    type: str
    name: str | None = None


class TextFormat(msgspec.Struct):
    """What the text must look like."""

    type: str
    name: str | None = None
    schema: msgspec.Raw = msgspec.Raw(b"null")
    strict: bool | None = None


class TextConfig(msgspec.Struct):
    """Format of the text; verbosity has no counterpart."""

    format: TextFormat | None = None


class Reasoning(msgspec.Struct):
    """Effort; summaries have no counterpart."""

    effort: str | None = None


def to_chat(fields: Fields) -> dict[str, Any]:
    """The members of a chat request.

    Raises:
        TranslationError: a field is malformed or cannot be carried.
    """
    body = fields.carry(CARRIED)
    instructions = fields.take("instructions", str)
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    given: str | list[InputItem] | None = fields.take("input", str | list[InputItem])
    if given is None:
        refuse("input", "missing")
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    else:
        _history(given, messages)
    body["messages"] = messages
    limit = fields.take("max_output_tokens", int)
    if limit is not None:
        body["max_tokens"] = limit
    body |= _tools(fields)
    user = fields.take("user", str)
    user = fields.take("safety_identifier", str) or user
    if user:
        body["user"] = user
    body |= _output(fields)
    if bytes(body.get("stream", msgspec.Raw(b""))) == b"true":
        body["stream_options"] = {"include_usage": True}
    for name, values in NEUTRAL.items():
        fields.allow(name, *values)
    fields.drop(DROPPED)
    fields.done()
    return body


def _history(items: list[InputItem], messages: list[dict[str, Any]]) -> None:
    """Reasoning, text and calls that follow each other are one turn of the assistant."""
    turn: dict[str, Any] | None = None
    for index, item in enumerate(items):
        where = f"input[{index}]"
        ours = item.type in ("reasoning", "function_call") or (item.type == "message" and item.role == "assistant")
        if not ours:
            turn = None
            messages.append(_theirs(item, where))
            continue
        if turn is None or (item.type == "message" and turn["content"] is not None):
            turn = {"role": "assistant", "content": None}
            messages.append(turn)
        if item.type == "message":
            turn["content"] = _content(item.content, f"{where}.content")
        elif item.type == "function_call":
            turn.setdefault("tool_calls", []).append(_call(item, where))
        else:
            text = "".join(part.text or "" for part in _parts(item.content) or item.summary or ())
            if text:
                turn["reasoning_content"] = turn.get("reasoning_content", "") + text
    for message in messages:
        if message["role"] == "assistant" and message["content"] is None and "tool_calls" not in message:
            message["content"] = ""  # reasoning alone


def _parts(content: str | list[InputPart] | None) -> list[InputPart]:
    return content if isinstance(content, list) else []


def _theirs(item: InputItem, where: str) -> dict[str, Any]:
    if item.type == "function_call_output":
        if not item.call_id:
            refuse(f"{where}.call_id", "missing")
        output = _content(item.output, f"{where}.output")
        return {"role": "tool", "tool_call_id": item.call_id, "content": output}
    if item.type != "message":
        refuse(f"{where}.type", f"a chat engine has no place for an item of type {item.type[:40]}")
    if item.role not in ("user", "system", "developer"):
        refuse(f"{where}.role", "expected user, assistant, system or developer")
    role = "system" if item.role == "developer" else item.role
    return {"role": role, "content": _content(item.content, f"{where}.content")}


def _call(item: InputItem, where: str) -> dict[str, Any]:
    if not item.call_id or not item.name:
        refuse(f"{where}.{'name' if item.call_id else 'call_id'}", "missing")
    function = {"name": item.name, "arguments": item.arguments or "{}"}
    return {"id": item.call_id, "type": "function", "function": function}


def _content(content: str | list[InputPart] | None, where: str) -> str | list[dict[str, Any]]:
    """One text is a string, all else a list of parts."""
    if content is None:
        refuse(where, "missing")
    if isinstance(content, str):
        return content
    parts = [_part(part, f"{where}[{index}]") for index, part in enumerate(content)]
    only = parts[0].get("text") if len(parts) == 1 else None
    return only if isinstance(only, str) else parts


def _part(part: InputPart, field: str) -> dict[str, Any]:
    if part.type == "input_image":
        if not part.image_url:
            refuse(f"{field}.image_url", "missing; stored files cannot be carried")
        detail = {} if part.detail is None else {"detail": part.detail}
        return {"type": "image_url", "image_url": {"url": part.image_url} | detail}
    text = part.refusal if part.type == "refusal" else part.text
    if part.type not in ("input_text", "output_text", "text", "refusal") or text is None:
        refuse(f"{field}.type", "expected input_text, output_text, refusal or input_image, with its text")
    return {"type": "text", "text": text}


def _tools(fields: Fields) -> dict[str, Any]:
    body: dict[str, Any] = {}
    tools = fields.take("tools", list[FunctionTool])
    if tools:
        body["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    choice: str | ToolChoice | None = fields.take("tool_choice", str | ToolChoice)
    if isinstance(choice, ToolChoice):
        if choice.type != "function" or not choice.name:
            refuse("tool_choice.type", "expected function with its name")
        body["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    elif choice is not None and tools:
        body["tool_choice"] = choice
    return body


def _tool(tool: FunctionTool, field: str) -> dict[str, Any]:
    if tool.type != "function" or not tool.name:
        refuse(f"{field}.type", "only functions with a name can be carried")
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    if bytes(tool.parameters) != b"null":
        function["parameters"] = tool.parameters
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _output(fields: Fields) -> dict[str, Any]:
    body: dict[str, Any] = {}
    reasoning = fields.take("reasoning", Reasoning)
    if reasoning is not None and reasoning.effort is not None:
        body["reasoning_effort"] = reasoning.effort
    text = fields.take("text", TextConfig)
    shape = None if text is None else text.format
    if shape is None or shape.type == "text":
        return body
    if shape.type == "json_object":
        return body | {"response_format": {"type": "json_object"}}
    if shape.type != "json_schema":
        refuse("text.format.type", "expected text, json_object or json_schema")
    schema: dict[str, Any] = {"name": shape.name or "answer", "schema": shape.schema}
    if shape.strict is not None:
        schema["strict"] = shape.strict
    return body | {"response_format": {"type": "json_schema", "json_schema": schema}}
