"""Every transcript of the corpus is judged as the table says, however its bytes are split."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.protocol.conformance import Case
from setpoint.protocol.corpus import CORPUS
from setpoint.protocol.judgement import Judgement
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect


def pieces(body: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(c for c in cuts if 0 < c < len(body)), len(body)]
    return (body[a:b] for a, b in itertools.pairwise(edges))


def facts(judgement: Judgement) -> tuple[object, ...]:
    seen = judgement.observed
    return (
        judgement.outcome,
        judgement.error,
        seen.visible_chars,
        seen.reasoning_chars,
        seen.chunk_kinds,
        seen.completion_tokens,
        seen.prompt_tokens,
        [(call.id, call.name, call.text) for call in seen.calls],
    )


def test_the_corpus_is_large_and_names_are_unique() -> None:
    assert len(CORPUS) >= 60
    assert len({(c.name, c.dialect) for c in CORPUS}) == len(CORPUS)
    produced = {c.outcome for c in CORPUS}
    assert produced == set(Outcome) - {Outcome.TIMEOUT, Outcome.CANCELLED}, "only the client makes the other two"
    assert {c.dialect for c in CORPUS} == set(Dialect)


@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.name)
def test_a_transcript_is_judged_as_the_table_says(case: Case) -> None:
    reader, judgement = case.read()
    assert judgement.outcome is case.outcome, judgement.error
    assert (judgement.error is None) == case.outcome.answered
    seen = judgement.observed
    if case.visible is not None:
        assert seen.visible_chars == case.visible
    if case.tokens is not None:
        assert seen.completion_tokens == case.tokens
    if case.text is not None:
        answer = reader.answer()
        assert answer is not None
        assert answer.text == case.text
    if case.arguments is not None:
        assert tuple(call.text for call in seen.calls) == case.arguments
    assert "secret" not in str(judgement.error)


@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.name)
def test_one_byte_at_a_time_changes_nothing(case: Case) -> None:
    whole = facts(case.judge())
    assert facts(case.judge(bytes([b]) for b in case.body)) == whole


@pytest.mark.parametrize("case", CORPUS, ids=lambda c: c.name)
def test_no_single_cut_changes_anything(case: Case) -> None:
    whole = facts(case.judge())
    for cut in range(1, len(case.body)):
        assert facts(case.judge(pieces(case.body, [cut]))) == whole, f"cut at {cut}"


@given(st.sampled_from(CORPUS), st.lists(st.integers(1, 2000), max_size=12))
def test_no_split_changes_anything(case: Case, cuts: list[int]) -> None:
    assert facts(case.judge(pieces(case.body, cuts))) == facts(case.judge())


@given(
    st.sampled_from([c for c in CORPUS if c.outcome.answered and c.content_type.startswith("text/event")]), st.data()
)
def test_no_proper_prefix_of_a_stream_is_an_answer(case: Case, data: st.DataObject) -> None:
    whole = case.body
    terminal = {Dialect.MESSAGES: b"message_stop", Dialect.RESPONSES: b"response.completed"}.get(
        case.dialect, b"[DONE]"
    )
    terminal = terminal if terminal in whole else b"response.incomplete"
    cut = data.draw(st.integers(0, whole.index(terminal)))
    judgement = case.judge(iter((whole[:cut],)))
    assert not judgement.outcome.answered
