"""The conformance corpus: byte transcripts and the outcome each must be judged as.

A case is a response as a server sends it. Any reader of LLM answers can be held against the table; ours is, whole
and split at every byte. The transcripts follow what engines and gateways were seen to send, the broken ones included.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from setpoint.protocol.answer import AnswerReader
from setpoint.protocol.judgement import Judgement
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect

SSE = "text/event-stream"
JSON = "application/json"


@dataclass(frozen=True, slots=True)
class Case:
    """One transcript.

    Attributes:
        name: What it shows.
        dialect: Dialect of the request.
        body: The body's bytes, transfer coding removed.
        outcome: What it must be judged as.
        status: HTTP status.
        content_type: Response header; may be empty.
        broken: The connection was lost after the bytes.
        visible: Visible characters that must be counted; None leaves it open.
        tokens: Completion tokens that must be reported; None leaves it open.
        text: Visible text; None leaves it open.
        arguments: Tool arguments, call by call, byte for byte; None leaves it open.
    """

    name: str
    dialect: Dialect
    body: bytes
    outcome: Outcome
    status: int = 200
    content_type: str = SSE
    broken: bool = False
    visible: int | None = None
    tokens: int | None = None
    text: str | None = None
    arguments: tuple[str, ...] | None = None

    def judge(self, pieces: Iterator[bytes] | None = None) -> Judgement:
        """Judges the transcript, in the given pieces or whole."""
        return self.read(pieces)[1]

    def read(self, pieces: Iterator[bytes] | None = None) -> tuple[AnswerReader, Judgement]:
        """The reader after the transcript, and its judgement."""
        reader = AnswerReader(self.dialect, keep_text=True)
        reader.response(self.status, self.content_type)
        for piece in pieces if pieces is not None else iter((self.body,)):
            reader.feed(piece, 0.0)
        return reader, reader.broken("connection reset", 0.0) if self.broken else reader.end(0.0)


def sse(*payloads: object, end: str = "\n\n", prefix: str = "data: ") -> bytes:
    """Payloads as events: objects become JSON, strings stand as they are."""
    texts = (p if isinstance(p, str) else json.dumps(p, separators=(",", ":"), ensure_ascii=False) for p in payloads)
    return "".join(f"{prefix}{text}{end}" for text in texts).encode()


def events(*payloads: dict[str, Any], end: str = "\n") -> bytes:
    """Anthropic events: the name beside the data."""
    return "".join(
        f"event: {p['type']}{end}data: {json.dumps(p, ensure_ascii=False)}{end}{end}" for p in payloads
    ).encode()


def chat(delta: dict[str, Any] | None = None, finish: str | None = None, **more: object) -> dict[str, Any]:
    """A chat chunk with one choice."""
    return {
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
    } | more


def say(text: str) -> dict[str, Any]:
    """A chat chunk with content."""
    return chat({"content": text})


def usage(prompt: int, completion: int, **details: object) -> dict[str, Any]:
    """The usage chunk."""
    counts = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"object": "chat.completion.chunk", "choices": [], "usage": counts | details}


def tool(
    index: int = 0, call: str | None = None, name: str | None = None, arguments: str | None = None
) -> dict[str, Any]:
    """A chat chunk with a piece of a tool call."""
    function = {k: v for k, v in (("name", name), ("arguments", arguments)) if v is not None}
    piece = {k: v for k, v in (("index", index), ("id", call), ("function", function)) if v not in (None, {})}
    return chat({"tool_calls": [piece | ({"type": "function"} if call else {})]})


ROLE = chat({"role": "assistant", "content": ""})
DONE = "[DONE]"
STOP = chat(finish="stop")

START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "content": [],
        "usage": {"input_tokens": 9, "output_tokens": 0},
    },
}
MESSAGE_STOP: dict[str, Any] = {"type": "message_stop"}


def block(index: int, kind: str = "text", **more: object) -> dict[str, Any]:
    """A block begins."""
    begin = {"text": {"text": ""}, "thinking": {"thinking": ""}}.get(kind, {})
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **begin, **more}}


def piece(index: int, kind: str, text: str) -> dict[str, Any]:
    """A piece of a block."""
    member = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}[kind]
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, member: text}}


def stop_block(index: int) -> dict[str, Any]:
    """A block ends."""
    return {"type": "content_block_stop", "index": index}


def ended(reason: str | None, tokens: int = 2) -> dict[str, Any]:
    """The message's end with its usage."""
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": tokens}}


def text_block(*texts: str, index: int = 0) -> list[dict[str, Any]]:
    """A text block from start to stop."""
    return [block(index), *(piece(index, "text_delta", t) for t in texts), stop_block(index)]
