"""The bytes of a fake engine's answers, one class a dialect."""

import re
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from setpoint.testing.script import FaultKind, Said, Script, said_key

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
BAD_ARGUMENTS = '{"query": "never closed'


def error(kind: str) -> bytes:
    """An error body."""
    return msgspec.json.encode({"error": {"type": kind, "message": "fake"}})


class Asked(msgspec.Struct):
    """What a fake engine reads of a request in any dialect."""

    model: str | None = None
    max_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    ignore_eos: bool = False
    stream: bool = False
    system: Any = None
    messages: list[dict[str, Any]] = []
    prompt: Any = None
    input: Any = None

    def words(self) -> list[str]:
        """All words of the prompt, in order."""
        contents = [self.system, *(message.get("content") for message in self.messages), self.prompt, self.input]
        return " ".join(_text_of(content) for content in contents).split()


def _text_of(content: object) -> str:
    if isinstance(content, list):
        return " ".join(_text_of(part) for part in content)
    if isinstance(content, dict):
        return _text_of(content.get("text"))
    return "" if content is None else str(content)


def scripted(asked: Asked, script: Script) -> Said | None:
    """The scripted answer to a chat request; None where the engine counts."""
    if not script.answers or not asked.messages:
        return None
    last = _text_of(asked.messages[-1].get("content"))
    return script.answers.get(said_key(last)) or script.answers.get("")


def pieces(text: str) -> list[str]:
    """A text as tokens: words with the space before them."""
    return re.findall(r"\s*\S+|\s+$", text)


def _event(data: object, name: str | None = None) -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + msgspec.json.encode(data) + b"\n\n"


class Wire:
    """OpenAI chat; the other dialects differ from it.

    Args:
        script: Of the engine.
        prompt_tokens: Of the request.
        stops: Whether the answer ends by itself, before the asked length.
    """

    streams = True
    kind = "chat.completion"

    def __init__(self, script: Script, prompt_tokens: int, stops: bool) -> None:  # noqa: FBT001 - set in one place
        self.script = script
        self.prompt_tokens = prompt_tokens
        self.reason = "stop" if stops else "length"
        self.cached_tokens = 0
        self.said: list[str] | None = None
        self.call: Said | None = None

    def say(self, said: Said, count: int) -> None:
        """Answers with a scripted text, cut at ``count`` tokens, or with a scripted tool call."""
        self.said = pieces(said.text)[:count]
        self.call = said if said.tool else None
        if self.call is not None and self.reason == "stop":
            self.reason = "tool_calls"

    def found(self, cached_tokens: int) -> None:
        """Prompt tokens that came from the prefix cache; told in the usage of OpenAI's dialects."""
        self.cached_tokens = cached_tokens

    def _choice(self, part: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": part, "finish_reason": finish}
        return {"object": f"{self.kind}.chunk", "model": self.script.model, "choices": [choice]}

    def _usage(self, tokens: int, hidden: int = 0) -> dict[str, Any]:
        usage: dict[str, Any] = {"prompt_tokens": self.prompt_tokens, "completion_tokens": tokens}
        usage["total_tokens"] = self.prompt_tokens + tokens
        if self.script.prefix_cache:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cached_tokens}
        if hidden:
            usage["completion_tokens_details"] = {"reasoning_tokens": hidden}
        return usage

    def begin(self) -> bytes:
        """Before any token."""
        return _event(self._choice({"role": "assistant", "content": ""}))

    def token(self, number: int, *, hidden: bool) -> bytes:
        """One token."""
        return _event(self._choice({"reasoning_content" if hidden else "content": self._word(number, hidden=hidden)}))

    def _word(self, number: int, *, hidden: bool) -> str:
        return f" {WORDS[number % len(WORDS)]}" if self.said is None or hidden else self.said[number]

    def _text(self, first: int, end: int, fault: FaultKind | None, *, hidden: bool = False) -> str:
        if fault in (FaultKind.EMPTY, FaultKind.BAD_TOOL):
            return ""
        return "".join(self._word(number, hidden=hidden) for number in range(first, end))

    def _call(self) -> dict[str, Any]:
        assert self.call is not None
        return {"index": 0, "id": "call_1", "function": {"name": self.call.tool, "arguments": self.call.arguments}}

    def bad_tool(self) -> bytes:
        """A tool call that nobody can execute."""
        call = {"index": 0, "id": "call_1", "function": {"name": "tool_0", "arguments": BAD_ARGUMENTS}}
        return _event(self._choice({"tool_calls": [call]}))

    def end(self, tokens: int, hidden: int) -> bytes:
        """Finish reason, usage, terminal event."""
        out = b"" if self.call is None else _event(self._choice({"tool_calls": [self._call()]}))
        out += _event(self._choice({}, self.reason))
        if self.script.reports_usage:
            out += _event({"object": f"{self.kind}.chunk", "choices": [], "usage": self._usage(tokens, hidden)})
        return out + b"data: [DONE]\n\n"

    def error_event(self) -> bytes:
        """An error inside a 200."""
        return b"data: " + error("server_error") + b"\n\n"

    def error_body(self) -> bytes:
        """The same in one JSON document."""
        return error("server_error")

    def whole(self, tokens: int, hidden: int, fault: FaultKind | None) -> bytes:
        """The answer in one JSON document, with what a fault does to it."""
        message: dict[str, Any] = {"role": "assistant", "content": self._text(hidden, tokens, fault)}
        if hidden:
            message["reasoning_content"] = self._text(0, hidden, fault, hidden=True)
        if self.call is not None:
            message["tool_calls"] = [self._call()]
        if fault is FaultKind.BAD_TOOL:
            message["tool_calls"] = [{"id": "call_1", "function": {"name": "tool_0", "arguments": BAD_ARGUMENTS}}]
        return self._document({"message": message}, tokens, hidden, fault)

    def _document(self, choice: dict[str, Any], tokens: int, hidden: int, fault: FaultKind | None) -> bytes:
        choice |= {"index": 0, "finish_reason": None if fault is FaultKind.TRUNCATE else self.reason}
        document: dict[str, Any] = {"id": "fake-1", "object": self.kind, "created": 0, "model": self.script.model}
        document["choices"] = [choice]
        if self.script.reports_usage:
            document["usage"] = self._usage(tokens, hidden)
        return msgspec.json.encode(document)


