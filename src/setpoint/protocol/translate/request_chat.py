"""Chat requests for engines that speak Anthropic's dialect."""

import re
from hashlib import blake2b
from typing import Any

import msgspec

from setpoint.protocol.translate.fields import Fields, refuse
from setpoint.protocol.translate.write_whole import json_object
from setpoint.protocol.translate.writer import BrokenAnswer

CARRIED = ("model", "temperature", "top_p", "top_k", "stream")
DROPPED = (
    "metadata",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_retention",
    "seed",
    "service_tier",
    "store",
    "stream_options",
    "verbosity",
)
NEUTRAL: dict[str, tuple[object, ...]] = {
    "n": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "modalities": (["text"],),
}
"""Members without a counterpart, and the values that ask for nothing."""
_CHOICES = {"auto": "auto", "required": "any", "none": "none"}
_EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high"}
_DATA_URL = re.compile(r"data:(?P<type>[\w.+-]+/[\w.+-]+);base64,", re.ASCII)
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+", re.ASCII)


class ImageURL(msgspec.Struct):
    """Where an image is; ``detail`` has no counterpart."""

    url: str


class Part(msgspec.Struct):
    """A part of a message."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: ImageURL | str | None = None


class CalledFunction(msgspec.Struct):
    """The function of a call."""

    name: str
    arguments: str | None = None


class AskedCall(msgspec.Struct):
    """A call of an earlier answer."""

    id: str
    function: CalledFunction | None = None
    type: str | None = None


class Message(msgspec.Struct):
    """A message. ``name`` and reasoning are dropped: no signature proves the reasoning."""

    role: str
    content: str | list[Part] | None = None
    tool_calls: list[AskedCall] | None = None
    tool_call_id: str | None = None
    refusal: str | None = None
    function_call: msgspec.Raw = msgspec.Raw(b"null")
    audio: msgspec.Raw = msgspec.Raw(b"null")


class Function(msgspec.Struct):
    """A function definition."""

    name: str
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"")
    strict: bool | None = None


class Tool(msgspec.Struct):
    """A tool."""

    type: str
    function: Function | None = None


class NamedFunction(msgspec.Struct):
    """The name of a function."""

    name: str


class ToolChoice(msgspec.Struct):
    """A forced function."""

    type: str
    function: NamedFunction | None = None


class JSONSchema(msgspec.Struct):
    """A schema with its name, which has no counterpart."""

    schema: msgspec.Raw


class ResponseFormat(msgspec.Struct):
    """What the answer must look like."""

    type: str
    json_schema: JSONSchema | None = None


def to_messages(fields: Fields) -> dict[str, Any]:
    """The members of a request for ``/v1/messages``.

    Raises:
        TranslationError: a field is malformed or cannot be carried.
    """
    body = fields.carry(CARRIED)
    system, messages = _conversation(fields.need("messages", list[Message]))
    if system:
        body["system"] = system if len(system) > 1 else system[0]["text"]
    body["messages"] = messages
    body["max_tokens"] = _max_tokens(fields)
    stop: str | list[str] | None = fields.take("stop", str | list[str])
    if stop:
        body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    body |= _tools(fields)
    user = fields.take("user", str)
    user = fields.take("safety_identifier", str) or user
    if user:
        body["metadata"] = {"user_id": user}
    config = _output(fields)
    if config:
        body["output_config"] = config
    for name, values in NEUTRAL.items():
        fields.allow(name, *values)
    fields.drop(DROPPED)
    fields.done()
    return body


def _max_tokens(fields: Fields) -> int:
    older = fields.take("max_tokens", int)
    limit = fields.take("max_completion_tokens", int) or older
    if limit is None:
        refuse("max_tokens", "missing, and Anthropic's dialect demands it")
    return limit


def _conversation(messages: list[Message]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """System blocks, and turns. A result joins the results before it, a user's message the results before it."""
    system: list[dict[str, Any]] = []
    turns: list[dict[str, Any]] = []
    joinable = False  # the last turn holds results of tools and nothing else yet
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if message.role in ("system", "developer"):
            if turns:
                refuse(f"{where}.role", "a system message after the conversation has begun")
            system += _blocks(message.content, f"{where}.content")
        elif message.role == "tool":
            if not joinable:
                turns.append({"role": "user", "content": []})
                joinable = True
            turns[-1]["content"].append(_result(message, where))
        elif message.role == "user":
            if joinable:
                turns[-1]["content"] += _blocks(message.content, f"{where}.content")
            else:
                turns.append({"role": "user", "content": _content(message, where)})
            joinable = False
        elif message.role == "assistant":
            turns.append({"role": "assistant", "content": _assistant(message, where)})
            joinable = False
        else:
            refuse(f"{where}.role", "expected system, developer, user, assistant or tool")
    return system, turns


def _content(message: Message, where: str) -> str | list[dict[str, Any]]:
    return message.content if isinstance(message.content, str) else _blocks(message.content, f"{where}.content")


