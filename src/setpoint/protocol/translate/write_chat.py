"""A stream of OpenAI chat chunks."""

from typing import Any

import msgspec

from setpoint.protocol.translate import reasons
from setpoint.protocol.translate.writer import Envelope, Spent

_encode = msgspec.json.encode
_END = b',"logprobs":null,"finish_reason":null}]}\n\n'


def counts(spent: Spent) -> dict[str, Any]:
    """Usage as OpenAI counts it: cached tokens inside the prompt."""
    prompt, completion = spent.prompt or 0, spent.completion or 0
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }
    if spent.cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": spent.cached}
    if spent.reasoning is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": spent.reasoning}
    return counts


class ChatWriter:
    """Writes chunks into ``out``. Calls keep their own index, an id only in their first piece."""

    __slots__ = ("_bare", "_envelope", "_filled", "_finish", "_head", "_spent", "out")

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._head = b""  # up to the delta of a chunk
        self._bare = b""  # up to the choices
        self._filled: dict[int, bool] = {}
        self._finish: tuple[str, str | None] = ("", None)
        self._spent = Spent()
        self.out: list[bytes] = []

    def start(self, answer_id: str, model: str, created_s: int | None) -> None:
        """The chunk with the role."""
        head = {
            "id": answer_id,
            "object": "chat.completion.chunk",
            "created": self._envelope.created_s if created_s is None else created_s,
            "model": self._envelope.model or model,
        }
        self._bare = b"data: " + _encode(head)[:-1]
        self._head = self._bare + b',"choices":[{"index":0,"delta":'
        self._delta(b'{"role":"assistant","content":""}')

    def _delta(self, delta: bytes) -> None:
        self.out.append(self._head + delta + _END)

    def text(self, text: str) -> None:
        """A piece of content."""
        self._delta(b'{"content":' + _encode(text) + b"}")

    def thinking(self, text: str) -> None:
        """A piece of reasoning, under the name that most clients read."""
        self._delta(b'{"reasoning_content":' + _encode(text) + b"}")

    def call(self, position: int, call_id: str, name: str) -> None:
        """The first piece of a call."""
        self._filled[position] = False
        function = {"name": name, "arguments": ""}
        piece = {"index": position, "id": call_id, "type": "function", "function": function}
        self._delta(_encode({"tool_calls": [piece]}))

    def arguments(self, position: int, text: str) -> None:
        """A later piece."""
        self._filled[position] = True
        index = str(position).encode()
        self._delta(b'{"tool_calls":[{"index":' + index + b',"function":{"arguments":' + _encode(text) + b"}}]}")

    def call_ended(self, position: int) -> None:
        """A call without arguments has an empty object: clients parse the text."""
        if not self._filled[position]:
            self.arguments(position, "{}")

    def finish(self, reason: str, sequence: str | None) -> None:
        """Waits for the terminal event."""
        self._finish = (reason, sequence)

    def spent(self, spent: Spent) -> None:
        """For the usage chunk."""
        self._spent = spent

    def done(self) -> None:
        """Finish reason, usage and ``[DONE]``."""
        reason, sequence = self._finish
        choice: dict[str, Any] = {
            "index": 0,
            "delta": {},
            "logprobs": None,
            "finish_reason": reasons.to_chat(reason),
        }
        if sequence is not None:
            choice["stop_reason"] = sequence
        self.out.append(self._bare + b',"choices":[' + _encode(choice) + b"]}\n\n")
        if self._envelope.include_usage and self._spent.completion is not None:
            self.out.append(self._bare + b',"choices":[],"usage":' + _encode(counts(self._spent)) + b"}\n\n")
        self.out.append(b"data: [DONE]\n\n")

    def ping(self) -> None:
        """A comment."""
        self.out.append(b": ping\n\n")
