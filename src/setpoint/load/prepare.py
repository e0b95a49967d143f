"""Before a run: the target's own tokenizer, its chat template's overhead, forced lengths, and the warm-up.

A prompt of n planned tokens is n words, each one token, less what the template adds. Words are measured with the
target's ``/tokenize`` where it has one; the overhead is what the usage of the warm-up's answers says.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import msgspec

from setpoint.client.client import Client
from setpoint.client.pending import Planned
from setpoint.errors import TargetError
from setpoint.protocol.judgement import CUT
from setpoint.protocol.requests import Asked, tool_definition
from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.target import Dialect, Target
from setpoint.workload.card import Workload
from setpoint.workload.prompts import CANDIDATES, PromptWriter, Vocabulary
from setpoint.workload.schedule import Session

TOKENIZE_CALLS = 80
WARM_UP_STREAMS = 2
LEAST_WORDS = 64


class _Tokens(msgspec.Struct):
    tokens: list[int] | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was found out about the target.

    Attributes:
        vocabulary: For prompts.
        asked: For requests; says whether lengths are forced.
        rows: Warm-up exchanges, times on the client's clock, oldest first.
        cold: The very first exchange; None without a warm-up.
        notes: Sentences for the record.
    """

    vocabulary: Vocabulary
    asked: Asked
    rows: tuple[Exchange, ...]
    cold: Exchange | None
    notes: tuple[str, ...]


def asked_for(card: Workload, target: Target) -> Asked:
    """The constant part of requests that a card asks for."""
    contract = card.contract
    stream = contract.streaming and target.dialect is not Dialect.EMBEDDINGS
    chats = target.dialect in (Dialect.CHAT, Dialect.MESSAGES)
    count = max(contract.tools, 1 if contract.response == "tool_call" else 0) if chats else 0
    tools = tuple(tool_definition(f"tool_{i}", "Looks something up.") for i in range(count))
    json_mode = contract.response == "json" and target.dialect is Dialect.CHAT
    return Asked(
        target.dialect,
        target.model,
        stream=stream,
        force_length=target.dialect in (Dialect.CHAT, Dialect.COMPLETIONS) and contract.response == "text",
        tools=tools,
        response_format={"type": "json_object"} if json_mode else None,
    )


async def prepare(
    client: Client, card: Workload, sessions: Sequence[Session], seed: int, nonce: str, warmup_requests: int
) -> Prepared:
    """Measures the tokenizer and sends the warm-up.

    Args:
        client: Of the target.
        card: The card.
        sessions: Of the schedule; the warm-up takes the shapes of the first ones.
        seed: Of the run.
        nonce: Of the run; the warm-up's prompts share nothing with the run's.
        warmup_requests: How many, the cold one included.

    Raises:
        TargetError: the target answers none of them.
    """
    notes: list[str] = []
    words = await _one_token_words(client)
    if words is None:
        notes.append("The target has no tokenizer endpoint: words are assumed to be one token each.")
    vocabulary = Vocabulary(words or CANDIDATES, origin="assumed" if words is None else "measured")
    asked = asked_for(card, client.target)
    if not warmup_requests or not sessions:
        return Prepared(vocabulary, asked, (), None, tuple(notes))
    shapes = [sessions[i % len(sessions)] for i in range(warmup_requests)]
    cold, asked = await _cold(client, asked, shapes[0], PromptWriter(vocabulary, seed, f"{nonce}/cold"), notes)
    vocabulary = _with_overhead(vocabulary, shapes[0], cold, notes)
    rows = [cold]
    writer = PromptWriter(vocabulary, seed, f"{nonce}/warm-up")
    slots = asyncio.Semaphore(WARM_UP_STREAMS)

    async def one(number: int, session: Session) -> Exchange:
        async with slots:
            return await _send(client, asked, session, writer, number)

    rows += await asyncio.gather(*(one(i, s) for i, s in enumerate(shapes[1:], 1)))
    if asked.force_length and not _forced(rows):
        asked = replace(asked, force_length=False)
        notes.append("The target does not honour ignore_eos: output lengths are its own.")
    return Prepared(vocabulary, asked, tuple(rows), cold, tuple(notes))


