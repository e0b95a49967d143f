"""A stream of OpenAI Responses events."""

from typing import Any

import msgspec

from setpoint.protocol.translate import response_items
from setpoint.protocol.translate.blocks import Block, BlockWriter, Kind
from setpoint.protocol.translate.writer import Envelope

_encode = msgspec.json.encode
_DELTAS = {
    Kind.TEXT: "response.output_text.delta",
    Kind.THINKING: "response.reasoning_text.delta",
    Kind.CALL: "response.function_call_arguments.delta",
}
_DONE = {kind: name.removesuffix("delta") + "done" for kind, name in _DELTAS.items()}


class ResponsesWriter(BlockWriter):
    """Writes events into ``out``. The last event holds the whole response, so the whole text is kept until then."""

    __slots__ = ("_head", "_number", "_output", "_pieces", "_reason")

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._head: tuple[str, str, int | None] = (envelope.answer_id, "", None)
        self._number = 0
        self._output: list[dict[str, Any]] = []
        self._pieces: list[str] = []
        self._reason = ""

    @property
    def number(self) -> int:
        """Of the next event."""
        return self._number

    def _event(self, kind: str, **members: object) -> None:
        data = _encode({"type": kind, "sequence_number": self._number} | members)
        self._number += 1
        self.out.append(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n")

    def start(self, answer_id: str, model: str, created_s: int | None) -> None:
        """``response.created`` and ``response.in_progress``."""
        self._head = (answer_id, model, created_s)
        response = response_items.response(self._envelope, *self._head, "in_progress", [])
        self._event("response.created", response=response)
        self._event("response.in_progress", response=response)

    def finish(self, reason: str, sequence: str | None) -> None:  # noqa: ARG002 - no place for the sequence
        """Every item is done at once.

        Raises:
            BrokenAnswer: the reason names a call and there is none; the dialect has no word that would show it.
        """
        self._reason = reason
        self._blocks.close()
        response_items.check_calls(reason, self._output)

    def done(self) -> None:
        """``response.completed`` or ``response.incomplete``, with the whole response."""
        self._blocks.close()
        status = response_items.status_of(self._reason)
        response = response_items.response(
            self._envelope, *self._head, status, self._output, reason=self._reason, spent=self._spent
        )
        self._event(f"response.{status}", response=response)

    def ping(self) -> None:
        """A comment."""
        self.out.append(b": ping\n\n")

    def _place(self, block: Block) -> dict[str, Any]:
        index = len(self._output)
        place = {"item_id": response_items.item_id(block.kind, self._head[0], index), "output_index": index}
        return place if block.kind is Kind.CALL else place | {"content_index": 0}

    def open(self, block: Block) -> None:
        """``response.output_item.added``, and the part of it that holds text."""
        place = self._place(block)
        self._pieces = []
        item = response_items.item(block, place["item_id"], None)
        self._event("response.output_item.added", output_index=place["output_index"], item=item)
        if block.kind is not Kind.CALL:
            self._event("response.content_part.added", **place, part=response_items.part(block.kind, ""))

    def piece(self, block: Block, text: str) -> None:
        """A delta."""
        self._pieces.append(text)
        more: dict[str, Any] = {"logprobs": []} if block.kind is Kind.TEXT else {}
        self._event(_DELTAS[block.kind], **self._place(block), delta=text, **more)

    def close(self, block: Block) -> None:
        """The item is done; a call without arguments has an empty object."""
        if block.kind is Kind.CALL and not "".join(self._pieces).strip():
            self.piece(block, "{}")
        place, text = self._place(block), "".join(self._pieces)
        if block.kind is Kind.CALL:
            self._event(_DONE[block.kind], **place, name=block.name, arguments=text)
        else:
            self._event(_DONE[block.kind], **place, text=text)
            self._event("response.content_part.done", **place, part=response_items.part(block.kind, text))
        item = response_items.item(block, place["item_id"], text)
        self._event("response.output_item.done", output_index=place["output_index"], item=item)
        self._output.append(item)
