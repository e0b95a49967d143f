"""The bytes of a fake engine's answers, one class a dialect."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from setpoint.testing.script import Said, Script, said_key

WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight")
BAD_ARGUMENTS = '{"query": "never closed'


def error(kind: str) -> bytes:
    """An error body."""
    return msgspec.json.encode({"error": {"type": kind, "message": "fake"}})


def prompt_words(asked: dict[str, Any]) -> list[str]:
    """All words of a request, in order."""
    if "messages" in asked:
        texts = [str(message.get("content") or "") for message in asked["messages"]]
    else:
        texts = [str(asked.get("prompt") or asked.get("input") or "")]
    return " ".join(texts).split()


def scripted(asked: dict[str, Any], script: Script) -> Said | None:
    """The scripted answer to a chat request; None where the engine counts."""
    if not script.answers or not asked.get("messages"):
        return None
    last = str(asked["messages"][-1].get("content") or "")
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
        word = f" {WORDS[number % len(WORDS)]}" if self.said is None or hidden else self.said[number]
        return _event(self._choice({"reasoning_content" if hidden else "content": word}))

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

    def _text(self, tokens: int, *, empty: bool) -> str:
        if empty:
            return ""
        if self.said is not None:
            return "".join(self.said[:tokens])
        return "".join(f" {WORDS[i % len(WORDS)]}" for i in range(tokens))

    def whole(self, tokens: int, *, empty: bool) -> bytes:
        """The answer in one JSON document."""
        message: dict[str, Any] = {"role": "assistant", "content": self._text(tokens, empty=empty)}
        if self.call is not None:
            message["tool_calls"] = [self._call()]
        choice = {"index": 0, "message": message, "finish_reason": self.reason}
        return msgspec.json.encode({"object": self.kind, "choices": [choice], "usage": self._usage(tokens)})


class CompletionsWire(Wire):
    """OpenAI completions."""

    kind = "text_completion"

    def _choice(self, part: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "text": part.get("content", ""), "finish_reason": finish}
        return {"object": self.kind, "model": self.script.model, "choices": [choice]}

    def whole(self, tokens: int, *, empty: bool) -> bytes:
        """The answer in one JSON document."""
        choice = {"index": 0, "text": self._text(tokens, empty=empty), "finish_reason": self.reason}
        return msgspec.json.encode({"object": self.kind, "choices": [choice], "usage": self._usage(tokens)})


class EmbeddingsWire(Wire):
    """OpenAI embeddings."""

    streams = False

    def whole(self, tokens: int, *, empty: bool) -> bytes:  # noqa: ARG002 - vectors have no length
        """A vector."""
        data = [] if empty else [{"index": 0, "embedding": [0.1, 0.2, 0.3]}]
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
        usage = {"input_tokens": self.prompt_tokens, "output_tokens": 0}
        message: dict[str, Any] = {"type": "message", "role": "assistant", "content": [], "usage": usage}
        return _event({"type": "message_start", "message": message}, "message_start")

    def token(self, number: int, *, hidden: bool) -> bytes:
        """One token, in a block of its kind."""
        kind = "thinking" if hidden else "text"
        out = self._enter(kind, {"type": kind, kind: ""})
        delta = {"type": f"{kind}_delta", kind: f" {WORDS[number % len(WORDS)]}"}
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
        usage = {"output_tokens": tokens}
        delta = {"type": "message_delta", "delta": {"stop_reason": self.reason}, "usage": usage}
        return self._leave() + _event(delta, "message_delta") + _event({"type": "message_stop"}, "message_stop")

    def error_event(self) -> bytes:
        """An error inside a 200."""
        return _event({"type": "error", "error": {"type": "api_error"}}, "error")

    def whole(self, tokens: int, *, empty: bool) -> bytes:
        """The message in one JSON document."""
        content = [] if empty else [{"type": "text", "text": self._text(tokens, empty=False)}]
        usage = {"input_tokens": self.prompt_tokens, "output_tokens": tokens}
        return msgspec.json.encode({"type": "message", "content": content, "stop_reason": self.reason, "usage": usage})

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
