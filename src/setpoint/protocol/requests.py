"""The requests of each dialect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from setpoint.records.target import Dialect

PATHS = {
    Dialect.CHAT: "/v1/chat/completions",
    Dialect.COMPLETIONS: "/v1/completions",
    Dialect.EMBEDDINGS: "/v1/embeddings",
    Dialect.MESSAGES: "/v1/messages",
    Dialect.RESPONSES: "/v1/responses",
}

Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """What is the same in every request of a run.

    Attributes:
        dialect: Wire dialect.
        model: Model name as the server knows it.
        stream: Ask for a stream.
        force_length: Ask for exactly the planned number of tokens (``ignore_eos``; vLLM, SGLang and llama.cpp honour
            it). OpenAI dialects only.
        tools: OpenAI tool definitions; translated for Anthropic.
        response_format: OpenAI ``response_format``.
        extra: Further members, as they are.
    """

    dialect: Dialect
    model: str
    stream: bool = True
    force_length: bool = False
    tools: tuple[Message, ...] = ()
    response_format: Message | None = None
    extra: Mapping[str, Any] | None = None

    @property
    def path(self) -> str:
        """The path below the base URL."""
        return PATHS[self.dialect]

    def body(self, messages: Sequence[Message], max_tokens: int) -> bytes:
        """The JSON body for a conversation. Completions and embeddings take the text of the last message.

        Temperature is 0: two runs of one schedule should do the same work.
        """
        text = str(messages[-1]["content"])
        body: dict[str, Any] = {"model": self.model}
        if self.dialect is Dialect.EMBEDDINGS:
            return msgspec.json.encode(body | {"input": text} | dict(self.extra or {}))
        body |= {"max_tokens": max_tokens, "temperature": 0, "stream": self.stream}
        if self.dialect is Dialect.COMPLETIONS:
            body["prompt"] = text
        elif self.dialect is Dialect.MESSAGES:
            body |= _anthropic_conversation(messages)
        else:
            body["messages"] = messages
        if self.dialect is not Dialect.MESSAGES:
            if self.stream:
                body["stream_options"] = {"include_usage": True}
            if self.force_length:
                body |= {"ignore_eos": True, "min_tokens": max_tokens}
            if self.response_format is not None:
                body["response_format"] = self.response_format
        if self.tools:
            body["tools"] = _anthropic_tools(self.tools) if self.dialect is Dialect.MESSAGES else self.tools
        return msgspec.json.encode(body | dict(self.extra or {}))


def headers(dialect: Dialect, api_key: str | None) -> dict[str, str]:
    """Request headers that the dialect demands."""
    out = {"content-type": "application/json"}
    if dialect is Dialect.MESSAGES:
        out["anthropic-version"] = "2023-06-01"
        if api_key:
            out["x-api-key"] = api_key
    if api_key:
        out["authorization"] = f"Bearer {api_key}"
    return out


def tool_definition(name: str, description: str) -> Message:
    """An OpenAI tool with one string parameter: what a synthetic agent session offers."""
    schema = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


def _anthropic_conversation(messages: Sequence[Message]) -> dict[str, Any]:
    """System messages stand apart in Anthropic's dialect; a tool's result is a block in a user message."""
    system = "\n\n".join(str(m["content"]) for m in messages if m["role"] == "system")
    turns = [_anthropic_turn(m) for m in messages if m["role"] != "system"]
    return {"messages": turns, "system": system} if system else {"messages": turns}


def _anthropic_turn(message: Message) -> Message:
    if message["role"] == "tool":
        return {"role": "user", "content": message["content"]}
    return {"role": message["role"], "content": message["content"] or " "}


def _anthropic_tools(tools: Sequence[Message]) -> list[Message]:
    return [
        {
            "name": tool["function"]["name"],
            "description": tool["function"].get("description", ""),
            "input_schema": tool["function"].get("parameters", {"type": "object"}),
        }
        for tool in tools
    ]