async def _cold(
    client: Client, asked: Asked, session: Session, writer: PromptWriter, notes: list[str]
) -> tuple[Exchange, Asked]:
    row = await _send(client, asked, session, writer, 0)
    if row.outcome is Outcome.REFUSED and asked.force_length:
        plain = replace(asked, force_length=False)
        again = await _send(client, plain, session, writer, 0)
        if again.outcome is not Outcome.REFUSED:
            notes.append("The target refuses ignore_eos: output lengths are its own.")
            return again, plain
    # An answer cut short came from a server that works; the run will say how many are.
    cut = row.outcome is Outcome.TRUNCATED and row.finish_reason in CUT
    if not row.outcome.answered and not cut and row.outcome not in (Outcome.EMPTY, Outcome.REASONING_EXHAUSTED):
        raise TargetError(
            f"The warm-up request was not answered: {row.outcome} ({row.error}).",
            fix="Check that the card's lengths fit the model's context and that the server is healthy.",
        )
    return row, asked


async def _send(client: Client, asked: Asked, session: Session, writer: PromptWriter, number: int) -> Exchange:
    turn = session.turns[0]
    body = asked.body([{"role": "user", "content": writer.text(session, 0)}], turn.output_tokens)
    planned = Planned(
        index=-1 - number,
        session=-1 - number,
        turn=0,
        scheduled_s=client.clock.now(),
        prompt_tokens=turn.prompt_tokens,
        output_tokens=turn.output_tokens,
        warmup=True,
    )
    row, _ = await client.exchange(body, planned)
    return row


def _with_overhead(vocabulary: Vocabulary, session: Session, cold: Exchange, notes: list[str]) -> Vocabulary:
    """Template tokens from the first answer's usage: what the server counted beyond the words that were sent."""
    if cold.prompt_tokens is None:
        notes.append(
            "The target does not report prompt tokens: the chat template's share is unknown and not taken off."
        )
        return vocabulary
    overhead = cold.prompt_tokens - session.turns[0].prompt_tokens
    if vocabulary.origin == "assumed" and overhead > session.turns[0].prompt_tokens // 4 + 64:
        notes.append("The target counts far more tokens than words: its prompts are longer than planned.")
        return vocabulary
    if overhead < 0:
        notes.append(f"The target counts {-overhead} tokens fewer than words were sent.")
        return vocabulary
    return replace(vocabulary, opening_tokens=overhead, turn_tokens=min(overhead, 8))


def _forced(rows: Sequence[Exchange]) -> bool:
    known = [r for r in rows if r.outcome.answered and r.completion_tokens is not None]
    return all(r.completion_tokens == r.planned_output_tokens for r in known)


async def _one_token_words(client: Client) -> tuple[str, ...] | None:
    """Candidates that are one token each and stay so in a row; None where the target has no tokenizer endpoint.

    A group of words whose count equals its length is accepted whole, any other is halved.
    """
    accepted: list[str] = []
    groups: list[tuple[str, ...]] = [CANDIDATES]
    for _ in range(TOKENIZE_CALLS):
        if not groups:
            break
        group = groups.pop()
        count = await _count(client, " " + " ".join(group))
        if count is None:
            return None
        if count == len(group):
            accepted += group
        elif len(group) > 1:
            middle = len(group) // 2
            groups += [group[:middle], group[middle:]]
    return tuple(sorted(accepted)) if len(accepted) >= LEAST_WORDS else None


async def _count(client: Client, text: str) -> int | None:
    """Tokens of a text by the target's tokenizer, in the forms of llama.cpp (``content``) and vLLM (``prompt``)."""
    body = {"content": text, "model": client.target.model, "prompt": text, "add_special_tokens": False}
    try:
        response = await client.fetch("POST", "/tokenize", msgspec.json.encode(body), timeout_s=10)
        if response.status != 200:
            return None
        answer = msgspec.json.decode(response.body, type=_Tokens)
    except (TargetError, msgspec.DecodeError):
        return None
    return answer.count if answer.count is not None else None if answer.tokens is None else len(answer.tokens)
