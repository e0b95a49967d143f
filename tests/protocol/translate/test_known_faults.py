"""Faults of gateways in use, each by its public report: none of them is possible here."""

import json

import pytest
from tests.protocol.translate.streams import (
    CHAT,
    ENVELOPE,
    MESSAGES,
    RESPONSES,
    chat_answer,
    message,
    payloads,
    translated,
)
from tests.protocol.translate.streams import response as read_response

from setpoint.protocol import translate
from setpoint.protocol.conformance import (
    DONE,
    MESSAGE_STOP,
    ROLE,
    START,
    STOP,
    block,
    chat,
    ended,
    events,
    piece,
    say,
    sse,
    stop_block,
    text_block,
    tool,
    usage,
)
from setpoint.records.target import Dialect

CALLS = chat(finish="tool_calls")


def to_message(*chunks: object) -> tuple[list[dict[str, object]], dict[str, object]]:
    return message(translated(sse(*chunks), CHAT, MESSAGES))


def test_arguments_beside_the_name_are_kept() -> None:
    """LiteLLM#25411 (for #25321): the chunk that opens a block lost the arguments it carried."""
    blocks, end = to_message(ROLE, say("Let me see"), tool(0, "c", "f", '{"a":1}'), CALLS, DONE)
    assert [(b["type"], b["joined"]) for b in blocks] == [("text", "Let me see"), ("tool_use", '{"a":1}')]
    assert end["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}


def test_blocks_of_parallel_calls_with_index_0_stay_apart() -> None:
    """LiteLLM#29491 and its kin: a second call under the index of the first was joined to it."""
    chunks = [tool(0, "c1", "a"), tool(0, arguments="{}"), tool(0, "c2", "b"), tool(0, arguments='{"x":2}')]
    blocks, _ = to_message(*chunks, CALLS, DONE)
    assert [(b["id"], b["name"], b["joined"]) for b in blocks] == [("c1", "a", "{}"), ("c2", "b", '{"x":2}')]


def test_interleaved_calls_never_overlap() -> None:
    """Bifrost#3441: overlapping content blocks, calls without their stop."""
    chunks = [tool(0, "c1", "a"), tool(1, "c2", "b"), tool(0, arguments="{"), tool(1, arguments="[}"), say("x")]
    blocks, _ = to_message(*chunks, tool(0, arguments="}"), CALLS, DONE)
    assert [b["joined"] for b in blocks] == ["{}", "[}", "x"]


def test_a_whole_first_call_lets_the_second_flow() -> None:
    stream = translate.StreamTranslator(CHAT, MESSAGES, ENVELOPE)
    stream.feed(sse(tool(0, "c1", "a", '{"q":"}{\\"'), tool(0, arguments='"}')))
    assert b'"name":"b"' in stream.feed(sse(tool(1, "c2", "b")))
    assert b"partial_json" in stream.feed(sse(tool(1, arguments='{"'))), "later arguments are not held back"


def test_a_call_without_arguments_is_an_empty_object() -> None:
    """Portkey#1275, agentgateway#3002, LiteLLM#5063: clients parse the arguments; nothing is no JSON."""
    blocks, _ = to_message(tool(0, "c", "now"), CALLS, DONE)
    assert blocks == [{"type": "tool_use", "id": "c", "name": "now", "input": {}, "joined": "", "pieces": 0}]
    for deltas in ([], [piece(0, "input_json_delta", "")]):
        start = block(0, "tool_use", id="t", name="now", input={})
        body = events(START, start, *deltas, stop_block(0), ended("tool_use"), MESSAGE_STOP)
        assert chat_answer(translated(body, MESSAGES, CHAT))["calls"][0]["joined"] == "{}"
        items, _ = read_response(translated(body, MESSAGES, RESPONSES))
        assert items[0]["joined"] == "{}"


def test_an_empty_list_of_calls_opens_nothing() -> None:
    """LiteLLM: ``tool_calls: []`` beside content opened a spurious block."""
    blocks, end = to_message(chat({"content": "Hi", "tool_calls": []}), chat({"tool_calls": []}, "stop"), DONE)
    assert [(b["type"], b["joined"]) for b in blocks] == [("text", "Hi")]
    assert end["delta"]["stop_reason"] == "end_turn"  # type: ignore[index]


@pytest.mark.parametrize("member", ["reasoning_content", "reasoning"])
def test_a_stream_that_begins_with_reasoning_has_no_empty_text_block(member: str) -> None:
    """LiteLLM#29600, #31560: reasoning-only chunks made a text block, or none."""
    blocks, _ = to_message(ROLE, chat({member: "hm"}), chat({member: "m"}), say("Hi"), STOP, DONE)
    assert [(b["type"], b["joined"]) for b in blocks] == [("thinking", "hmm"), ("text", "Hi")]
    assert blocks[0]["signature"] == ""


def test_a_stream_that_begins_with_a_call_has_no_empty_text_block() -> None:
    """LiteLLM#31561: an empty text block and an empty delta in front of a first call."""
    blocks, _ = to_message(ROLE, tool(0, "c", "f", ""), tool(0, arguments="{}"), CALLS, DONE)
    assert [(b["type"], b["pieces"]) for b in blocks] == [("tool_use", 1)]


@pytest.mark.parametrize("finish", ["stop", "tool_calls", "function_call"])
def test_an_answer_with_calls_asks_for_their_results(finish: str) -> None:
    """LiteLLM#34692: ``end_turn`` beside a tool call; engines say ``stop`` for a forced function."""
    _, end = to_message(tool(0, "c", "f", "{}"), chat(finish=finish), DONE)
    assert end["delta"]["stop_reason"] == "tool_use"  # type: ignore[index]


def test_a_cut_answer_says_so() -> None:
    """LiteLLM#25825: ``length`` arrived as ``end_turn``."""
    _, end = to_message(say("a"), chat(finish="length"), DONE)
    assert end["delta"]["stop_reason"] == "max_tokens"  # type: ignore[index]


@pytest.mark.parametrize("target", [MESSAGES, RESPONSES])
def test_a_stream_that_stops_gets_no_reason(target: Dialect) -> None:
    """LiteLLM#40260, #42085, Olla, agentgateway, Envoy AIGW: a gateway-made ``stop`` after a cut."""
    for chunks in ([say("a")], [say("a"), STOP], [say("a"), DONE], [tool(0, "c", "f", '{"a')]):
        out = translated(sse(*chunks), CHAT, target)
        assert not {"message_delta", "message_stop", "error"} & {e["type"] for e in payloads(out)}
        assert not any(e["type"].startswith(("response.comp", "response.inc")) for e in payloads(out))


def test_cached_tokens_are_inside_for_openai_and_beside_for_anthropic() -> None:
    """LiteLLM#31069, #21331: usage lost or counted twice."""
    _, end = to_message(say("a"), STOP, usage(100, 5, prompt_tokens_details={"cached_tokens": 64}), DONE)
    assert end["usage"] == {"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 5}
    counted = {"input_tokens": 10, "cache_read_input_tokens": 64, "cache_creation_input_tokens": 26, "output_tokens": 0}
    start = {"type": "message_start", "message": {"id": "m", "usage": counted}}
    body = events(start, *text_block("Hi"), ended("end_turn", 5), MESSAGE_STOP)
    assert chat_answer(translated(body, MESSAGES, CHAT))["usage"] == {
        "prompt_tokens": 100,
        "completion_tokens": 5,
        "total_tokens": 105,
        "prompt_tokens_details": {"cached_tokens": 64},
    }


def test_a_cached_count_above_the_prompt_is_not_believed() -> None:
    _, end = to_message(say("a"), STOP, usage(10, 5, prompt_tokens_details={"cached_tokens": 64}), DONE)
    assert end["usage"] == {"input_tokens": 10, "output_tokens": 5}


def test_the_stop_sequence_is_named() -> None:
    chunk = chat()
    chunk["choices"][0] |= {"finish_reason": "stop", "stop_reason": "END"}
    _, end = to_message(say("a"), chunk, DONE)
    assert end["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    chunk["choices"][0]["stop_reason"] = 128009  # vLLM: the token that ended it
    _, end = to_message(say("a"), chunk, DONE)
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}


def test_arguments_go_through_byte_for_byte() -> None:
    odd = '{ "b" :1.0,\n"a":"\\u00fc \\/ \\"","big":123456789012345678901234567890, "a": 2 }'
    blocks, _ = to_message(
        *(tool(0, "c" if i == 0 else None, "f" if i == 0 else None, c) for i, c in enumerate(odd)), CALLS, DONE
    )
    assert blocks[0]["joined"] == odd
    start = block(0, "tool_use", id="t", name="f", input={})
    body = events(START, start, piece(0, "input_json_delta", odd), stop_block(0), ended("tool_use"), MESSAGE_STOP)
    assert chat_answer(translated(body, MESSAGES, CHAT))["calls"][0]["joined"] == odd
    whole = {
        "choices": [
            {
                "message": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": odd}}]},
                "finish_reason": "tool_calls",
            }
        ]
    }
    assert odd.encode() in translate.whole(json.dumps(whole).encode(), CHAT, MESSAGES, ENVELOPE)


def test_input_in_the_start_of_a_block_counts_unless_deltas_follow() -> None:
    start = block(0, "tool_use", id="t", name="f", input={"a": 1})
    alone = events(START, start, stop_block(0), ended("tool_use"), MESSAGE_STOP)
    assert json.loads(chat_answer(translated(alone, MESSAGES, CHAT))["calls"][0]["joined"]) == {"a": 1}
    more = events(START, start, piece(0, "input_json_delta", '{"b":2}'), stop_block(0), ended("tool_use"), MESSAGE_STOP)
    assert chat_answer(translated(more, MESSAGES, CHAT))["calls"][0]["joined"] == '{"b":2}'


def test_arguments_after_their_object_are_no_answer() -> None:
    chunks = [tool(0, "c1", "a", "{}"), tool(1, "c2", "b", "{}"), tool(0, arguments=" \n")]
    to_message(*chunks, CALLS, DONE)
    stream = translate.StreamTranslator(CHAT, MESSAGES, ENVELOPE)
    out = stream.feed(sse(*chunks, tool(0, arguments="x"), CALLS, DONE)) + stream.end()
    assert payloads(out)[-1]["type"] == "error"
    assert stream.failure == "tool_calls: arguments go on after their object has ended"


def test_an_engine_that_admits_a_failure_is_not_an_answer() -> None:
    for reason in ("error", "abort"):
        out = payloads(translated(sse(say("a"), chat(finish=reason), DONE), CHAT, MESSAGES))
        assert out[-1]["type"] == "error"
        body = events(START, *text_block("a"), ended(reason), MESSAGE_STOP)
        assert "error" in payloads(translated(body, MESSAGES, CHAT))[-1]


def test_an_oversized_event_ends_the_stream() -> None:
    stream = translate.StreamTranslator(CHAT, MESSAGES, ENVELOPE)
    out = stream.feed(b"data: " + b"x" * (17 * 2**20))
    assert payloads(out)[-1]["type"] == "error"
    assert stream.feed(sse(STOP, DONE)) == b""
    assert stream.end() == b""


def test_pings_keep_going() -> None:
    body = events(START, {"type": "ping"})
    assert translated(body, MESSAGES, CHAT).endswith(b": ping\n\n")
    assert payloads(translate.ping(MESSAGES)) == [{"type": "ping"}]
    assert translate.ping(CHAT) == translate.ping(RESPONSES) == b": ping\n\n"


def test_usage_is_sent_only_where_it_was_asked_for() -> None:
    envelope = translate.Envelope(answer_id="x", include_usage=False)
    stream = translate.StreamTranslator(MESSAGES, CHAT, envelope)
    out = stream.feed(events(START, *text_block("Hi"), ended("end_turn"), MESSAGE_STOP))
    assert chat_answer(out)["usage"] is None


def test_a_response_ends_in_exactly_one_terminal_event() -> None:
    """ollama#17118: a stream that closes cleanly in its reasoning."""
    items, last = read_response(
        translated(
            sse(chat({"reasoning": "hm"}), say("Hi"), tool(0, "c", "f", "{}"), CALLS, usage(9, 5), DONE),
            CHAT,
            RESPONSES,
        )
    )
    assert [(i["type"], i["joined"]) for i in items] == [
        ("reasoning", "hm"),
        ("message", "Hi"),
        ("function_call", "{}"),
    ]
    assert last["response"]["status"] == "completed"
    assert last["response"]["usage"]["total_tokens"] == 14
    _, last = read_response(translated(sse(say("Hi"), chat(finish="length"), DONE), CHAT, RESPONSES))
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