class CompletionsWire(Wire):
    """OpenAI completions."""

    kind = "text_completion"

    def _choice(self, part: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "text": part.get("content", ""), "finish_reason": finish}
        return {"object": self.kind, "model": self.script.model, "choices": [choice]}

    def whole(self, tokens: int, hidden: int, fault: FaultKind | None) -> bytes:
        """The answer in one JSON document."""
        return self._document({"text": self._text(hidden, tokens, fault)}, tokens, hidden, fault)


class EmbeddingsWire(Wire):
    """OpenAI embeddings."""

    streams = False

    def whole(self, tokens: int, hidden: int, fault: FaultKind | None) -> bytes:  # noqa: ARG002 - vectors have no length
        """A vector."""
        data = [] if fault is FaultKind.EMPTY else [{"index": 0, "embedding": [0.1, 0.2, 0.3]}]
        return msgspec.json.encode({"object": "list", "data": data, "usage": {"prompt_tokens": self.prompt_tokens}})


class MessagesWire(Wire):
    """Anthropic messages."""

    def __init__(self, script: Script, prompt_tokens: int, stops: bool) -> None:  # noqa: FBT001 - as its parent
        super().__init__(script, prompt_tokens, stops)
        self.reason = "end_turn" if stops else "max_tokens"
        self._open: str | None = None
        self._index = -1

    def begin(self) -> bytes:
        """The message starts."""
        message: dict[str, Any] = {"type": "message", "role": "assistant", "content": []}
        if self.script.reports_usage:
            message["usage"] = {"input_tokens": self.prompt_tokens, "output_tokens": 0}
        return _event({"type": "message_start", "message": message}, "message_start")

    def token(self, number: int, *, hidden: bool) -> bytes:
        """One token, in a block of its kind."""
        kind = "thinking" if hidden else "text"
        out = self._enter(kind, {"type": kind, kind: ""})
        delta = {"type": f"{kind}_delta", kind: self._word(number, hidden=hidden)}
        event = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return out + _event(event, "content_block_delta")

    def bad_tool(self) -> bytes:
        """A tool call that nobody can execute."""
        out = self._enter("tool_use", {"type": "tool_use", "id": "call_1", "name": "tool_0", "input": {}})
        delta = {"type": "input_json_delta", "partial_json": BAD_ARGUMENTS}
        event = {"type": "content_block_delta", "index": self._index, "delta": delta}
        return out + _event(event, "content_block_delta")

    def end(self, tokens: int, hidden: int) -> bytes:  # noqa: ARG002 - this dialect does not say
        """Stop reason and the message's end."""
        delta: dict[str, Any] = {"type": "message_delta", "delta": {"stop_reason": self.reason}}
        if self.script.reports_usage:
            delta["usage"] = {"output_tokens": tokens}
        return self._leave() + _event(delta, "message_delta") + _event({"type": "message_stop"}, "message_stop")

    def error_event(self) -> bytes:
        """An error inside a 200."""
        return _event({"type": "error", "error": {"type": "api_error"}}, "error")

    def error_body(self) -> bytes:
        """The same in one JSON document."""
        return msgspec.json.encode({"type": "error", "error": {"type": "api_error"}})

    def whole(self, tokens: int, hidden: int, fault: FaultKind | None) -> bytes:
        """The message in one JSON document. A tool's input is an object here, so a bad one is one without a name."""
        content: list[dict[str, Any]] = []
        if hidden:
            content.append({"type": "thinking", "thinking": self._text(0, hidden, fault, hidden=True)})
        if fault is FaultKind.BAD_TOOL:
            content.append({"type": "tool_use", "id": "call_1", "name": "", "input": {}})
        if text := self._text(hidden, tokens, fault):
            content.append({"type": "text", "text": text})
        reason = None if fault is FaultKind.TRUNCATE else self.reason
        document: dict[str, Any] = {"type": "message", "content": content, "stop_reason": reason}
        if self.script.reports_usage:
            document["usage"] = {"input_tokens": self.prompt_tokens, "output_tokens": tokens}
        return msgspec.json.encode(document)

    def _enter(self, kind: str, block: dict[str, Any]) -> bytes:
        if self._open == kind:
            return b""
        out = self._leave()
        self._open, self._index = kind, self._index + 1
        event = {"type": "content_block_start", "index": self._index, "content_block": block}
        return out + _event(event, "content_block_start")

    def _leave(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return _event({"type": "content_block_stop", "index": self._index}, "content_block_stop")


DIALECTS: dict[str, Callable[[Script, int, bool], Wire]] = {
    "/v1/chat/completions": Wire,
    "/v1/completions": CompletionsWire,
    "/v1/embeddings": EmbeddingsWire,
    "/v1/messages": MessagesWire,
}
