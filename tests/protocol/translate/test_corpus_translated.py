"""The conformance corpus, translated: the client's verdict is the engine's."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.translate.streams import CHAT, ENVELOPE, MESSAGES, RESPONSES, cut, translated

from setpoint.errors import TranslationError
from setpoint.protocol import translate
from setpoint.protocol.conformance import JSON, Case
from setpoint.protocol.corpus import CORPUS
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect

TARGETS = {CHAT: (MESSAGES, RESPONSES), MESSAGES: (CHAT, RESPONSES)}
PAIRS = [(case, target) for case in CORPUS for target in TARGETS.get(case.dialect, ())]

# What the client's dialect cannot repeat is told as an error: never as an answer.
BROKEN = {
    "a call without a name",
    "arguments before any call",
    "an event that is not JSON",
    "content of a wrong type",
    "a block never stopped",
    "a block started twice",
    "a delta outside its block",
    "two choices",  # one was asked for
}
OTHERWISE = {
    ("a call announced and missing", RESPONSES): Outcome.ERROR,  # no finish reason that could show it
    ("reasoning known from usage alone", MESSAGES): Outcome.EMPTY,  # usage has no reasoning tokens
}


def name(value: object) -> str:
    return value.name if isinstance(value, Case) else str(value)


def is_whole(case: Case) -> bool:
    return case.content_type not in ("", "text/event-stream", "text/event-stream; charset=utf-8") or case.body[:1] in (
        b"{",
        b"<",
    )


def through(case: Case, target: Dialect, pieces: list[bytes] | None = None) -> Case:
    """The case as the client of the other dialect receives it; a body that cannot be translated as its error."""
    if case.status >= 300:
        body, kind, status = translate.error(case.status, case.body, case.dialect, target), JSON, case.status
    elif is_whole(case):
        kind, status = JSON, 200
        try:
            body = translate.whole(case.body, case.dialect, target, ENVELOPE)
        except TranslationError as error:
            body, status = translate.error_body(target, "api_error", error.message), 502
    else:
        body, kind, status = translated(pieces or case.body, case.dialect, target), case.content_type, 200
    return replace(case, dialect=target, body=body, content_type=kind, status=status)


def expected(case: Case, target: Dialect) -> Outcome:
    if case.name in BROKEN or (is_whole(case) and case.outcome is Outcome.MALFORMED and case.status == 200):
        return Outcome.ERROR
    if case.name == "JSON lost on the way":
        return Outcome.ERROR  # a caller that lost the connection does not translate what it has
    return OTHERWISE.get((case.name, target), case.outcome)


@pytest.mark.parametrize(("case", "target"), PAIRS, ids=name)
def test_the_verdict_of_the_translation_is_the_verdict_of_the_original(case: Case, target: Dialect) -> None:
    got = through(case, target).judge()
    assert got.outcome is expected(case, target), got.error
    assert not (got.outcome.answered and not case.outcome.answered), "a failure became an answer"


@pytest.mark.parametrize(
    ("case", "target"), [p for p in PAIRS if p[0].outcome.answered and p[0].name not in BROKEN], ids=name
)
def test_text_calls_and_counts_arrive(case: Case, target: Dialect) -> None:
    reader, _ = case.read()
    other, _ = through(case, target).read()
    was, now = reader.answer(), other.answer()
    assert was is not None
    assert now is not None
    assert now.text == was.text
    assert [(c.id, c.name) for c in now.calls] == [(c.id, c.name) for c in was.calls]
    for before, after in zip(was.calls, now.calls, strict=True):
        if not before.text:
            assert after.text in ("", "{}")
        elif before.whole:
            assert json.loads(after.text) == json.loads(before.text)
        else:
            assert after.text == before.text or is_whole(case)
    assert other.seen.reasoning_chars == reader.seen.reasoning_chars
    for count in ("prompt_tokens", "completion_tokens"):
        assert (getattr(other.seen, count) or 0) == (getattr(reader.seen, count) or 0)


@pytest.mark.parametrize(("case", "target"), PAIRS, ids=name)
def test_one_byte_at_a_time_gives_the_same_bytes(case: Case, target: Dialect) -> None:
    if case.status < 300 and not is_whole(case):
        assert translated([bytes([b]) for b in case.body], case.dialect, target) == translated(
            case.body, case.dialect, target
        )


@given(st.sampled_from([p for p in PAIRS if not is_whole(p[0]) and p[0].status < 300]), st.lists(st.integers(1, 2000)))
def test_no_split_changes_a_byte(pair: tuple[Case, Dialect], cuts: list[int]) -> None:
    case, target = pair
    assert translated(cut(case.body, cuts), case.dialect, target) == translated(case.body, case.dialect, target)


@given(st.sampled_from([p for p in PAIRS if p[0].outcome.answered and not is_whole(p[0])]), st.data())
def test_no_cut_stream_gains_an_end(pair: tuple[Case, Dialect], data: st.DataObject) -> None:
    case, target = pair
    terminal = {MESSAGES: b"message_stop", CHAT: b"[DONE]"}[case.dialect]
    at = data.draw(st.integers(0, case.body.index(terminal)))
    out = translated(case.body[:at], case.dialect, target)
    for end in (b"message_delta", b"message_stop", b"[DONE]", b"response.completed", b"response.incomplete"):
        assert end not in out
    assert b'"finish_reason":"' not in out
    assert b'"stop_reason":"' not in out


@pytest.mark.parametrize("dialect", list(Dialect))
def test_a_dialect_to_itself_changes_nothing(dialect: Dialect) -> None:
    assert translate.request(b"any", dialect, dialect) == b"any"
    assert translate.whole(b"any", dialect, dialect) == b"any"
    assert translate.error(500, b"any", dialect, dialect) == b"any"
    assert translated([b"a", b"ny"], dialect, dialect) == b"any"


def test_pairs_without_a_translation_are_refused() -> None:
    with pytest.raises(TranslationError, match="no translation of answers from openai-completions"):
        translate.StreamTranslator(Dialect.COMPLETIONS, MESSAGES)
    with pytest.raises(TranslationError, match="no translation of answers from openai-responses"):
        translate.whole(b"{}", RESPONSES, CHAT)
    with pytest.raises(TranslationError, match="no translation of requests from openai-embeddings"):
        translate.request(b"{}", Dialect.EMBEDDINGS, CHAT)
