"""OpenAI chat answers, whole and streamed, told to a writer."""

from typing import Any

import msgspec

from setpoint.protocol.judgement import Observed
from setpoint.protocol.openai import DONE, find_call
from setpoint.protocol.sse import Event
from setpoint.protocol.translate import reasons
from setpoint.protocol.translate.error_body import describe
from setpoint.protocol.translate.writer import BrokenAnswer, Envelope, ReportedError, Spent, Writer
from setpoint.protocol.wire import Delta, ToolCall, Usage, decoded_error


class ChatChoice(msgspec.Struct):
    """A choice, with vLLM's ``stop_reason``: the stop sequence, as text, that ended it."""

    index: int = 0
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None


class ChatAnswer(msgspec.Struct):
    """A chunk or a whole answer, with the members that a judge does not need."""

    choices: list[ChatChoice] | None = None
    usage: Usage | None = None
    error: Any = None
    id: str | None = None
    model: str | None = None
    created: int | float | None = None


_decode = msgspec.json.Decoder(ChatAnswer).decode


class ChatReader:
    """Reads one answer.

    Args:
        writer: Told what the answer holds.
        envelope: For what the answer does not say.
    """

    __slots__ = ("_announced", "_envelope", "_finished", "_seen", "_started", "_writer")

    def __init__(self, writer: Writer, envelope: Envelope) -> None:
        self._writer = writer
        self._envelope = envelope
        self._started = False
        self._finished = False
        self._seen = Observed()  # its calls only: whose piece is whose is decided as the verdict decides it
        self._announced: set[int] = set()

    def event(self, event: Event) -> bool:
        """One event of a stream; True when it was the last.

        Raises:
            BrokenAnswer: the event is not the protocol.
            ReportedError: the engine reports an error.
        """
        payload = event.payload
        if payload == DONE or payload.strip() == DONE:
            if self._finished:
                self._writer.done()
            return True
        if event.name == b"error":
            raise ReportedError(*describe(decoded_error(payload)))
        try:
            answer = _decode(payload)
        except msgspec.DecodeError as error:
            raise BrokenAnswer("event", "not a chat chunk") from error
        self._read(answer, "event")
        return False

    def whole(self, body: bytes) -> None:
        """A whole answer.

        Raises:
            BrokenAnswer: the body is not the protocol.
            ReportedError: the engine reports an error.
        """
        try:
            answer = _decode(body)
        except msgspec.DecodeError as error:
            raise BrokenAnswer("body", "not a chat answer") from error
        if not answer.choices and answer.error is None:
            raise BrokenAnswer("choices", "missing or empty")
        self._read(answer, "body")
        if self._finished:
            self._writer.done()

    def _read(self, answer: ChatAnswer, where: str) -> None:
        if answer.error is not None:
            raise ReportedError(*describe(answer.error))
        if not self._started:
            self._started = True
            created = None if answer.created is None else int(answer.created)
            self._writer.start(answer.id or self._envelope.answer_id, answer.model or "", created)
        for choice in answer.choices or ():
            if choice.index != 0:
                raise BrokenAnswer(f"{where}.choices", "more than one choice, although one was asked for")
            self._read_choice(choice)
        if answer.usage is not None:
            self._writer.spent(_spent(answer.usage))

    def _read_choice(self, choice: ChatChoice) -> None:
        delta = choice.delta or choice.message
        if delta is not None:
            self._read_delta(delta)
        reason = choice.finish_reason
        if reason is None:
            return
        if reasons.failed(reason):
            raise ReportedError("api_error", f"the engine ended the answer with finish reason {reason}")
        self._end_calls()
        if not self._finished:
            self._finished = True
            neutral = reasons.from_chat(reason, calls=bool(self._seen.calls))
            sequence = choice.stop_reason if isinstance(choice.stop_reason, str) and neutral == "end_turn" else None
            self._writer.finish("stop_sequence" if sequence is not None else neutral, sequence)

    def _read_delta(self, delta: Delta) -> None:
        hidden = delta.reasoning_content or delta.reasoning
        if hidden:
            self._writer.thinking(hidden)
        content = delta.content
        if content:
            for text in (content,) if isinstance(content, str) else _texts(content):
                self._writer.text(text)
        if delta.refusal:
            self._writer.text(delta.refusal)
        if delta.tool_calls:
            for piece in delta.tool_calls:
                self._read_call(piece)

    def _read_call(self, piece: ToolCall) -> None:
        position = find_call(piece, self._seen)
        if position is None:
            raise BrokenAnswer("tool_calls", "arguments before any tool call")
        call = self._seen.calls[position]
        arguments = piece.function.arguments if piece.function else None
        text = msgspec.json.encode(arguments).decode() if isinstance(arguments, dict) else arguments or ""
        if position not in self._announced:
            if not call.name:
                call.arguments.append(text)
                return
            self._announced.add(position)
            self._writer.call(position, call.id or f"{self._envelope.answer_id}_{position}", call.name)
            text = call.text + text
            call.arguments.clear()
        if text:
            self._writer.arguments(position, text)

    def _end_calls(self) -> None:
        if any(not call.name for call in self._seen.calls):
            raise BrokenAnswer("tool_calls", "a tool call without a name")
        for position in range(len(self._seen.calls)):
            self._writer.call_ended(position)


def _texts(parts: list[Any]) -> list[str]:
    found = (part.get("text") for part in parts if isinstance(part, dict))
    return [text for text in found if isinstance(text, str) and text]


def _spent(usage: Usage) -> Spent:
    """A cached count above the whole prompt contradicts itself and counts as not reported."""
    details, generated = usage.prompt_tokens_details, usage.completion_tokens_details
    cached = details.cached_tokens if details is not None else None
    if cached is not None and (usage.prompt_tokens is None or cached > usage.prompt_tokens):
        cached = None
    reasoning = generated.reasoning_tokens if generated is not None else None
    return Spent(usage.prompt_tokens, cached, None, usage.completion_tokens, reasoning)
