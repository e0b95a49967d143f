"""A stream of Anthropic events."""

from typing import Any

import msgspec

from setpoint.protocol.translate.blocks import Block, BlockWriter, Kind
from setpoint.protocol.translate.writer import Envelope, Spent

_encode = msgspec.json.encode
_DELTAS = {
    Kind.TEXT: b',"delta":{"type":"text_delta","text":',
    Kind.THINKING: b',"delta":{"type":"thinking_delta","thinking":',
    Kind.CALL: b',"delta":{"type":"input_json_delta","partial_json":',
}
_DELTA = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":'


def counts(spent: Spent) -> dict[str, Any]:
    """Usage as Anthropic counts it: cached tokens beside the rest. It has no word for unknown: that becomes 0."""
    beside = (spent.cached or 0) + (spent.created or 0)
    counts: dict[str, Any] = {"input_tokens": max((spent.prompt or 0) - beside, 0)}
    if spent.created is not None:
        counts["cache_creation_input_tokens"] = spent.created
    if spent.cached is not None:
        counts["cache_read_input_tokens"] = spent.cached
    return counts | {"output_tokens": spent.completion or 0}


class MessagesWriter(BlockWriter):
    """Writes events into ``out``.

    The prompt's length is known at the end of a chat stream only: ``message_start`` says 0 and ``message_delta`` says
    the whole usage, as Anthropic's own cumulative usage allows.
    """

    __slots__ = ("_finish", "_index", "_prefix")

    def __init__(self, envelope: Envelope) -> None:
        super().__init__(envelope)
        self._index = -1
        self._finish: tuple[str, str | None] = ("", None)
        self._prefix: dict[Kind, bytes] = {}

    def _event(self, kind: str, **members: object) -> None:
        data = _encode({"type": kind} | members)
        self.out.append(b"event: " + kind.encode() + b"\ndata: " + data + b"\n\n")

    def start(self, answer_id: str, model: str, created_s: int | None) -> None:  # noqa: ARG002 - no place for it
        """``message_start``."""
        message: dict[str, Any] = {
            "id": answer_id,
            "type": "message",
            "role": "assistant",
            "model": self._envelope.model or model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        self._event("message_start", message=message)

    def finish(self, reason: str, sequence: str | None) -> None:
        """Every block is stopped at once; the reason waits for the usage."""
        self._finish = (reason, sequence)
        self._blocks.close()

    def done(self) -> None:
        """``message_delta`` and ``message_stop``."""
        self._blocks.close()
        reason, sequence = self._finish
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        self._event("message_delta", delta=delta, usage=counts(self._spent))
        self._event("message_stop")

    def ping(self) -> None:
        """A ping event."""
        self._event("ping")

    def open(self, block: Block) -> None:
        """``content_block_start``; a signature is empty, because only Anthropic can sign."""
        self._index += 1
        index = str(self._index).encode()
        self._prefix = {kind: _DELTA + index + delta for kind, delta in _DELTAS.items()}
        content: dict[str, Any] = {"type": block.kind.value}
        if block.kind is Kind.TEXT:
            content["text"] = ""
        elif block.kind is Kind.THINKING:
            content |= {"thinking": "", "signature": ""}
        else:
            content |= {"id": block.call_id, "name": block.name, "input": {}}
        self._event("content_block_start", index=self._index, content_block=content)

    def piece(self, block: Block, text: str) -> None:
        """``content_block_delta``."""
        self.out.append(self._prefix[block.kind] + _encode(text) + b"}}\n\n")

    def close(self, block: Block) -> None:  # noqa: ARG002 - a block is stopped by its index
        """``content_block_stop``."""
        self._event("content_block_stop", index=self._index)
