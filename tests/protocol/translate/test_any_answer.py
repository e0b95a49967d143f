"""Any answer, in any order of pieces and any chunking, arrives whole and in order."""

import itertools
import json
import random
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.translate.streams import CHAT, MESSAGES, RESPONSES, chat_answer, cut, message, response, translated

from setpoint.protocol.conformance import (
    DONE,
    MESSAGE_STOP,
    ROLE,
    START,
    block,
    chat,
    ended,
    events,
    piece,
    say,
    sse,
    stop_block,
    tool,
)
from setpoint.protocol.translate.arguments import ObjectScan
from setpoint.records.target import Dialect

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
CUTS = st.lists(st.integers(1, 4000), max_size=10)


@dataclass(frozen=True)
class Part:
    kind: str  # text, thinking, call
    pieces: tuple[str, ...]

    @property
    def joined(self) -> str:
        return "".join(self.pieces)


@st.composite
def parts(draw: st.DrawFn) -> Part:
    kind: str = draw(st.sampled_from(["text", "thinking", "call"]))
    if kind != "call":
        return Part(kind, tuple(draw(st.lists(TEXT, min_size=1, max_size=3))))
    if draw(st.booleans()):
        return Part(kind, ())
    arguments = json.dumps(
        draw(st.dictionaries(st.text(max_size=4), VALUES, max_size=3)), ensure_ascii=draw(st.booleans())
    )
    edges = sorted(draw(st.lists(st.integers(0, len(arguments)), max_size=4)))
    return Part(kind, tuple(arguments[a:b] for a, b in itertools.pairwise([0, *edges, len(arguments)]) if a < b))


def merged(answer: list[Part]) -> list[tuple[str, str]]:
    """Blocks as they must arrive: neighbours of one kind are one, calls never."""
    out: list[tuple[str, str]] = []
    for part in answer:
        if out and part.kind != "call" and out[-1][0] == part.kind:
            out[-1] = (part.kind, out[-1][1] + part.joined)
        else:
            out.append((part.kind, part.joined))
    return out


def chunk(part: Part, text: str) -> dict[str, Any]:
    return say(text) if part.kind == "text" else chat({"reasoning_content": text})


@st.composite
def chat_streams(draw: st.DrawFn) -> tuple[list[Part], bytes]:
    """In order; calls numbered or all 0; names alone or with the first arguments."""
    answer = draw(st.lists(parts(), min_size=1, max_size=6))
    zero = draw(st.booleans())
    with_role = draw(st.booleans())
    chunks: list[Any] = [ROLE] if with_role else []
    number = itertools.count()
    for part in answer:
        if part.kind != "call":
            chunks.extend(chunk(part, text) for text in part.pieces)
            continue
        n = next(number)
        index, pieces = (0 if zero else n), list(part.pieces)
        beside_name = draw(st.booleans())
        first = pieces.pop(0) if pieces and beside_name else draw(st.sampled_from([None, ""]))
        chunks += [tool(index, f"c{n}", "f", first), *(tool(index, arguments=text) for text in pieces)]
    finish = "tool_calls" if next(number) else "stop"
    return answer, sse(*chunks, chat(finish=finish), DONE, end=draw(st.sampled_from(["\n\n", "\r\n\r\n"])))


@given(chat_streams(), CUTS)
def test_a_chat_stream_becomes_a_message(given_: tuple[list[Part], bytes], cuts: list[int]) -> None:
    answer, body = given_
    blocks, end = message(translated(cut(body, cuts), CHAT, MESSAGES))
    kinds = {"tool_use": "call"}
    assert [(kinds.get(b["type"], b["type"]), b["joined"]) for b in blocks] == merged(answer)
    calls = [p for p in answer if p.kind == "call"]
    assert [b["id"] for b in blocks if b["type"] == "tool_use"] == [f"c{n}" for n in range(len(calls))]
    assert end["delta"]["stop_reason"] == ("tool_use" if calls else "end_turn")


@given(chat_streams(), CUTS)
def test_a_chat_stream_becomes_a_response(given_: tuple[list[Part], bytes], cuts: list[int]) -> None:
    answer, body = given_
    items, _ = response(translated(cut(body, cuts), CHAT, RESPONSES))
    kinds = {"message": "text", "reasoning": "thinking", "function_call": "call"}
    want = [(kind, text or "{}") for kind, text in merged(answer)]
    assert [(kinds[i["type"]], i["joined"]) for i in items] == want


