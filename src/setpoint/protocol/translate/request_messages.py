"""Anthropic requests for engines that speak chat."""

from typing import Any, NoReturn

import msgspec

from setpoint.protocol.translate.fields import Fields, refuse

CARRIED = ("model", "temperature", "top_p", "top_k", "stream")
DROPPED = (
    "cache_control",
    "context_management",
    "inference_geo",
    "service_tier",
    "speed",
    "thinking",
)
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


class ImageSource(msgspec.Struct):
    """Where an image is."""

    type: str
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class InputBlock(msgspec.Struct):
    """A block of a message, of a tool's result, or of the system prompt."""

    type: str
    text: str | None = None
    thinking: str | None = None
    source: ImageSource | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str | None = None
    content: "str | list[InputBlock] | None" = None
    is_error: bool | None = None


class Turn(msgspec.Struct):
    """A message."""

    role: str
    content: str | list[InputBlock]


class Tool(msgspec.Struct):
    """A tool that the client runs; tools that Anthropic runs have other types."""

    name: str
    type: str | None = None
    description: str | None = None
    input_schema: msgspec.Raw = msgspec.Raw(b"")
    strict: bool | None = None


class ToolChoice(msgspec.Struct):
    """Which tool must be called."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Metadata(msgspec.Struct):
    """About the request."""

    user_id: str | None = None


class OutputFormat(msgspec.Struct):
    """A JSON schema for the answer."""

    type: str
    schema: msgspec.Raw = msgspec.Raw(b"{}")


class OutputConfig(msgspec.Struct):
    """Effort and format."""

    effort: str | None = None
    format: OutputFormat | None = None


def to_chat(fields: Fields) -> dict[str, Any]:
    """The members of a chat request.

    Raises:
        TranslationError: a field is malformed or cannot be carried.
    """
    body = fields.carry(CARRIED)
    system: str | list[InputBlock] | None = fields.take("system", str | list[InputBlock])
    messages = _system(system)
    turns = fields.need("messages", list[Turn])
    for index, turn in enumerate(turns):
        messages += _turn(turn, f"messages[{index}]")
    body["messages"] = messages
    if messages and messages[-1]["role"] == "assistant" and "tool_calls" not in messages[-1]:
        body |= {"add_generation_prompt": False, "continue_final_message": True}  # vLLM's and SGLang's words
    body["max_tokens"] = fields.need("max_tokens", int)
    stop = fields.take("stop_sequences", list[str])
    if stop:
        body["stop"] = stop
    body |= _tools(fields)
    metadata = fields.take("metadata", Metadata)
    if metadata is not None and metadata.user_id:
        body["user"] = metadata.user_id
    body |= _output(fields)
    if bytes(body.get("stream", msgspec.Raw(b""))) == b"true":
        body["stream_options"] = {"include_usage": True}
    fields.allow("mcp_servers", [])
    fields.drop(DROPPED)
    fields.done()
    return body


def _system(system: str | list[InputBlock] | None) -> list[dict[str, Any]]:
    if not system:
        return []
    if isinstance(system, str):
        return [{"role": "system", "content": system}]
    for index, block in enumerate(system):
        if block.type != "text":
            _refuse_block(block, f"system[{index}]")
    content = _content(system, "system")
    return [{"role": "system", "content": content}] if content else []


def _turn(turn: Turn, where: str) -> list[dict[str, Any]]:
    if turn.role not in ("user", "assistant", "system"):
        refuse(f"{where}.role", "expected user, assistant or system")
    if isinstance(turn.content, str):
        return [{"role": turn.role, "content": turn.content}]
    if turn.role == "assistant":
        return [_assistant(turn.content, f"{where}.content")]
    return _user(turn.role, turn.content, f"{where}.content")


def _assistant(blocks: list[InputBlock], where: str) -> dict[str, Any]:
    """Text, reasoning and calls each keep their order; a chat message has no order among the three."""
    texts, hidden, calls = [], [], []
    for index, block in enumerate(blocks):
        field = f"{where}[{index}]"
        if block.type == "text":
            texts.append(block)
        elif block.type == "thinking":
            hidden.append(_text(block.thinking, f"{field}.thinking"))
        elif block.type == "tool_use":
            calls.append(_call(block, field))
        elif block.type != "redacted_thinking":
            _refuse_block(block, field)
    message: dict[str, Any] = {"role": "assistant", "content": _content(texts, where) or None}
    if not calls and message["content"] is None:
        message["content"] = ""
    if any(hidden):
        message["reasoning_content"] = "".join(hidden)
    if calls:
        message["tool_calls"] = calls
    return message


def _call(block: InputBlock, field: str) -> dict[str, Any]:
    """The input's own bytes become the arguments."""
    arguments = bytes(block.input).decode()
    if not arguments.startswith("{"):
        refuse(f"{field}.input", "expected an object")
    function = {"name": _text(block.name, f"{field}.name"), "arguments": arguments}
    return {"id": _text(block.id, f"{field}.id"), "type": "function", "function": function}