def _blocks(content: str | list[Part] | None, where: str) -> list[dict[str, Any]]:
    """Empty texts are left out: Anthropic refuses them."""
    if content is None:
        refuse(where, "missing")
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks: list[dict[str, Any]] = []
    for index, part in enumerate(content):
        field = f"{where}[{index}]"
        if part.type == "image_url":
            blocks.append(_image(part, field))
        elif part.type in ("text", "refusal"):
            text = part.text if part.type == "text" else part.refusal
            if text is None:
                refuse(f"{field}.{part.type}", "missing")
            blocks += [{"type": "text", "text": text}] if text else []
        else:
            refuse(f"{field}.type", "expected text, refusal or image_url")
    return blocks


def _image(part: Part, field: str) -> dict[str, Any]:
    url = part.image_url.url if isinstance(part.image_url, ImageURL) else part.image_url
    if not url:
        refuse(f"{field}.image_url", "missing")
    inline = _DATA_URL.match(url)
    if inline:
        source = {"type": "base64", "media_type": inline["type"], "data": url[inline.end() :]}
    elif url.startswith(("https://", "http://")):
        source = {"type": "url", "url": url}
    else:
        refuse(f"{field}.image_url.url", "expected http, https or base64 data with a media type")
    return {"type": "image", "source": source}


def _assistant(message: Message, where: str) -> str | list[dict[str, Any]]:
    for name, raw in (("function_call", message.function_call), ("audio", message.audio)):
        if bytes(raw) != b"null":
            refuse(f"{where}.{name}", "it has no counterpart")
    if isinstance(message.content, str) and message.content and not message.tool_calls and not message.refusal:
        return message.content
    blocks = [] if message.content is None else _blocks(message.content, f"{where}.content")
    if message.refusal:
        blocks.append({"type": "text", "text": message.refusal})
    for index, call in enumerate(message.tool_calls or ()):
        blocks.append(_call(call, f"{where}.tool_calls[{index}]"))
    return blocks


def _call(call: AskedCall, field: str) -> dict[str, Any]:
    if call.function is None:
        refuse(f"{field}.function", "missing; only functions have a counterpart")
    arguments = call.function.arguments or ""
    try:
        given = json_object(arguments if arguments.strip() else "{}", f"{field}.function.arguments")
    except BrokenAnswer as broken:
        refuse(broken.field, broken.message)
    return {"type": "tool_use", "id": _call_id(call.id), "name": call.function.name, "input": given}


def _call_id(call_id: str) -> str:
    """Anthropic accepts letters, digits, ``_`` and ``-``; other identifiers become a digest, the same each time."""
    if _CALL_ID.fullmatch(call_id):
        return call_id
    return f"toolu_{blake2b(call_id.encode(), digest_size=12).hexdigest()}"


def _result(message: Message, where: str) -> dict[str, Any]:
    if not message.tool_call_id:
        refuse(f"{where}.tool_call_id", "missing")
    return {
        "type": "tool_result",
        "tool_use_id": _call_id(message.tool_call_id),
        "content": _content(message, where),
    }


def _tools(fields: Fields) -> dict[str, Any]:
    body: dict[str, Any] = {}
    tools = fields.take("tools", list[Tool])
    if tools:
        body["tools"] = [_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools)]
    asked: str | ToolChoice | None = fields.take("tool_choice", str | ToolChoice)
    choice = _choice(asked)
    parallel = fields.take("parallel_tool_calls", bool)
    if parallel is False and tools and choice != {"type": "none"}:
        choice = (choice or {"type": "auto"}) | {"disable_parallel_tool_use": True}
    return body if choice is None else body | {"tool_choice": choice}


def _choice(choice: str | ToolChoice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    if isinstance(choice, ToolChoice):
        if choice.type != "function" or choice.function is None:
            refuse("tool_choice.type", "expected function with its name")
        return {"type": "tool", "name": choice.function.name}
    if choice not in _CHOICES:
        refuse("tool_choice", "expected auto, required, none or a function")
    return {"type": _CHOICES[choice]}


def _tool(tool: Tool, field: str) -> dict[str, Any]:
    function = tool.function
    if tool.type != "function" or function is None:
        refuse(f"{field}.type", "expected function")
    out: dict[str, Any] = {"name": function.name}
    if function.description is not None:
        out["description"] = function.description
    # A function without parameters takes none, says OpenAI's reference.
    given = bytes(function.parameters) not in (b"", b"null")
    out["input_schema"] = function.parameters if given else {"type": "object", "properties": {}}
    if function.strict is not None:
        out["strict"] = function.strict
    return out


def _output(fields: Fields) -> dict[str, Any]:
    config: dict[str, Any] = {}
    effort = fields.take("reasoning_effort", str)
    if effort is not None and effort not in ("none", "minimal"):
        if effort not in _EFFORTS:
            refuse("reasoning_effort", "expected none, minimal, low, medium, high or xhigh")
        config["effort"] = _EFFORTS[effort]
    shape = fields.take("response_format", ResponseFormat)
    if shape is not None and shape.type == "json_schema" and shape.json_schema is not None:
        config["format"] = {"type": "json_schema", "schema": shape.json_schema.schema}
    elif shape is not None and shape.type != "text":
        refuse("response_format.type", "expected text or json_schema with its schema")
    return config
