"""What a serving check is, and what it may do."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from setpoint.client.client import Client
from setpoint.client.pending import Planned
from setpoint.errors import TargetError
from setpoint.metrics.verdict import State
from setpoint.protocol.requests import Asked, Message
from setpoint.quality.task import Response
from setpoint.records.exchange import Exchange
from setpoint.records.target import Dialect

CALL_S = 60.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        name: Of the check.
        state: Met: the contract holds. Missed: it is broken. Undecided: the target does not show it.
        reason: In words, with the numbers.
        facts: For comparison with another record.
    """

    name: str
    state: State
    reason: str
    facts: dict[str, Any] = field(default_factory=dict)


class Server:
    """The target as checks see it.

    Args:
        client: Of the target; its dialect is OpenAI chat.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._sent = 0

    async def ask(
        self,
        messages: Sequence[Message] | str,
        max_tokens: int,
        *,
        stream: bool = True,
        tools: tuple[Message, ...] = (),
        response_format: Message | None = None,
        **extra: object,
    ) -> tuple[Exchange, Response]:
        """One chat request; failures are outcomes."""
        turns = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        asked = Asked(
            Dialect.CHAT,
            self.client.target.model,
            stream=stream,
            tools=tools,
            response_format=response_format,
            extra=extra,
        )
        self._sent += 1
        planned = Planned(self._sent, self._sent, 0, self.client.clock.now(), 0, max_tokens)
        row, answer = await self.client.exchange(asked.body(turns, max_tokens), planned, keep_text=True)
        return row, Response("") if answer is None else Response.of(answer)

    async def post(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        """A call of any other path: status and decoded JSON (None when it is none)."""
        try:
            response = await self.client.fetch("POST", path, msgspec.json.encode(body), timeout_s=CALL_S)
            return response.status, msgspec.json.decode(response.body)
        except (TargetError, msgspec.DecodeError):
            return 0, None


Check = Callable[[Server], Awaitable[Finding]]


def failed(name: str, row: Exchange) -> Finding:
    """A check whose request did not come through says nothing about the contract."""
    return Finding(name, State.UNDECIDED, f"a request of the check was not answered: {row.outcome} ({row.error})")