def _user(role: str, blocks: list[InputBlock], where: str) -> list[dict[str, Any]]:
    """Results of tools become messages of their own; their images follow, named, in the user's message."""
    results: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    own: list[InputBlock] = []
    for index, block in enumerate(blocks):
        field = f"{where}[{index}]"
        if block.type == "tool_result":
            if own:
                refuse(field, "the results of tools must come before everything else in a message")
            result, images = _result(block, field)
            results.append(result)
            shown += images
        elif block.type in ("text", "image"):
            own.append(block)
        else:
            _refuse_block(block, field)
    content = _content(own, where)
    if shown:
        rest = [{"type": "text", "text": content}] if isinstance(content, str) and content else content or []
        content = [*shown, *rest]
    if content or not results:
        results.append({"role": role, "content": content})
    return results


def _result(block: InputBlock, field: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The tool's message, and its images as parts. Chat has no flag for a failed tool: the text says it."""
    inner = [InputBlock(type="text", text=block.content)] if isinstance(block.content, str) else block.content or []
    texts, images = [], []
    for index, part in enumerate(inner):
        if part.type == "text":
            texts.append(part)
        elif part.type == "image":
            images.append(_image(part, f"{field}.content[{index}]"))
        else:
            _refuse_block(part, f"{field}.content[{index}]")
    content = _content(texts, f"{field}.content")
    if block.is_error:
        content = _as_error(content)
    call = _text(block.tool_use_id, f"{field}.tool_use_id")
    if images:
        images = [{"type": "text", "text": f"Images in the result of tool call {call}:"}, *images]
    return {"role": "tool", "tool_call_id": call, "content": content}, images


def _as_error(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    first = content if isinstance(content, str) else content[0]["text"]
    if first.lower().startswith("error"):
        return content
    return f"Error: {content}" if isinstance(content, str) else [{"type": "text", "text": "Error:"}, *content]


def _content(blocks: list[InputBlock], where: str) -> str | list[dict[str, Any]]:
    """One text is a string, all else a list of parts, so that no text is joined to another by our choice."""
    parts = []
    for index, block in enumerate(blocks):
        if block.type == "image":
            parts.append(_image(block, f"{where}[{index}]"))
        else:
            text = _text(block.text, f"{where}[{index}].text", empty=True)
            if text:
                parts.append({"type": "text", "text": text})
    if not parts:
        return ""
    only = parts[0].get("text")
    return only if len(parts) == 1 and isinstance(only, str) else parts


def _image(block: InputBlock, field: str) -> dict[str, Any]:
    source = block.source
    url = None
    if source is not None and source.type == "url":
        url = source.url
    elif source is not None and source.type == "base64" and source.data and source.media_type:
        url = f"data:{source.media_type};base64,{source.data}"
    if not url:
        refuse(f"{field}.source", "expected an image as base64 with its media type, or as a URL")
    return {"type": "image_url", "image_url": {"url": url}}


def _text(value: str | None, field: str, *, empty: bool = False) -> str:
    if value is None or not (value or empty):
        refuse(field, "missing or empty")
    return value


def _refuse_block(block: InputBlock, field: str) -> NoReturn:
    refuse(f"{field}.type", f"a chat engine has no place for a block of type {block.type[:40]}")


def _tools(fields: Fields) -> dict[str, Any]:
    body: dict[str, Any] = {}
    tools = fields.take("tools", list[Tool])
    if tools:
        body["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    choice = fields.take("tool_choice", ToolChoice)
    if choice is None:
        return body
    if choice.type == "tool":
        body["tool_choice"] = {"type": "function", "function": {"name": _text(choice.name, "tool_choice.name")}}
    elif choice.type in _CHOICES:
        body["tool_choice"] = _CHOICES[choice.type]
    else:
        refuse("tool_choice.type", "expected auto, any, tool or none")
    if choice.disable_parallel_tool_use:
        body["parallel_tool_calls"] = False
    return body


def _tool(tool: Tool, field: str) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        refuse(f"{field}.type", "a tool that Anthropic's servers define or run")
    if not bytes(tool.input_schema):
        refuse(f"{field}.input_schema", "missing")
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.input_schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _output(fields: Fields) -> dict[str, Any]:
    body: dict[str, Any] = {}
    config = fields.take("output_config", OutputConfig) or OutputConfig()
    shape = fields.take("output_format", OutputFormat) or config.format  # the older member of the same meaning
    if config.effort is not None:
        if config.effort not in _EFFORTS:
            refuse("output_config.effort", "expected low, medium, high, xhigh or max")
        body["reasoning_effort"] = _EFFORTS[config.effort]
    if shape is not None:
        if shape.type != "json_schema":
            refuse("output_config.format.type", "expected json_schema")
        schema = {"name": "answer", "schema": shape.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    return body
