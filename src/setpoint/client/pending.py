"""One exchange while it is under way: what was seen, what may time out, and the row it becomes."""

import asyncio
import re
from collections.abc import Callable

import msgspec

from setpoint.client.connection import Connection
from setpoint.client.limits import PhaseTimeouts
from setpoint.client.watch import Watch
from setpoint.protocol.answer import AnswerReader
from setpoint.protocol.judgement import Judgement, judge_length
from setpoint.records.exchange import ChunkKind, Exchange, Outcome
from setpoint.records.target import Dialect

STALE_S = 1.0  # a connection that the server closed while idle is found out within a round trip of the send
_REASONING = ChunkKind.REASONING.value
LINGER_S = 1.0  # how long a server may keep the body open after the dialect's own end


class Planned(msgspec.Struct, frozen=True):
    """What the schedule says of one request; times on the clock of the client that sends it."""

    index: int
    session: int
    turn: int
    scheduled_s: float
    prompt_tokens: int
    output_tokens: int
    warmup: bool = False
    worker: int = 0


class Pending:
    """An exchange under way. Implements ``Sink``; resolves ``done`` exactly once.

    Args:
        planned: The request as scheduled.
        dialect: Dialect of the answer.
        timeouts: Phase limits.
        started_s: When the client began to work on it.
        keep_text: Hold the visible text.
        loop: The running loop.
        now: The clock.
        watch: Whatever calls ``check`` when a limit could have passed.
    """

    __slots__ = (
        "_loop", "_now", "_timeouts", "_watch", "connected_s", "connection", "done", "done_s", "fields",
        "headers_s", "judgement", "last_byte_s", "planned", "reader", "reused", "sent_s", "stale", "started_s",
        "status", "terminal_s", "within",
    )  # fmt: skip

    def __init__(
        self,
        planned: Planned,
        dialect: Dialect,
        timeouts: PhaseTimeouts,
        *,
        started_s: float,
        keep_text: bool,
        loop: asyncio.AbstractEventLoop,
        now: Callable[[], float],
        watch: Watch,
    ) -> None:
        self.planned = planned
        self.reader = AnswerReader(dialect, keep_text=keep_text)
        self.started_s = started_s
        self.connected_s: float | None = None
        self.sent_s: float | None = None
        self.headers_s: float | None = None
        self.terminal_s: float | None = None
        self.last_byte_s = started_s
        self.done_s = started_s
        self.status: int | None = None
        self.fields: dict[str, str] = {}
        self.judgement: Judgement | None = None
        self.within: str | None = None
        self.reused = False
        self.stale = False
        self.connection: Connection | None = None
        self.done: asyncio.Future[None] = loop.create_future()
        self._timeouts = timeouts
        self._loop = loop
        self._now = now
        self._watch = watch
        watch.within(min(timeouts.first_token_s, timeouts.gap_s, timeouts.total_s), loop)

    def settled(self) -> bool:
        """Whether the outcome is known."""
        return self.judgement is not None

    def attach(self, connection: Connection) -> None:
        """This connection carries the exchange from now on."""
        self.connection = connection
        self.connected_s = self._now()
        self.reused = connection.exchanges > 0
        self.stale = False

    # Sink

    def on_sent(self, now_s: float) -> None:
        """Request handed to the kernel. When the answer came first, the time of the send means nothing."""
        if self.headers_s is None:
            self.sent_s = now_s

    def on_head(self, status: int, fields: dict[str, str], now_s: float) -> None:
        """Headers complete."""
        self.status, self.fields, self.headers_s, self.last_byte_s = status, fields, now_s, now_s
        self.reader.response(status, fields.get("content-type", ""))

    def on_body(self, data: bytes, now_s: float) -> None:
        """A piece of the body."""
        self.last_byte_s = now_s
        self.reader.feed(data, now_s)
        if self.terminal_s is None and self.reader.finished:
            self.terminal_s = now_s
            if self.connection is not None and self.connection.busy:  # the end of the body did not come with it
                self._watch.within(LINGER_S, self._loop)
        elif self.reader.overflowed:
            self._abort()
            self._finish(self.reader.end(now_s), now_s)

    def on_end(self, now_s: float) -> None:
        """Body complete."""
        self._finish(self.reader.end(now_s), now_s)

    def on_lost(self, reason: str, now_s: float) -> None:
        """Connection lost."""
        if self._closed_while_idle(now_s):
            self.stale = True
            self.connection = None
            self.done.set_result(None)
        elif self.headers_s is None:
            self._finish(Judgement(Outcome.ERROR, reason, self.reader.seen), now_s)
        else:
            self._finish(self.reader.broken(reason, now_s), now_s)

    def on_garbled(self, reason: str, now_s: float) -> None:
        """Not HTTP."""
        if self.reader.finished:
            self._finish(self.reader.end(now_s), now_s)
        else:
            self._finish(Judgement(Outcome.MALFORMED, reason, self.reader.seen), now_s)

    def _closed_while_idle(self, now_s: float) -> bool:
        """Whether the server had closed the connection before it saw the request, which may then be sent again.

        A server that held the request for a while and then closed has failed it: a retry would hide that.
        """
        if self.connection is None or self.connected_s is None or not self.reused or self.connection.got_bytes:
            return False
        return now_s - self.connected_s <= STALE_S

    # ends that the client decides

    def fail(self, outcome: Outcome, reason: str, *, within: str | None = None) -> None:
        """Ends the exchange from this side and closes its connection."""
        self.within = within
        self._abort()
        self._finish(Judgement(outcome, reason, self.reader.seen), self._now())

    def cancel(self) -> None:
        """Ends the exchange on purpose; one that has ended stays as it is."""
        if not self.settled():
            self.fail(Outcome.CANCELLED, "cancelled by the client")

    def _abort(self) -> None:
        if self.connection is not None:
            self.connection.abort()

    def check(self) -> float | None:
        """Ends the exchange when a limit has passed. Else the seconds until one could have, at most ``gap_s``.

        So it is looked at within one gap of the first token, whenever that comes.
        """
        if self.settled():
            return None
        now = self._now()
        limits = self._timeouts
        if self.terminal_s is not None:  # the dialect's end was read and the body goes on: not for long
            left_s = self.terminal_s + LINGER_S - now
            if left_s > 0:
                return left_s
            self._abort()
            self._finish(self.reader.end(now), self.terminal_s)
            return None
        seen = self.reader.seen
        if seen.chunk_s:
            phase, deadline = "gap", self.last_byte_s + limits.gap_s
        else:
            began_s = self.started_s if self.sent_s is None else self.sent_s
            phase, deadline = "first_token", began_s + limits.first_token_s
        if self.started_s + limits.total_s < deadline:
            phase, deadline = "total", self.started_s + limits.total_s
        if now >= deadline:
            self.fail(Outcome.TIMEOUT, f"{phase.replace('_', ' ')} limit passed", within=phase)
            return None
        return min(deadline - now, limits.gap_s)

    def _finish(self, judgement: Judgement, now_s: float) -> None:
        if self.judgement is None:
            self.judgement, self.done_s = judge_length(judgement, self.planned.output_tokens), now_s
            if not self.done.done():
                self.done.set_result(None)

    def renew(self) -> None:
        """Ready for a second connection after a stale one, unless the exchange ended meanwhile."""
        if not self.settled():
            self.done = self._loop.create_future()
            self.connected_s = self.sent_s = None
            self.reused = False

    def exchange(self, origin_s: float) -> Exchange:
        """The finished row, with times since ``origin_s``."""
        assert self.judgement is not None
        seen, planned = self.judgement.observed, self.planned
        chunks = [moment - origin_s for moment in seen.chunk_s]
        kinds = "".join(seen.chunk_kinds)
        hidden = len(kinds) - len(kinds.lstrip(_REASONING))

        return Exchange(
            index=planned.index,
            session=planned.session,
            turn=planned.turn,
            warmup=planned.warmup,
            worker=planned.worker,
            scheduled_s=planned.scheduled_s - origin_s,
            started_s=self.started_s - origin_s,
            connected_s=None if self.connected_s is None else self.connected_s - origin_s,
            sent_s=None if self.sent_s is None else self.sent_s - origin_s,
            headers_s=None if self.headers_s is None else self.headers_s - origin_s,
            first_token_s=chunks[0] if chunks else None,
            first_visible_s=chunks[hidden] if hidden < len(chunks) else None,
            last_token_s=chunks[-1] if chunks else None,
            done_s=self.done_s - origin_s,
            chunk_s=chunks,
            chunk_tokens=seen.chunk_tokens(),
            chunk_kinds=kinds,
            outcome=self.judgement.outcome,
            status=self.status,
            finish_reason=seen.finish_reason,
            error=self.judgement.error,
            retry_after_s=_retry_after(self.fields.get("retry-after")),
            planned_prompt_tokens=planned.prompt_tokens,
            planned_output_tokens=planned.output_tokens,
            prompt_tokens=seen.prompt_tokens,
            completion_tokens=seen.completion_tokens,
            cached_tokens=seen.cached_tokens,
            reasoning_tokens=seen.reasoning_tokens,
            tokens_source="chunks" if seen.completion_tokens is None else "usage",
            visible_chars=seen.visible_chars,
            reasoning_chars=seen.reasoning_chars,
            tool_calls=len(seen.calls),
            server_prefill_s=seen.prefill_s,
            server_decode_s=seen.decode_s,
            draft_tokens=seen.draft_tokens,
            accepted_tokens=seen.accepted_tokens,
            reused_connection=self.reused,
            within=self.within,
        )


def _retry_after(value: str | None) -> float | None:
    """Seconds; the date form is not used by inference servers and is left out, as is what is no time at all."""
    return float(value) if value is not None and _SECONDS.fullmatch(value.strip()) else None


_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
