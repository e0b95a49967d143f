"""Anthropic messages, whole and streamed, told to a writer."""

from typing import Any

import msgspec

from setpoint.protocol.sse import Event
from setpoint.protocol.translate import reasons
from setpoint.protocol.translate.error_body import describe
from setpoint.protocol.translate.writer import BrokenAnswer, Envelope, ReportedError, Spent, Writer
from setpoint.protocol.wire import AnthropicUsage, decoded_error


class MessagesBlock(msgspec.Struct):
    """A content block; the input of a call stays the bytes it was."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: msgspec.Raw = msgspec.Raw(b"")


class MessagesHead(msgspec.Struct):
    """The message in ``message_start``."""

    id: str | None = None
    model: str | None = None
    usage: AnthropicUsage | None = None


class MessagesDelta(msgspec.Struct):
    """A piece of a block, or the end of the message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class MessagesEvent(msgspec.Struct):
    """Any event, or a whole message."""

    type: str = ""
    index: int | None = None
    message: MessagesHead | None = None
    content_block: MessagesBlock | None = None
    delta: MessagesDelta | None = None
    usage: AnthropicUsage | None = None
    error: Any = None
    id: str | None = None
    model: str | None = None
    content: list[MessagesBlock] | None = None
    stop_reason: str | None = None
    stop_sequence: str | None = None


class _Open(msgspec.Struct):
    """An open block: the call it is (None for text), the input of its start, whether arguments came."""

    call: int | None = None
    input: str = ""
    filled: bool = False


_decode = msgspec.json.Decoder(MessagesEvent).decode
_SILENT = frozenset({"redacted_thinking"})  # sealed for its maker; no other dialect has a place for it


class MessagesReader:
    """Reads one answer.

    Args:
        writer: Told what the answer holds.
        envelope: For what the answer does not say.
    """

    __slots__ = ("_calls", "_envelope", "_finish", "_open", "_spent", "_started", "_writer")

    def __init__(self, writer: Writer, envelope: Envelope) -> None:
        self._writer = writer
        self._envelope = envelope
        self._started = False
        self._finish: tuple[str, str | None] | None = None
        self._open: dict[int, _Open] = {}
        self._calls = 0
        self._spent = Spent()

    def event(self, event: Event) -> bool:
        """One event of a stream; True when it was the last.

        Raises:
            BrokenAnswer: the event is not the protocol.
            ReportedError: the engine reports an error.
        """
        try:
            data = _decode(event.payload)
        except msgspec.DecodeError as error:
            if event.name == b"error":
                raise ReportedError(*describe(decoded_error(event.payload))) from error
            if event.payload.strip() == b"[DONE]":
                return False
            raise BrokenAnswer("event", "not an event of a message") from error
        kind = data.type or (event.name or b"").decode("ascii", "replace")
        if kind == "error" or data.error is not None:
            raise ReportedError(*describe(data.error))
        if kind == "content_block_delta":
            self._delta(data)
        elif kind == "content_block_start":
            self._start_block(data)
        elif kind == "content_block_stop":
            self._stop_block(data.index or 0)
        elif kind == "message_delta":
            self._message_delta(data)
        elif kind == "message_start":
            head = data.message or MessagesHead()
            self._begin(head.id, head.model)
            self._count(head.usage)
        elif kind == "message_stop":
            self._end()
            return True
        elif kind == "ping":
            self._writer.ping()
        return False

    def whole(self, body: bytes) -> None:
        """A whole message.

        Raises:
            BrokenAnswer: the body is not the protocol.
            ReportedError: the engine reports an error.
        """
        try:
            data = _decode(body)
        except msgspec.DecodeError as error:
            raise BrokenAnswer("body", "not a message") from error
        if data.type == "error" or data.error is not None:
            raise ReportedError(*describe(data.error))
        if data.content is None:
            raise BrokenAnswer("content", "missing")
        self._begin(data.id, data.model)
        for index, block in enumerate(data.content):
            self._start_block(MessagesEvent(index=index, content_block=block))
            self._stop_block(index)
        self._count(data.usage)
        if data.stop_reason is not None:
            if reasons.failed(data.stop_reason):
                raise ReportedError("api_error", f"the engine ended the answer with stop reason {data.stop_reason}")
            self._finish = (data.stop_reason, data.stop_sequence)
        self._end()

    def _begin(self, answer_id: str | None, model: str | None) -> None:
        if not self._started:
            self._started = True
            self._writer.start(answer_id or self._envelope.answer_id, model or "", None)

    def _start_block(self, data: MessagesEvent) -> None:
        index, block = data.index or 0, data.content_block
        self._begin(None, None)
        if block is None or index in self._open:
            raise BrokenAnswer("content_block", "without its type" if block is None else "started twice")
        opened = _Open()
        self._open[index] = opened
        if block.type == "text":
            if block.text:
                self._writer.text(block.text)
        elif block.type == "thinking":
            if block.thinking:
                self._writer.thinking(block.thinking)
        elif block.type == "tool_use":
            if not block.name:
                raise BrokenAnswer("content_block.name", "a tool call without a name")
            opened.call, self._calls = self._calls, self._calls + 1
            given = bytes(block.input).strip()
            opened.input = "" if given in (b"", b"{}", b"null") else given.decode()
            self._writer.call(opened.call, block.id or f"{self._envelope.answer_id}_{opened.call}", block.name)
        elif block.type not in _SILENT:
            raise BrokenAnswer("content_block.type", "a block that was not asked for and has no place in an answer")

    def _delta(self, data: MessagesEvent) -> None:
        delta, opened = data.delta, self._open.get(data.index or 0)
        if delta is None or opened is None:
            raise BrokenAnswer("content_block_delta", "a delta outside its content block")
        if delta.text:
            self._writer.text(delta.text)
        elif delta.thinking:
            self._writer.thinking(delta.thinking)
        elif delta.partial_json:
            if opened.call is None:
                raise BrokenAnswer("content_block_delta", "tool arguments outside a tool call")
            opened.filled = True  # the start event's input was a placeholder
            self._writer.arguments(opened.call, delta.partial_json)

    def _stop_block(self, index: int) -> None:
        opened = self._open.pop(index, None)
        if opened is None or opened.call is None:
            return
        if not opened.filled and opened.input:
            self._writer.arguments(opened.call, opened.input)
        self._writer.call_ended(opened.call)

    def _message_delta(self, data: MessagesEvent) -> None:
        delta = data.delta
        self._count(data.usage)
        if delta is not None and delta.stop_reason is not None:
            if reasons.failed(delta.stop_reason):
                raise ReportedError("api_error", f"the engine ended the answer with stop reason {delta.stop_reason}")
            self._finish = (delta.stop_reason, delta.stop_sequence)

    def _count(self, usage: AnthropicUsage | None) -> None:
        """Anthropic counts cached tokens beside the rest; later events may repeat, complete or omit."""
        if usage is None:
            return
        spent = self._spent
        spent.cached = spent.cached if usage.cache_read_input_tokens is None else usage.cache_read_input_tokens
        created = usage.cache_creation_input_tokens
        spent.created = spent.created if created is None else created
        spent.completion = spent.completion if usage.output_tokens is None else usage.output_tokens
        if usage.input_tokens is not None and (usage.input_tokens or spent.prompt is None):
            spent.prompt = usage.input_tokens + (spent.cached or 0) + (spent.created or 0)

    def _end(self) -> None:
        if self._open:
            raise BrokenAnswer("content_block", "a content block was never stopped")
        self._writer.spent(self._spent)
        if self._finish is not None:
            self._writer.finish(*self._finish)
            self._writer.done()
