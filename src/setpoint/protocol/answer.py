"""One answer, read as its bytes arrive, and judged when they end.

The reader takes what the server sends, not what was asked for: JSON although a stream was asked for and a stream
although it was not are both read by their content type, or by their first byte where that is missing.
"""

import functools

from setpoint.protocol import anthropic, openai, responses
from setpoint.protocol.judgement import Answer, Judgement, Observed, judge_status, judge_whole
from setpoint.protocol.sse import OversizedEvent, SSEReader
from setpoint.protocol.template import Template
from setpoint.protocol.wire import decoded_error, error_kind
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect

_READERS = {Dialect.MESSAGES: anthropic, Dialect.RESPONSES: responses}
MAX_BODY_BYTES = 64 * 2**20
MAX_ERROR_BYTES = 64 * 2**10
ATTEMPTS = 4  # at finding out how the events of a stream repeat, without a success between them
MANY_BYTES = 2048  # a piece of a stream so long holds several events


@functools.lru_cache(maxsize=64)
def _media_type(content_type: str) -> str:
    return content_type.split(";", maxsplit=1)[0].strip().lower()


class AnswerReader:
    """Reads one answer in one dialect.

    Args:
        dialect: The wire dialect asked in.
        keep_text: Hold the visible text for the next turn of a session.

    Call ``response`` once, ``feed`` for each piece of the body, then ``end`` or ``broken`` once.

    Attributes:
        seen: What was read so far.
        overflowed: A bound on memory was exceeded: the verdict is certain and nothing more is read.
    """

    __slots__ = (
        "_attempts", "_body", "_body_bytes", "_dialect", "_read_event", "_refused", "_repeats_from", "_sse",
        "_template", "overflowed", "seen",
    )  # fmt: skip

    def __init__(self, dialect: Dialect, *, keep_text: bool = False) -> None:
        self._dialect = dialect
        self._read_event = _READERS.get(dialect, openai).read_event
        self._sse: SSEReader | None = None
        self._body: list[bytes] | None = None
        self._body_bytes = 0
        self._refused: tuple[Outcome, str] | None = None
        self._template: Template | None = None  # how the events repeat, once that is known
        self._attempts = ATTEMPTS if self._read_event is openai.read_event else 0
        self._repeats_from = 1  # tokens before one that is looked at: a stream of one token repeats nothing
        self.overflowed = False
        self.seen = Observed(parts=[] if keep_text else None)

    def response(self, status: int, content_type: str) -> None:
        """The response head: status and content type (may be empty)."""
        self._refused = judge_status(status)
        kind = _media_type(content_type)
        if self._refused is not None or kind in ("application/json", "text/html", "text/plain"):
            self._body = []
        elif kind == "text/event-stream":
            self._sse = SSEReader()

    def feed(self, data: bytes, now_s: float) -> None:
        """A piece of the body that arrived at ``now_s`` on the caller's clock."""
        sse = self._sse
        if self.overflowed:
            return
        if sse is None:
            self._feed_unknown(data, now_s)
            return
        template = self._template
        if template is not None:
            self._feed_repeated(template, sse, data, now_s)
        elif self._attempts and len(data) > MANY_BYTES:
            self._feed_first(data, now_s)
        else:
            self._feed_events(data, now_s)

    def _feed_events(self, data: bytes, now_s: float) -> None:
        assert self._sse is not None
        if self.overflowed:
            return
        try:
            events = self._sse.feed(data)
        except OversizedEvent as error:
            self.seen.malformed = str(error)
            self.overflowed = True
            return
        read, seen = self._read_event, self.seen
        before = len(seen.chunk_s)
        for event in events:
            read(event, seen, now_s)
        if self._attempts and len(events) == 1 and len(seen.chunk_s) > before >= self._repeats_from:
            self._attempts -= 1
            self._template = openai.template_of(events[0].payload) or self._template

    def _feed_repeated(self, template: Template, sse: SSEReader, data: bytes, now_s: float) -> None:
        """Bytes among which are events like the template."""
        if sse.between_events:
            text = template.text(data)
            if text is not None:
                self._attempts = ATTEMPTS
                if text:
                    self.seen.content(text, now_s)
                return
            if len(data) > 2 * template.bytes:
                self._feed_many(template, data, now_s)
                return
        self._feed_events(data, now_s)

    def _feed_many(self, template: Template, data: bytes, now_s: float) -> None:
        """Several events from the start of one: all like the template up to the last such, or some."""
        found = template.texts(data)
        if found is not None:
            pieces, text, rest = found
            self._attempts = ATTEMPTS
            self.seen.contents(pieces, text, now_s)
            if rest:
                self._feed_events(rest, now_s)
            return
        *events, rest = data.split(b"\n\n")
        for event in events:  # between two of them stands a blank line: the reader is always at the start of one
            whole = event + b"\n\n"
            plain = template.text(whole)
            if plain is None:
                self._feed_events(whole, now_s)
            elif plain and not self.overflowed:
                self.seen.content(plain, now_s)
        if rest:
            self._feed_events(rest, now_s)

    def _feed_first(self, data: bytes, now_s: float) -> None:
        """The first events of a long piece one by one, until one of them shows what the others look like."""
        assert self._sse is not None
        self._attempts -= 1
        self._repeats_from = 0
        for _ in range(ATTEMPTS):
            event, end, data = data.partition(b"\n\n")
            self._feed_events(event + end, now_s)
            if self._template is not None or not data:
                break
        self._repeats_from = 1
        if data and self._template is not None:
            self._feed_repeated(self._template, self._sse, data, now_s)
        elif data:
            self._feed_events(data, now_s)

    def _feed_unknown(self, data: bytes, now_s: float) -> None:
        if self._body is None:
            first = data.lstrip()[:1]
            if not first:
                return
            if first not in (b"{", b"[", b"<"):
                self._sse = SSEReader()
                self.feed(data, now_s)
                return
            self._body = []
        limit = MAX_BODY_BYTES if self._refused is None else MAX_ERROR_BYTES
        self._body_bytes += len(data)
        if self._body_bytes <= limit:
            self._body.append(data)
            return
        self.overflowed = True
        if self._refused is None:
            self.seen.malformed = f"the body exceeds {limit} bytes"

    @property
    def streams(self) -> bool | None:
        """Whether the answer is a stream; None until its header or its first byte has told."""
        return True if self._sse is not None else False if self._body is not None else None

    @property
    def finished(self) -> bool:
        """Whether the dialect's own end was seen, so that closing the connection loses nothing."""
        return self.seen.terminal or self.seen.error is not None

    def end(self, now_s: float) -> Judgement:
        """The body ended as HTTP says that it should."""
        seen = self.seen
        if self._refused is not None:
            outcome, reason = self._refused
            kind = error_kind(decoded_error(b"".join(self._body or ())))
            return Judgement(outcome, reason if kind == "error" else f"{reason} {kind}", seen)
        if self._sse is not None:
            self._close_stream(now_s)
        elif self._body and seen.malformed is None:
            _READERS.get(self._dialect, openai).read_body(b"".join(self._body), seen, now_s)
        elif seen.malformed is None:
            return Judgement(Outcome.EMPTY, "an empty body", seen)
        outcome, fault = judge_whole(seen)
        return Judgement(outcome, fault, seen)

    def broken(self, reason: str, now_s: float) -> Judgement:
        """The connection was lost in the body. After the terminal event nothing was lost."""
        if self.finished:
            return self.end(now_s)
        if self._refused is not None:
            return Judgement(*self._refused, self.seen)
        return Judgement(Outcome.TRUNCATED, reason, self.seen)

    def answer(self) -> Answer | None:
        """The visible text and tool calls, if they were kept."""
        if self.seen.parts is None:
            return None
        return Answer("".join(self.seen.parts), tuple(self.seen.calls))

    def _close_stream(self, now_s: float) -> None:
        """An event without its blank line counts only if it is whole."""
        assert self._sse is not None
        if self.overflowed or self._sse.between_events:
            return
        before = self.seen.malformed
        for event in self._sse.close():
            self._read_event(event, self.seen, now_s)
            self.seen.malformed = before
