"""Whole answers in every dialect, from the parts that a reader tells."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from setpoint.protocol.translate import reasons, response_items, write_chat, write_messages
from setpoint.protocol.translate.blocks import Block, Kind
from setpoint.protocol.translate.writer import BrokenAnswer, Envelope, Spent
from setpoint.records.target import Dialect


@dataclass(slots=True)
class Part:
    """One block of the answer: its text, or the arguments of a call."""

    kind: Kind
    call_id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The pieces, joined."""
        return "".join(self.pieces)

    @property
    def arguments(self) -> str:
        """The arguments; a call without any has an empty object."""
        return self.text if self.text.strip() else "{}"


class Collector:
    """A writer that keeps the parts of an answer."""

    __slots__ = ("_calls", "answer_id", "created_s", "model", "parts", "reason", "sequence", "usage")

    def __init__(self) -> None:
        self.answer_id = ""
        self.model = ""
        self.created_s: int | None = None
        self.parts: list[Part] = []
        self._calls: dict[int, Part] = {}
        self.reason: str | None = None
        self.sequence: str | None = None
        self.usage = Spent()

    def start(self, answer_id: str, model: str, created_s: int | None) -> None:
        """The answer begins."""
        self.answer_id, self.model, self.created_s = answer_id, model, created_s

    def _add(self, kind: Kind, text: str) -> None:
        if not self.parts or self.parts[-1].kind is not kind:
            self.parts.append(Part(kind))
        self.parts[-1].pieces.append(text)

    def text(self, text: str) -> None:
        """Visible text."""
        self._add(Kind.TEXT, text)

    def thinking(self, text: str) -> None:
        """Reasoning."""
        self._add(Kind.THINKING, text)

    def call(self, position: int, call_id: str, name: str) -> None:
        """A call begins."""
        self._calls[position] = Part(Kind.CALL, call_id, name)
        self.parts.append(self._calls[position])

    def arguments(self, position: int, text: str) -> None:
        """A piece of its arguments."""
        self._calls[position].pieces.append(text)

    def call_ended(self, position: int) -> None:
        """Nothing to do: the answer is written when it is whole."""

    def finish(self, reason: str, sequence: str | None) -> None:
        """Why it ended."""
        self.reason, self.sequence = reason, sequence

    def spent(self, spent: Spent) -> None:
        """Usage."""
        self.usage = spent

    def done(self) -> None:
        """A whole answer ends where it ends."""

    def ping(self) -> None:
        """Nothing to keep."""


def joined(parts: list[Part], kind: Kind) -> str:
    """The text of all parts of a kind."""
    return "".join(part.text for part in parts if part.kind is kind)


def whole_body(seen: Collector, target: Dialect, envelope: Envelope) -> bytes:
    """The body of a whole answer. One without a finish reason stays without.

    Raises:
        BrokenAnswer: tool arguments that are no object, or a missing call, where the dialect cannot show it.
    """
    shapes = {Dialect.MESSAGES: _message, Dialect.CHAT: _chat, Dialect.RESPONSES: _response}
    return msgspec.json.encode(shapes[target](seen, envelope))


def _response(seen: Collector, envelope: Envelope) -> dict[str, Any]:
    output = []
    for index, part in enumerate(seen.parts):
        identifier = response_items.item_id(part.kind, seen.answer_id, index)
        text = part.arguments if part.kind is Kind.CALL else part.text
        output.append(response_items.item(Block(part.kind, part.call_id, part.name), identifier, text))
    response_items.check_calls(seen.reason, output)
    head = (seen.answer_id, seen.model, seen.created_s)
    status = response_items.status_of(seen.reason)
    return response_items.response(envelope, *head, status, output, reason=seen.reason, spent=seen.usage)


def _chat(seen: Collector, envelope: Envelope) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": joined(seen.parts, Kind.TEXT) or None, "refusal": None}
    hidden = joined(seen.parts, Kind.THINKING)
    if hidden:
        message["reasoning_content"] = hidden
    calls = [
        {"id": part.call_id, "type": "function", "function": {"name": part.name, "arguments": part.arguments}}
        for part in seen.parts
        if part.kind is Kind.CALL
    ]
    if calls:
        message["tool_calls"] = calls
    reason = None if seen.reason is None else reasons.to_chat(seen.reason)
    choice: dict[str, Any] = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    if seen.sequence is not None:
        choice["stop_reason"] = seen.sequence
    body: dict[str, Any] = {
        "id": seen.answer_id,
        "object": "chat.completion",
        "created": envelope.created_s if seen.created_s is None else seen.created_s,
        "model": envelope.model or seen.model,
        "choices": [choice],
    }
    return body | ({} if seen.usage.completion is None else {"usage": write_chat.counts(seen.usage)})


def _message(seen: Collector, envelope: Envelope) -> dict[str, Any]:
    return {
        "id": seen.answer_id,
        "type": "message",
        "role": "assistant",
        "model": envelope.model or seen.model,
        "content": [_block(part, index) for index, part in enumerate(seen.parts)],
        "stop_reason": seen.reason,
        "stop_sequence": seen.sequence,
        "usage": write_messages.counts(seen.usage),
    }


def _block(part: Part, index: int) -> dict[str, Any]:
    if part.kind is Kind.TEXT:
        return {"type": "text", "text": part.text}
    if part.kind is Kind.THINKING:
        return {"type": "thinking", "thinking": part.text, "signature": ""}
    return {
        "type": "tool_use",
        "id": part.call_id,
        "name": part.name,
        "input": json_object(part.arguments, f"content[{index}].input"),
    }


def json_object(text: str, field: str) -> msgspec.Raw:
    """Arguments as they are, once they are known to be an object.

    Raises:
        BrokenAnswer: they are not.
    """
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise BrokenAnswer(field, "tool arguments are not JSON") from error
    if not isinstance(value, dict):
        raise BrokenAnswer(field, "tool arguments are not an object")
    return msgspec.Raw(text.encode())
