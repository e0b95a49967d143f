"""Events that repeat are read without being decoded, and as if they were."""

import itertools
import json
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from setpoint.protocol import openai, wire
from setpoint.protocol.answer import AnswerReader
from setpoint.protocol.conformance import DONE, STOP, chat, say, sse, usage
from setpoint.records.target import Dialect

TEXTS = st.one_of(
    st.sampled_from(
        ["word", " word", "", "\n", '"', "\\", "\u3000", "é", "word\u007f", "\n\ndata: ", "[DONE]", "null"]
    ),
    st.text(max_size=8),
)
ODD = [
    ": a comment\n\n",
    "event: error\ndata: {}\n\n",
    "data: {\n\n",
    "data: \n\n",
    "\n",
    "data: {}\r\n\r\n",
    sse(chat({"reasoning_content": "hm"})).decode(),
    sse(chat({"content": "x", "refusal": "y"})).decode(),
    sse(say("x") | {"usage": {"completion_tokens": 3}}).decode(),
    sse(say("x") | {"created": 7}).decode(),
    sse(STOP).decode(),
    sse(chat({"content": "word"}, finish="ab")).decode(),  # as long as the usual ``null``
    ": what follows on this line is a comment ",
    "event: error\n",
    sse(say("")).decode(),
    sse(say("é")).decode(),
    sse(say("word")).decode().replace('"word"', '"'),
]
EVENTS = st.lists(st.one_of(TEXTS.map(lambda text: sse(say(text)).decode()), st.sampled_from(ODD)), max_size=60)
WORD = sse(say("word")).decode()


def read(body: bytes, pieces: Iterator[bytes], dialect: Dialect = Dialect.CHAT, *, decoded: bool = False) -> object:
    """All that a reader notes of a stream; with ``decoded``, every event was."""
    reader = AnswerReader(dialect, keep_text=True)
    if decoded:
        reader._attempts = 0
    reader.response(200, "text/event-stream")
    for at, piece in enumerate(pieces):
        reader.feed(piece, float(at))
    seen, judged, answer = reader.seen, reader.end(0.0), reader.answer()
    assert answer is not None
    return (
        judged.outcome, judged.error, seen.chunk_s, seen.chunk_chars, seen.chunk_kinds, seen.visible_chars,
        seen.reasoning_chars, seen.completion_tokens, seen.finish_reason, seen.terminal, seen.error, answer.text,
    )  # fmt: skip


def cut(body: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(c for c in cuts if 0 < c < len(body)), len(body)]
    return (body[a:b] for a, b in itertools.pairwise(edges))


@given(EVENTS, st.lists(st.integers(1, 6000), max_size=20))
def test_a_stream_is_read_as_if_each_event_were_decoded(events: list[str], cuts: list[int]) -> None:
    body = "".join(events).encode() + sse(STOP, usage(4, 9), DONE)
    assert read(body, cut(body, cuts)) == read(body, cut(body, cuts), decoded=True)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("many", [1, 40])
def test_what_does_not_repeat_among_what_does_is_read_for_what_it_is(odd: str, many: int) -> None:
    for events in ([odd, WORD * many], [WORD * many + odd + WORD * many], [odd + WORD * many + odd]):
        pieces = [event.encode() for event in [WORD, WORD, WORD, *events]]
        assert read(b"", iter(pieces)) == read(b"", iter(pieces), decoded=True)


@given(EVENTS)
def test_a_read_an_event_is_read_as_if_each_were_decoded(events: list[str]) -> None:
    pieces = [event.encode() for event in [WORD, WORD, *events]]
    assert read(b"", iter(pieces)) == read(b"", iter(pieces), decoded=True)


@given(st.binary(max_size=12), st.booleans())
@example(b"a\x01", False)
@example(b"a\x01", True)
@example(b"a\nb", False)
@example(b"a\rb", False)
@example(b"a\nb", True)
@example(b"a\xffb", True)
@example(b"\\u0041", False)
@example(b"\\u0041", True)
@example(b'a","b":"', True)
@example(b'"', False)
def test_any_bytes_in_the_place_of_the_text_mean_what_they_mean(inside: bytes, several: bool) -> None:
    event = sse(say("word"))
    odd = event.replace(b"word", inside)
    pieces = [event, event, odd * 12 if several else odd, event]
    assert read(b"", iter(pieces)) == read(b"", iter(pieces), decoded=True)


@pytest.mark.parametrize(
    "payload",
    [
        json.dumps(say("word")).encode(),
        json.dumps({"model": "word", **say("word")}).encode(),
        json.dumps({"choices": [{"index": 0, "text": "word", "finish_reason": None}]}).encode(),
        b'{"choices":[{"delta":{"content":"old","content":"word"}}]}',
        b'{"choices":[{"delta":{"content":"word"},"logprobs":{"content":"word"}}]}',
    ],
    ids=["spaces", "model", "completions", "twice", "elsewhere"],
)
def test_the_place_of_the_text_is_the_one_that_is_read(payload: bytes) -> None:
    template = openai.template_of(payload)
    assert template is not None
    other = payload[::-1].replace(b"drow", b"erehwesle", 1)[::-1]
    event = b"data: %b\n\n" % payload
    found = [event.replace(b'"word"', b'"elsewhere"', 1), b"data: %b\n\n" % other]
    for changed in (e for e in found if template.text(e) is not None):
        assert template.text(changed) == "elsewhere"
        decoded = openai._only_text(wire.openai_answer(changed[6:-2]))
        assert decoded == "elsewhere"
    assert template.text(event) == "word"


@pytest.mark.parametrize(
    "payload",
    [b"{", b"[DONE]", b'{"choices":[{"delta":{"content":"w\\u006frd"}}]}', sse(STOP)[6:-2], sse(usage(1, 2))[6:-2]],
)
def test_no_other_event_is_one_that_repeats(payload: bytes) -> None:
    assert openai.template_of(payload) is None


def test_repeating_events_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def decode(payload: bytes) -> wire.OpenAIAnswer:
        decoded.append(payload)
        return wire.openai_answer(payload)

    monkeypatch.setattr(openai, "openai_answer", decode)
    for pieces in ([sse(say("word"))] * 100, [sse(say("word")) * 100]):
        decoded.clear()
        reader = AnswerReader(Dialect.CHAT)
        reader.response(200, "text/event-stream")
        for piece in pieces:
            reader.feed(piece, 0.0)
        assert len(reader.seen.chunk_s) == 100
        assert len(decoded) <= 4
