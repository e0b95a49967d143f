"""Strict readers of translated streams: what a client that trusts the protocol would see."""

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from setpoint.protocol import translate
from setpoint.protocol.sse import SSEReader
from setpoint.records.target import Dialect

CHAT, MESSAGES, RESPONSES = Dialect.CHAT, Dialect.MESSAGES, Dialect.RESPONSES
ENVELOPE = translate.Envelope(model="asked", answer_id="answer", created_s=7)


def cut(body: bytes, cuts: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted({c for c in cuts if 0 < c < len(body)}), len(body)]
    return [body[a:b] for a, b in itertools.pairwise(edges)]


def translated(pieces: bytes | Sequence[bytes], source: Dialect, target: Dialect) -> bytes:
    stream = translate.StreamTranslator(source, target, ENVELOPE)
    out = b"".join(stream.feed(piece) for piece in ([pieces] if isinstance(pieces, bytes) else pieces))
    return out + stream.end()


def payloads(body: bytes) -> list[Any]:
    """Every event's data, as JSON; the name repeats the type."""
    out = []
    for event in SSEReader().feed(body):
        data: Any = event.payload if event.payload == b"[DONE]" else json.loads(event.payload)
        if event.name is not None:
            assert data["type"] == event.name.decode()
        out.append(data)
    return out


def message(body: bytes) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Blocks and end of an Anthropic stream. Blocks are numbered from 0, never overlap, and are all stopped."""
    events = [event for event in payloads(body) if event["type"] != "ping"]
    assert events[0]["type"] == "message_start"
    assert events[-1]["type"] == "message_stop"
    end = events[-2]
    assert end["type"] == "message_delta"
    blocks: list[dict[str, Any]] = []
    is_open = False
    for event in events[1:-2]:
        kind = event["type"]
        if kind == "content_block_start":
            assert not is_open, "blocks overlap"
            assert event["index"] == len(blocks)
            blocks.append(event["content_block"] | {"joined": "", "pieces": 0})
            is_open = True
        elif kind == "content_block_delta":
            assert is_open, "a delta outside its block"
            assert event["index"] == len(blocks) - 1
            delta = event["delta"]
            member = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
            piece = delta[member[delta["type"]]]
            assert piece, "an empty delta"
            assert {"text": "text_delta", "thinking": "thinking_delta", "tool_use": "input_json_delta"}[
                blocks[-1]["type"]
            ] == delta["type"]
            blocks[-1]["joined"] += piece
            blocks[-1]["pieces"] += 1
        else:
            assert kind == "content_block_stop"
            assert is_open
            assert event["index"] == len(blocks) - 1
            is_open = False
    assert not is_open, "a block was never stopped"
    return blocks, end


def chat_answer(body: bytes) -> dict[str, Any]:
    """A chat stream put together the way OpenAI's own client does: by index, ids and names only once."""
    events = payloads(body)
    assert events[-1] == b"[DONE]"
    out: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "finish": None, "usage": None}
    for event in events[:-1]:
        out["usage"] = event.get("usage") or out["usage"]
        for choice in event["choices"]:
            assert choice["index"] == 0
            assert out["finish"] is None, "something after the finish reason"
            delta = choice["delta"]
            out["content"] += delta.get("content") or ""
            out["reasoning"] += delta.get("reasoning_content") or ""
            out["finish"] = choice["finish_reason"]
            for piece in delta.get("tool_calls", ()):
                if "id" in piece:
                    assert piece["index"] == len(out["calls"])
                    out["calls"][piece["index"]] = {"id": piece["id"], "name": piece["function"]["name"], "joined": ""}
                out["calls"][piece["index"]]["joined"] += piece["function"]["arguments"]
    return out


def response(body: bytes) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Items as their deltas say, and the last event; the events' own summaries must agree."""
    events = payloads(body)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    items: list[dict[str, Any]] = []
    for event in events[2:-1]:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert event["output_index"] == len(items)
            items.append(event["item"] | {"joined": "", "done": False})
            continue
        assert event["output_index"] == len(items) - 1
        assert not items[-1]["done"]
        if kind.endswith(".delta"):
            assert event["item_id"] == items[-1]["id"]
            items[-1]["joined"] += event["delta"]
        elif kind == "response.output_item.done":
            items[-1]["done"] = True
            whole = event["item"]
            text = whole["arguments"] if whole["type"] == "function_call" else whole["content"][0]["text"]
            assert text == items[-1]["joined"]
    assert all(item["done"] for item in items)
    last = events[-1]
    assert last["type"] in ("response.completed", "response.incomplete")
    assert [item["id"] for item in last["response"]["output"]] == [item["id"] for item in items]
    return items, last
