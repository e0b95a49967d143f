"""Wire types of OpenAI and Anthropic answers: only the fields that a judge needs, tolerant of nulls and extras.

They are made once a token and hold no cycles, so the garbage collector need not know them (``gc=False``).
"""

from typing import Annotated, Any

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]  # beyond it no record could hold the number
NOT_DECODED = (msgspec.DecodeError, RecursionError)  # the latter for nesting that no answer has


class Function(msgspec.Struct, gc=False):
    """The function part of a tool call; some servers send arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class ToolCall(msgspec.Struct, gc=False):
    """A whole tool call or a piece of one."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class Delta(msgspec.Struct, gc=False):
    """A chat delta, or the message of a non-streaming answer."""

    content: str | list[Any] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    refusal: str | None = None


class Choice(msgspec.Struct, gc=False):
    """One choice of a chat or completions answer."""

    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None


class PromptDetails(msgspec.Struct, gc=False):
    """Where prompt tokens came from."""

    cached_tokens: Count | None = None


class CompletionDetails(msgspec.Struct, gc=False):
    """What completion tokens were spent on."""

    reasoning_tokens: Count | None = None


class Usage(msgspec.Struct, gc=False):
    """OpenAI usage."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class Timings(msgspec.Struct, gc=False):
    """llama.cpp's own clock."""

    prompt_ms: float | None = None
    predicted_ms: float | None = None
    draft_n: Count | None = None
    draft_n_accepted: Count | None = None


class Embedding(msgspec.Struct, gc=False):
    """One vector, as floats or base64."""

    embedding: list[float] | str | None = None


class OpenAIAnswer(msgspec.Struct, gc=False):
    """A chunk of a stream, or a whole answer, of chat, completions or embeddings."""

    choices: list[Choice] | None = None
    usage: Usage | None = None
    timings: Timings | None = None
    data: list[Embedding] | None = None
    error: Any = None
    object: str | None = None


class AnthropicUsage(msgspec.Struct, gc=False):
    """Anthropic usage: ``input_tokens`` excludes what was read from or written to the cache."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_read_input_tokens: Count | None = None
    cache_creation_input_tokens: Count | None = None


class Block(msgspec.Struct, gc=False):
    """A content block: text, thinking, redacted_thinking, tool_use."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None


class Message(msgspec.Struct, gc=False):
    """An Anthropic message, whole or in ``message_start``."""

    content: list[Block] | None = None
    stop_reason: str | None = None
    usage: AnthropicUsage | None = None


class BlockDelta(msgspec.Struct, gc=False):
    """A piece of a block, or of the message in ``message_delta``."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class AnthropicEvent(msgspec.Struct, gc=False):
    """Any event of an Anthropic stream, or a whole message (whose fields stand at the top level)."""

    type: str = ""
    index: int | None = None
    message: Message | None = None
    content_block: Block | None = None
    delta: BlockDelta | None = None
    usage: AnthropicUsage | None = None
    error: Any = None
    content: list[Block] | None = None
    stop_reason: str | None = None


openai_answer = msgspec.json.Decoder(OpenAIAnswer).decode
anthropic_event = msgspec.json.Decoder(AnthropicEvent).decode


CONTEXT_FULL = "context_full"
"""The engine's KV cache was full while it generated (llama.cpp, told by the message alone)."""


def error_kind(error: object) -> str:
    """A short name of a decoded error object: type and code, never its message (which may quote the prompt).

    One message has no type of its own and gets a name here, ``CONTEXT_FULL``.
    """
    if not isinstance(error, dict):
        return "error"
    parts = [str(error[key])[:60] for key in ("type", "code") if error.get(key) not in (None, "")]
    if error.get("message") == "Context size has been exceeded.":
        parts.append(CONTEXT_FULL)
    return " ".join(parts) or "error"


def decoded_error(body: bytes) -> object:
    """The error object of a body: its ``error`` member, else the body itself; None when it is not JSON."""
    try:
        decoded = msgspec.json.decode(body)
    except NOT_DECODED:
        return None
    return decoded.get("error", decoded) if isinstance(decoded, dict) else decoded
