"""One attempt at an engine: its answer is passed on as it comes, and judged before its end is.

A stream's terminal event is held until the verdict is known. What is missing is never made up: a stream that the
engine cut ends for the client with an error event of its dialect. Until the first event of an answer was passed on,
the attempt can fail without a trace, and another replica can be tried.
"""

import time

from setpoint.client.connection import Connection
from setpoint.client.pending import STALE_S
from setpoint.errors import TranslationError
from setpoint.gateway.ask import Ask
from setpoint.gateway.config import Timeouts
from setpoint.gateway.downstream import ServerConnection
from setpoint.gateway.events import MAX_TAIL_BYTES, EventCutter, before_terminal, next_number, without_usage
from setpoint.gateway.fault import fault, retry_after_s
from setpoint.gateway.flow import Moment
from setpoint.gateway.refusal import Refusal, no_capacity
from setpoint.protocol import translate
from setpoint.protocol.answer import MAX_BODY_BYTES, MAX_ERROR_BYTES, AnswerReader
from setpoint.protocol.judgement import Judgement
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect

LINGER_S = 1.0
JSON = "application/json"
PASSED_STATUSES = (400, 413, 415, 422)  # what is wrong with the request is the client's to know


class Relay:
    """Implements ``client.connection.Sink``.

    Args:
        client: Where the answer goes.
        ask: What was asked.
        engine: Dialect that the engine answers in.
        timeouts: Limits.
        pass_empty: Whether an empty answer counts as one.
        repair: Outcomes that another attempt may mend while nothing was passed on.
        fields: Header fields for the answer.
        started_s: When the exchange began; the total limit counts from here.

    Attributes:
        done: Comes when the attempt has ended.
        judgement: How; None while it goes on.
        refusal: What the client must be told when nothing was passed on yet; None when it has all it gets.
        retryable: Whether another replica may do better.
        held: An answer is there, is not passed on yet, and another attempt may bring a better one; ``accept`` takes it.
        whole: Content type and body of the document that was passed on; None for a stream.
        healthy: Whether the engine answered as an engine should.
        stale: The kept-alive connection had been closed; nothing was answered.
    """

    __slots__ = (
        "_ask", "_body", "_body_bytes", "_client", "_connection", "_cutter", "_end", "_engine",
        "_fields", "_pass_empty", "_pinged_s", "_plain", "_repair", "_reused", "_said_last", "_same", "_started_s",
        "_status", "_stream", "_timeouts", "_translator", "_type", "_whole_usage", "done", "first_s", "healthy", "held",
        "judgement", "last_s", "passed_on", "reader", "refusal", "retry_after", "retryable", "sent_s", "stale", "whole",
    )  # fmt: skip

    def __init__(
        self,
        client: ServerConnection,
        ask: Ask,
        engine: Dialect,
        timeouts: Timeouts,
        *,
        pass_empty: bool,
        repair: frozenset[Outcome] = frozenset(),
        fields: list[tuple[str, str]],
        started_s: float,
    ) -> None:
        self._client = client
        self._ask = ask
        self._timeouts = timeouts
        self._pass_empty = pass_empty
        self._repair = repair
        self._end = b""  # of a stream that is held
        self._fields = fields
        self._started_s = started_s
        self._connection: Connection | None = None
        self._reused = False
        self._status = 0
        self._type = ""
        self._stream = False
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._cutter = EventCutter()
        self._pinged_s = started_s
        self._engine = engine
        self._same = engine is ask.dialect
        self._plain = self._same and engine is not Dialect.RESPONSES  # whose events are numbered
        self._said_last = b""
        self._whole_usage = ask.wants_usage or engine not in (Dialect.CHAT, Dialect.COMPLETIONS)
        self._translator: translate.StreamTranslator | None = None
        self.reader = AnswerReader(engine)
        self.done = Moment()
        self.judgement: Judgement | None = None
        self.refusal: Refusal | None = None
        self.retryable = False
        self.held = False
        self.whole: tuple[str, bytes] | None = None
        self.healthy = self.stale = self.passed_on = False
        self.retry_after: float | None = None
        self.sent_s = self.last_s = started_s
        self.first_s: float | None = None

    @property
    def status(self) -> int:
        """HTTP status of the engine; 0 before."""
        return self._status

    @property
    def answers(self) -> bool:
        """Whether the client got a whole answer, as far as this side can know."""
        return self.passed_on and self.judgement is not None and self._acceptable(self.judgement)

    def begin(self, connection: Connection, *, reused: bool, now_s: float) -> None:
        """This connection carries the attempt."""
        self._connection, self._reused, self.stale = connection, reused, False
        self.sent_s = self.last_s = now_s
        if self.done.come:
            self.done = Moment()

    # Sink

    def on_sent(self, now_s: float) -> None:
        """The request is on its way."""
        self.sent_s = now_s

    def on_head(self, status: int, fields: dict[str, str], now_s: float) -> None:
        """The engine begins to answer."""
        self._status, self._type, self.last_s = status, fields.get("content-type", "application/json"), now_s
        self.retry_after = retry_after_s(fields.get("retry-after"))
        self.reader.response(status, fields.get("content-type", ""))

    def on_body(self, data: bytes, now_s: float) -> None:
        """A piece of the answer."""
        self.last_s = now_s
        self.first_s = self.first_s or now_s
        reader = self.reader
        reader.feed(data, now_s)
        self._stream = bool(reader.streams)
        if not (self._stream and self._ask.stream):
            self._body_bytes += len(data)
            if self._body_bytes <= (MAX_BODY_BYTES if 200 <= self._status < 300 else MAX_ERROR_BYTES):
                self._body.append(data)
            elif 200 <= self._status < 300:
                self._lose(Outcome.MALFORMED, "the body is too large", now_s)
            return
        if self.judgement is not None:
            return
        events = self._cutter.cut(data)
        if reader.finished:
            events, end = before_terminal(events + self._cutter.tail)
            if not self.passed_on and reader.seen.error is not None:
                self._settle(reader.end(now_s), b"", now_s)
                return
            self._pass_on(events)
            if self.judgement is None:  # else they could not be said, and the client has an error event
                self._settle(reader.end(now_s), end, now_s)
        elif events:
            self._pass_on(events)
        elif len(self._cutter.tail) > MAX_TAIL_BYTES:
            self._lose(Outcome.MALFORMED, "an event is too large", now_s)

    def on_end(self, now_s: float) -> None:
        """The engine's answer is over."""
        self.last_s = now_s
        if self.judgement is None:
            judgement = self.reader.end(now_s)
            if not 200 <= self._status < 300:
                self._refused(judgement)
            elif self._stream and self._ask.stream:
                tail = self._cutter.tail
                self._settle(judgement, tail + b"\n\n" if tail else b"", now_s)
            else:
                self._whole(judgement)
        self._resolve()

    def on_lost(self, reason: str, now_s: float) -> None:
        """The engine is gone before the end of its answer."""
        connection = self._connection
        if self.judgement is None:
            unanswered = self._reused and connection is not None and not connection.got_bytes
            if unanswered and now_s - self.sent_s <= STALE_S:
                self.stale = True  # it was closed while idle; an engine that held the request for longer has failed it
            elif self._status == 0:
                self._lose(Outcome.ERROR, reason, now_s)
            else:
                self._settle(self.reader.broken(reason, now_s), b"", now_s)
        self._resolve()

    def on_garbled(self, reason: str, now_s: float) -> None:
        """What the engine sends is not HTTP."""
        if self.judgement is None:
            self._settle(Judgement(Outcome.MALFORMED, reason, self.reader.seen), b"", now_s)
        self._resolve()

    # limits

    def check(self, now_s: float) -> None:
        """Ends the attempt when a limit has passed, and keeps a silent stream alive; called a few times a second."""
        limits = self._timeouts
        if self.judgement is not None:
            if now_s - self.last_s > LINGER_S:
                self._resolve()
            return
        if now_s - self._started_s > limits.total:
            self._lose(Outcome.TIMEOUT, "total limit passed", now_s)
        elif self.first_s is None and self._connection is not None and now_s - self.sent_s > limits.first_byte:
            self._lose(Outcome.TIMEOUT, "first byte limit passed", now_s, retryable=True)
        elif self.first_s is not None and now_s - self.last_s > limits.gap and not self._client.paused:
            self._lose(Outcome.TIMEOUT, "gap limit passed", now_s)
        elif limits.ping and self._ask.stream and now_s - max(self._pinged_s, self.last_s) > limits.ping:
            self._pinged_s = now_s
            self._open()
            self._client.send(translate.ping(self._ask.dialect))

    # ends

    def end_now(self, now_s: float) -> None:
        """The gateway ends and cannot wait any longer."""
        if self.judgement is None:
            self._lose(Outcome.CANCELLED, "the gateway ended", now_s)

    def unreachable(self, reason: str, now_s: float, *, timeout: bool) -> None:
        """No connection to the engine."""
        self._lose(Outcome.TIMEOUT if timeout else Outcome.ERROR, reason, now_s, retryable=True)

    def _lose(self, outcome: Outcome, reason: str, now_s: float, *, retryable: bool = False) -> None:
        if self._connection is not None:
            self._connection.abort()
        judgement = Judgement(outcome, reason, self.reader.seen)
        self._settle(judgement, b"", now_s)
        self.retryable = (retryable or outcome is Outcome.ERROR) and not self.passed_on
        self._resolve()

    def _acceptable(self, judgement: Judgement) -> bool:
        """Whether the client may take this for an answer. All tokens spent on reasoning is one: its end says so."""
        if judgement.outcome in (Outcome.COMPLETE, Outcome.LENGTH, Outcome.REASONING_EXHAUSTED):
            return True
        withheld = judgement.outcome is Outcome.REFUSED and judgement.observed.finish_reason is not None
        return withheld or (self._pass_empty and judgement.outcome is Outcome.EMPTY)

    def _settle(self, judgement: Judgement, end: bytes, now_s: float) -> None:
        """The verdict is known: the stream's own end is passed on, or an error event takes its place."""
        self.judgement = judgement
        self.last_s = now_s
        if self._acceptable(judgement):
            self.healthy = True
            if self._mendable(judgement):
                self._end = end
                return
            if self._finish(end):
                return
            judgement = self.judgement
        refusal = fault(judgement)
        if self.passed_on:
            self._client.end(refusal.event(self._ask.dialect, next_number(self._said_last)))
        else:
            self.refusal = refusal
            mendable = judgement.outcome in self._repair
            self.retryable = mendable or judgement.outcome in (Outcome.ERROR, Outcome.TRUNCATED, Outcome.MALFORMED)
        self.healthy = self._by_the_model(judgement)

    def _by_the_model(self, judgement: Judgement) -> bool:
        """Whether the answer is none by what the model said, and its engine has done all that an engine should."""
        seen = judgement.observed
        unusable = judgement.outcome is Outcome.MALFORMED and seen.malformed is None and seen.finish_reason is not None
        return judgement.outcome is Outcome.EMPTY or (unusable and not seen.open_blocks)

    def _finish(self, end: bytes) -> bool:
        """Passes the end of a stream on; False when the client's dialect has no words for it."""
        last = self._said(end, last=True)
        if self._broken():
            return False
        self._open()
        self._client.end(last)
        self.passed_on = True
        return True

    def _mendable(self, judgement: Judgement) -> bool:
        """Whether this answer is held back for another attempt: nothing of it, and no head, has reached the client."""
        if judgement.outcome not in self._repair or self.passed_on or self._client.committed:
            return False
        self.held = self.retryable = True
        return True

    def accept(self) -> None:
        """The answer that is held is passed on: no better one came."""
        self.held = False
        assert self.judgement is not None
        if not (self._finish(self._end) if self._stream and self._ask.stream else self._reply(b"".join(self._body))):
            self.refusal = fault(self.judgement)

    def _whole(self, judgement: Judgement) -> None:
        """An answer in one document."""
        self.judgement = judgement
        fits = self._ask.stream == self._stream  # a stream nobody asked for, or none where one was: no client reads it
        if self._acceptable(judgement) and fits:
            if self._mendable(judgement):
                self.healthy = True
                return
            if self._reply(b"".join(self._body)):
                return
            fits, judgement = False, self.judgement
        if fits:
            self.refusal = fault(judgement)
            self.retryable = judgement.outcome is not Outcome.EMPTY or Outcome.EMPTY in self._repair
            self.healthy = self._by_the_model(judgement)
        else:
            self.judgement = Judgement(Outcome.MALFORMED, "not the kind of answer asked for", self.reader.seen)
            self.refusal = fault(self.judgement)
            self.retryable = True

    def _reply(self, body: bytes) -> bool:
        """Passes a whole answer on; False when the client's dialect has no words for it."""
        kind = self._type
        if self._engine is not self._ask.dialect:
            try:
                body, kind = translate.whole(body, self._engine, self._ask.dialect, self._envelope()), JSON
            except TranslationError:
                return False
        self.healthy = self.passed_on = True
        self.whole = kind, body
        self._client.reply(200, body, self._fields, kind)
        return True

    def _refused(self, judgement: Judgement) -> None:
        """A status that is no answer."""
        self.judgement, status = judgement, self._status
        if status in PASSED_STATUSES:
            self.healthy = True
            if self._client.committed:
                self.refusal = Refusal(400, "invalid_request", "The model server does not take this request.")
            else:
                self.passed_on = True
                body = translate.error(status, b"".join(self._body), self._engine, self._ask.dialect)
                kind = self._type if self._engine is self._ask.dialect else JSON
                self._client.reply(status, body, self._fields, kind)
            return
        self.retryable = True
        if status in (429, 503, 529):
            self.healthy = True
            self.refusal = no_capacity(self.retry_after or 1.0, "upstream_busy")
        else:
            code = "upstream_credentials" if status in (401, 403) else "upstream_error"
            self.refusal = Refusal(502, code, "The model server failed.")

    # to the client

    def _open(self) -> None:
        open_stream(self._client, self._fields)

    def _pass_on(self, events: bytes) -> None:
        if self.passed_on and self._plain:  # nearly every token
            self._client.send(events if self._whole_usage else without_usage(events))
            return
        said = self._said(events)
        if self._broken():
            self.retryable = not self.passed_on
            if self._connection is not None:
                self._connection.abort()
            self._settle(self.judgement or self._untold(), b"", self.last_s)
            self._resolve()
        elif said:
            self._open()
            self.passed_on = True
            self._client.send(said)
            if self._ask.dialect is Dialect.RESPONSES:
                self._said_last = said

    def _said(self, events: bytes, *, last: bool = False) -> bytes:
        """Whole events of the engine as the client gets them."""
        if self._same:
            return events if self._whole_usage else without_usage(events)
        if self._translator is None:
            self._translator = translate.StreamTranslator(self._engine, self._ask.dialect, self._envelope())
        said = self._translator.feed(events) if events else b""
        return said + self._translator.end() if last else said

    def _envelope(self) -> translate.Envelope:
        ask = self._ask
        return translate.Envelope(ask.model, created_s=int(time.time()), include_usage=ask.wants_usage)

    def _broken(self) -> bool:
        """Whether the answer cannot be said in the client's dialect; the verdict is then that it is malformed."""
        if self._translator is None or self._translator.failure is None:
            return False
        self.judgement = self._untold()
        return True

    def _untold(self) -> Judgement:
        reason = self._translator.failure if self._translator is not None else None
        return Judgement(Outcome.MALFORMED, f"not to be translated: {reason}", self.reader.seen)

    def _resolve(self) -> None:
        self.done.set()

    @property
    def first_token_s(self) -> float | None:
        """Arrival of the first delta."""
        return self.reader.seen.chunk_s[0] if self.reader.seen.chunk_s else None


def open_stream(client: ServerConnection, fields: list[tuple[str, str]]) -> None:
    """The head of a stream, where it has not been sent."""
    if not client.committed and not client.gone:
        own = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]
        client.head(200, own + fields)