@given(st.lists(parts(), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_interleaved_pieces_come_together(answer: list[Part], dice: random.Random) -> None:
    """Every part's pieces keep their order; the parts mix at will."""
    queues: list[list[Any]] = []
    n = 0
    for part in answer:
        if part.kind == "call":
            queues.append([tool(n, f"c{n}", "f"), *(tool(n, arguments=text) for text in part.pieces)])
            n += 1
        else:
            queues.append([chunk(part, text) for text in part.pieces])
    starts = [queue.pop(0) for queue in queues if "tool_calls" in queue[0]["choices"][0]["delta"]]
    mixed = []
    while any(queues):
        queue = dice.choice([q for q in queues if q])
        mixed.append(queue.pop(0))
    body = sse(*starts, *mixed, chat(finish="stop"), DONE)
    blocks, _ = message(translated(body, CHAT, MESSAGES))
    arguments = [part.joined for part in answer if part.kind == "call"]
    assert [b["joined"] for b in blocks if b["type"] == "tool_use"] == arguments
    for kind, member in (("text", "content"), ("thinking", "reasoning_content")):
        sent = "".join(c["choices"][0]["delta"].get(member, "") for c in mixed)
        assert "".join(b["joined"] for b in blocks if b["type"] == kind) == sent


@given(st.lists(parts(), min_size=1, max_size=6), CUTS, st.booleans())
def test_a_message_becomes_a_chat_stream_and_a_message_again(answer: list[Part], cuts: list[int], crlf: bool) -> None:
    said: list[dict[str, Any]] = [START]
    for index, part in enumerate(answer):
        delta = {"text": "text_delta", "thinking": "thinking_delta", "call": "input_json_delta"}[part.kind]
        more = {"id": f"t{index}", "name": "f", "input": {}} if part.kind == "call" else {}
        said.append(block(index, "tool_use" if part.kind == "call" else part.kind, **more))
        said += [piece(index, delta, text) for text in part.pieces]
        said.append(stop_block(index))
    calls = [part for part in answer if part.kind == "call"]
    body = events(*said, ended("tool_use" if calls else "end_turn"), MESSAGE_STOP, end="\r\n" if crlf else "\n")
    chunks = translated(cut(body, cuts), MESSAGES, CHAT)
    got = chat_answer(chunks)
    assert got["content"] == "".join(part.joined for part in answer if part.kind == "text")
    assert got["reasoning"] == "".join(part.joined for part in answer if part.kind == "thinking")
    assert [call["joined"] for call in got["calls"].values()] == [part.joined or "{}" for part in calls]
    assert got["finish"] == ("tool_calls" if calls else "stop")
    blocks, end = message(translated(chunks, CHAT, MESSAGES))
    kinds = {"tool_use": "call"}
    want = [(kind, "{}" if kind == "call" and not text else text) for kind, text in merged(answer)]
    assert [(kinds.get(b["type"], b["type"]), b["joined"]) for b in blocks] == want
    assert end["usage"] == {"input_tokens": 9, "output_tokens": 2}


@given(st.binary(max_size=300), st.sampled_from([(CHAT, MESSAGES), (MESSAGES, CHAT), (CHAT, RESPONSES)]))
def test_no_bytes_crash_a_translator(noise: bytes, pair: tuple[Dialect, Dialect]) -> None:
    source, target = pair
    out = translated(b"data: " + noise + b"\n\n", source, target)
    assert b"message_stop" not in out
    assert b"response.completed" not in out


@given(st.dictionaries(st.text('"{}\\\\ab'), st.text('"{}\\\\ab'), max_size=4), st.integers(1, 4))
def test_an_object_is_whole_at_its_last_brace_and_not_before(value: dict[str, str], step: int) -> None:
    scan, text = ObjectScan(), json.dumps(value)
    for at in range(0, len(text) - 1, step):
        scan.feed(text[:-1][at : at + step])
        assert not scan.complete
    scan.feed("}")
    assert scan.complete
