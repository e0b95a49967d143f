"""Prompts of a planned token length, unlike any other unless the card shares a prefix.

Text is a sequence of common words, each known to be one token of the target's tokenizer, so that a prompt of n tokens
is n words and no prompt has to be tokenized while a run is under way. Every prompt depends on the run's nonce from its
first word on: a schedule that is run twice with one seed never measures the prefix cache by accident.
"""

import itertools
import random
from dataclasses import dataclass

from setpoint.workload.schedule import Session, Turn

# Common English words; in the usual BPE vocabularies each is one token with the space before it.
CANDIDATES = tuple(
    """
    the of and to in is that it was for on are as with they be at one have this from by hot word but what some we can
    out other were all there when up use your how said an each she which do their time if will way about many then them
    write would like so these her long make thing see him two has look more day could go come did number sound no most
    people my over know water than call first who may down side been now find any new work part take get place made
    live where after back little only round man year came show every good me give our under name very through just form
    sentence great think say help low line differ turn cause much mean before move right boy old too same tell does set
    three want air well also play small end put home read hand port large spell add even land here must big high such
    follow act why ask men change went light kind off need house picture try us again animal point mother world near
    build self earth father head stand own page should country found answer school grow study still learn plant cover
    food sun four between state keep eye never last let thought city tree cross farm hard start might story saw far sea
    draw left late run while press close night real life few north open seem together next white children begin got walk
    example ease paper group always music those both mark often letter until mile river car feet care second book carry
    took science eat room friend began idea fish mountain stop once base hear horse cut sure watch color face wood main
    """.split()  # noqa: SIM905 - a list of quoted words would be unreadable
)

CACHED_CHARACTERS = 2**25  # shared beginnings are kept up to here; many long ones are written anew each time


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Words that are one token each, and what the chat template adds.

    Attributes:
        words: At least two.
        opening_tokens: Tokens that the template adds around the first turn.
        turn_tokens: Tokens that it adds around each later turn.
        origin: ``measured`` with the target's own tokenizer or counts, ``assumed`` otherwise.
    """

    words: tuple[str, ...] = CANDIDATES
    opening_tokens: int = 0
    turn_tokens: int = 0
    origin: str = "assumed"


class PromptWriter:
    """Writes the new text of each turn.

    Args:
        vocabulary: Words to use.
        seed: Seed of the run.
        nonce: Of the run; another nonce gives other prompts, shared prefixes included.
    """

    def __init__(self, vocabulary: Vocabulary, seed: int, nonce: str) -> None:
        self._words = vocabulary.words
        self._opening = vocabulary.opening_tokens
        self._turn = vocabulary.turn_tokens
        self._salt = f"{nonce}/{seed}"
        self._prefixes: dict[tuple[int, int], str] = {}
        self._cached = 0

    def text(self, session: Session, position: int) -> str:
        """The text that a turn adds, template tokens taken off; at least one word."""
        turn = session.turns[position]
        template = self._turn if position else self._opening
        count = max(turn.prompt_tokens - template, 1)
        own = self._salted(f"{session.index}/{position}")
        if turn.blocks and not position:
            shared = max(min(len(turn.blocks) * turn.block_tokens - template, count - 1), 0)
            return self._blocks(turn, shared) + self._write(own, count - shared)
        if turn.prefix_group is None or position:
            return self._write(own, count)
        shared = max(min(turn.prefix_tokens - template, count - 1), 0)
        parts = self._prefix(turn.prefix_group, shared), self._write(own, count - shared)
        return parts[1] + parts[0] if turn.prefix_last else parts[0] + parts[1]

    def _prefix(self, group: int, count: int) -> str:
        key = (group, count)
        if key not in self._prefixes:
            text = self._write(self._salted(f"group/{group}"), count)
            while self._prefixes and self._cached + len(text) > CACHED_CHARACTERS:
                self._cached -= len(self._prefixes.pop(next(iter(self._prefixes))))
            self._prefixes[key] = text
            self._cached += len(text)
        return self._prefixes[key]

    def _blocks(self, turn: Turn, count: int) -> str:
        """The first ``count`` words of the turn's blocks; the text of a block depends on its number alone."""
        words = itertools.chain.from_iterable(
            self._salted(f"block/{block}").choices(self._words, k=turn.block_tokens) for block in turn.blocks
        )
        return "".join(f" {word}" for word in itertools.islice(words, count))

    def _salted(self, place: str) -> random.Random:
        return random.Random(f"{self._salt}/{place}")

    def _write(self, chosen: random.Random, count: int) -> str:
        return " " + " ".join(chosen.choices(self._words, k=count)) if count else ""
