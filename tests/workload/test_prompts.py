"""Prompts of the planned length: unlike any other, but for the beginnings that the card shares."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.workload.cards import card

from setpoint.workload import prompts
from setpoint.workload.generate import schedule_for
from setpoint.workload.prompts import CANDIDATES, PromptWriter, Vocabulary
from setpoint.workload.schedule import Schedule, Session, Turn

WORDS = Vocabulary()


def common(a: str, b: str) -> int:
    """Number of leading words that two prompts have in common."""
    pairs = zip(a.split(), b.split(), strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def openings(schedule: Schedule, seed: int = 1, nonce: str = "n") -> list[str]:
    writer = PromptWriter(WORDS, seed, nonce)
    return [writer.text(s, 0) for s in schedule.sessions]


def test_a_prompt_has_as_many_words_as_tokens_planned() -> None:
    schedule = schedule_for(card(prompt="{min: 1, max: 300}", traffic="prefix: {tokens: 40, share: 50%}"), 1)
    for session, text in zip(schedule.sessions, openings(schedule), strict=True):
        assert len(text.split()) == session.turns[0].prompt_tokens
        assert text.startswith(" ")
        assert set(text.split()) <= set(CANDIDATES)


def test_prompts_are_unique_from_their_beginning() -> None:
    texts = openings(schedule_for(card(arrivals="{process: poisson, rate: 10}"), 1))
    assert len(set(texts)) == len(texts) > 500
    assert max(common(a, b) for a, b in itertools.pairwise(sorted(texts))) < 8


def test_later_turns_are_unique_too() -> None:
    schedule = schedule_for(card(traffic="conversation: {turns: 4}"), 1)
    writer = PromptWriter(WORDS, 1, "n")
    texts = [writer.text(s, i) for s in schedule.sessions for i in range(4)]
    assert len(set(texts)) == len(texts)


def test_a_prefix_is_shared_inside_its_group_only() -> None:
    schedule = schedule_for(card(traffic="prefix: {tokens: 60, groups: 3, share: 60%}"), 1)
    texts = openings(schedule)
    for (a, first), (b, second) in itertools.combinations(zip(schedule.sessions, texts, strict=True), 2):
        group = a.turns[0].prefix_group
        if group is not None and group == b.turns[0].prefix_group:
            assert 60 <= common(first, second) < 68
        else:
            assert common(first, second) < 8


def test_a_shared_part_behind_is_the_same_text_after_what_varies() -> None:
    front = openings(schedule_for(card(traffic="prefix: {tokens: 60}"), 1))
    behind = openings(schedule_for(card(traffic="prefix: {tokens: 60, position: behind}"), 1))
    for before, after in zip(front, behind, strict=True):
        assert after.split() == before.split()[60:] + before.split()[:60]
    assert max(common(a, b) for a, b in itertools.pairwise(behind)) < 8


def test_the_layout_is_a_part_of_the_schedule_and_the_front_is_what_it_always_was() -> None:
    plain, front, behind = (
        schedule_for(card(traffic=f"prefix: {{tokens: 60{more}}}"), 1).digest()
        for more in ("", ", position: front", ", position: behind")
    )
    assert plain == front != behind


def test_a_shorter_prefix_is_the_beginning_of_a_longer_one() -> None:
    writer = PromptWriter(WORDS, 1, "n")
    short, long = (writer.text(Session(i, 0.0, (Turn(n, 1, 0, n - 1),)), 0) for i, n in enumerate((40, 90)))
    assert 39 <= common(short, long) <= 40


def test_a_nonce_changes_every_prompt_and_every_prefix() -> None:
    schedule = schedule_for(card(traffic="prefix: {tokens: 60}"), 1)
    for a, b in zip(openings(schedule, nonce="a"), openings(schedule, nonce="b"), strict=True):
        assert common(a, b) < 8
    for a, b in zip(openings(schedule, seed=1), openings(schedule, seed=2), strict=True):
        assert common(a, b) < 8


def test_prompts_are_the_same_in_another_process() -> None:
    program = (
        "from setpoint.workload.prompts import PromptWriter, Vocabulary\n"
        "from setpoint.workload.schedule import Session, Turn\n"
        "w = PromptWriter(Vocabulary(), 3, 'n')\n"
        "print(w.text(Session(5, 0.0, (Turn(30, 1, 2, 10),)), 0))\n"
    )
    source = str(Path(__file__).parents[2] / "src")
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert outputs == {PromptWriter(WORDS, 3, "n").text(Session(5, 0.0, (Turn(30, 1, 2, 10),)), 0).strip()}


@given(st.integers(1, 200), st.integers(0, 200), st.integers(0, 50), st.booleans())
@settings(deadline=None)
def test_template_tokens_are_taken_off(tokens: int, prefix: int, template: int, later: bool) -> None:
    vocabulary = Vocabulary(opening_tokens=template, turn_tokens=template)
    turn = Turn(tokens, 1) if later or not prefix else Turn(tokens, 1, 0, prefix)
    session = Session(0, 0.0, (Turn(5, 1), turn) if later else (turn,))
    text = PromptWriter(vocabulary, 1, "n").text(session, 1 if later else 0)
    assert len(text.split()) == max(tokens - template, 1)


def test_blocks_of_a_replay_are_shared_block_by_block() -> None:
    def turn(tokens: int, *blocks: int) -> Session:
        return Session(tokens, 0.0, (Turn(tokens, 1, blocks=blocks, block_tokens=16),))

    writer = PromptWriter(WORDS, 1, "n")
    whole, branch, cut = (writer.text(s, 0) for s in (turn(64, 0, 1, 2), turn(60, 0, 1, 9), turn(20, 0, 1)))
    assert 32 <= common(whole, branch) < 40
    assert 19 <= common(whole, cut) <= 20
    assert [len(t.split()) for t in (whole, branch, cut)] == [64, 60, 20]


def test_kept_prefixes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "CACHED_CHARACTERS", 2000)
    writer = PromptWriter(WORDS, 1, "n")
    first = writer.text(Session(0, 0.0, (Turn(110, 1, 0, 100),)), 0)
    for group in range(1, 30):
        writer.text(Session(group, 0.0, (Turn(110, 1, group, 100),)), 0)
    assert sum(map(len, writer._prefixes.values())) <= 2000
    assert writer.text(Session(0, 0.0, (Turn(110, 1, 0, 100),)), 0) == first
