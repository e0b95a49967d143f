"""What a request carries into the other dialect, what it loses, and what is refused by name."""

# ruff: noqa: ANN401 - JSON of any shape

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.translate.streams import CHAT, MESSAGES, RESPONSES

from setpoint.errors import TranslationError
from setpoint.protocol import translate
from setpoint.protocol.translate import request_chat, request_messages, request_responses
from setpoint.records.target import Dialect

DOCS = Path(__file__).parents[3] / "docs" / "translation.md"
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}}
PIXEL = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
LINK = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}


def said(source: Dialect, target: Dialect, **members: Any) -> dict[str, Any]:
    out = json.loads(translate.request(json.dumps(members).encode(), source, target))
    assert isinstance(out, dict)
    return out


def to_chat(*turns: Any, **more: Any) -> dict[str, Any]:
    return said(MESSAGES, CHAT, **({"model": "m", "max_tokens": 5, "messages": list(turns)} | more))


def to_messages(*turns: Any, **more: Any) -> dict[str, Any]:
    return said(CHAT, MESSAGES, **({"model": "m", "max_tokens": 5, "messages": list(turns)} | more))


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content[0] if isinstance(content[0], str) else list(content)}


def text(value: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": value} | more


def result(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t1", "content": content} | more


CACHED = {"cache_control": {"type": "ephemeral"}}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {"q": "ü", "n": 1.0}}


def test_system_blocks_keep_their_borders_and_lose_their_cache_marks() -> None:
    assert to_chat(user("Hi"), system="Be")["messages"][0] == {"role": "system", "content": "Be"}
    one = to_chat(user("Hi"), system=[text("Be", **CACHED)])["messages"]
    assert one[0] == {"role": "system", "content": "Be"}
    two = to_chat(user("Hi"), system=[text("Be", **CACHED), text("kind")])["messages"]
    assert two[0]["content"] == [text("Be"), text("kind")]


def test_images_go_both_ways() -> None:
    sent = to_chat(user(text("What?"), PIXEL, LINK))["messages"][0]["content"]
    assert sent == [
        text("What?"),
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
    ]
    assert to_messages(user(*sent))["messages"][0]["content"] == [text("What?"), PIXEL, LINK]


def test_results_become_messages_before_the_users_own_words() -> None:
    messages = to_chat(
        {"role": "assistant", "content": [text("Let me see"), USE, USE | {"id": "t2"}]},
        user(result("sunny"), result([text("a"), text("b")], tool_use_id="t2"), text("And?")),
    )["messages"]
    assert messages[0]["content"] == "Let me see"
    assert [call["id"] for call in messages[0]["tool_calls"]] == ["t1", "t2"]
    assert messages[1:] == [
        {"role": "tool", "tool_call_id": "t1", "content": "sunny"},
        {"role": "tool", "tool_call_id": "t2", "content": [text("a"), text("b")]},
        {"role": "user", "content": "And?"},
    ]


def test_a_failed_tool_says_so_in_its_text() -> None:
    for content, want in (
        ("no such file", "Error: no such file"),
        ("Error: no", "Error: no"),
        ("", "Error: "),
        ([text("a"), text("b")], [text("Error:"), text("a"), text("b")]),
    ):
        assert to_chat(user(result(content, is_error=True)))["messages"][0]["content"] == want


def test_images_of_a_result_follow_it_and_name_it() -> None:
    messages = to_chat(user(result([text("done"), PIXEL]), text("And?")))["messages"]
    assert messages[0] == {"role": "tool", "tool_call_id": "t1", "content": "done"}
    parts = messages[1]["content"]
    assert parts[0]["text"] == "Images in the result of tool call t1:"
    assert [part["type"] for part in parts] == ["text", "image_url", "text"]


def test_input_keeps_its_bytes() -> None:
    odd = '{ "a":1.50,\n "b":"\\u00fc", "big":123456789012345678901234567890 }'
    use = '{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":%s}]}'
    body = '{"model":"m","max_tokens":5,"messages":[' + use + ',{"role":"user","content":"x"}]}'
    chat = json.loads(translate.request((body % odd).encode(), MESSAGES, CHAT))
    assert chat["messages"][0]["tool_calls"][0]["function"]["arguments"] == odd
    assert odd.encode() in translate.request(json.dumps(chat).encode(), CHAT, MESSAGES)


def test_thinking_goes_to_chat_and_its_signature_does_not() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    sealed = {"type": "redacted_thinking", "data": "x"}
    messages = to_chat({"role": "assistant", "content": [thought, sealed, text("Hi")]}, user("x"))["messages"]
    assert messages[0] == {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}
    back = to_messages(user("x"), messages[0], user("y"))["messages"]
    assert back[1] == {"role": "assistant", "content": "Hi"}, "no signature proves the reasoning"


def test_tools_and_choices_go_both_ways() -> None:
    anthropic = [{"name": "f", "description": "d", "input_schema": SCHEMA}]
    openai = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}]
    assert to_chat(user("x"), tools=[anthropic[0] | CACHED | {"type": "custom"}])["tools"] == openai
    assert to_messages(user("x"), tools=openai)["tools"] == anthropic
    bare = to_messages(user("x"), tools=[{"type": "function", "function": {"name": "f"}}])["tools"]
    assert bare == [{"name": "f", "input_schema": {"type": "object", "properties": {}}}]
    named = {"type": "function", "function": {"name": "f"}}
    for ours, theirs in (("auto", "auto"), ("any", "required"), ("none", "none")):
        assert to_chat(user("x"), tools=anthropic, tool_choice={"type": ours})["tool_choice"] == theirs
        assert to_messages(user("x"), tools=openai, tool_choice=theirs)["tool_choice"] == {"type": ours}
    assert to_chat(user("x"), tools=anthropic, tool_choice={"type": "tool", "name": "f"})["tool_choice"] == named
    assert to_messages(user("x"), tools=openai, tool_choice=named)["tool_choice"] == {"type": "tool", "name": "f"}


def test_one_call_at_a_time_goes_both_ways() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    out = to_messages(user("x"), tools=tools, parallel_tool_calls=False)
    assert out["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    back = to_chat(user("x"), tools=out["tools"], tool_choice=out["tool_choice"])
    assert back["parallel_tool_calls"] is False
    assert back["tool_choice"] == "auto"
    assert "tool_choice" not in to_messages(user("x"), tools=tools, parallel_tool_calls=True)


def test_sampling_limits_stops_and_users_go_both_ways() -> None:
    chat = to_chat(
        user("x"), temperature=0.5, top_p=0.9, top_k=4, stop_sequences=["E"], metadata={"user_id": "u"}, stream=True
    )
    assert chat["stream_options"] == {"include_usage": True}
    assert (chat["temperature"], chat["top_p"], chat["top_k"], chat["stop"], chat["user"]) == (0.5, 0.9, 4, ["E"], "u")
    back = to_messages(**{k: v for k, v in chat.items() if k != "messages"}, messages=chat["messages"])
    assert (back["temperature"], back["stop_sequences"], back["metadata"]) == (0.5, ["E"], {"user_id": "u"})
    assert to_messages(user("x"), stop="E")["stop_sequences"] == ["E"]
    assert to_messages(user("x"), max_completion_tokens=7)["max_tokens"] == 7


def test_a_schema_for_the_answer_goes_both_ways() -> None:
    wanted = {"type": "json_schema", "schema": SCHEMA}
    for more in ({"output_config": {"format": wanted, "effort": "max"}}, {"output_format": wanted}):
        chat = to_chat(user("x"), **more)
        assert chat["response_format"]["json_schema"]["schema"] == SCHEMA
    back = to_messages(user("x"), response_format=chat["response_format"], reasoning_effort="low")
    assert back["output_config"] == {"effort": "low", "format": wanted}


def test_a_last_message_of_the_assistant_is_continued() -> None:
    chat = to_chat(user("x"), {"role": "assistant", "content": "{"})
    assert chat["continue_final_message"] is True
    assert "continue_final_message" not in to_chat(user("x"))


def test_identifiers_that_anthropic_refuses_stay_pairs() -> None:
    call = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": ""}}
    turns = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "r"},
    ]
    messages = to_messages(*turns)["messages"]
    use, got = messages[0]["content"][0], messages[1]["content"][0]
    assert use["id"] == got["tool_use_id"] != call["id"]
    assert use["input"] == {}


REFUSED_BY_CHAT = [
    ({"messages": [user({"type": "document", "source": {"type": "text"}})]}, "messages[0].content[0].type"),
    (
        {"messages": [user({"type": "image", "source": {"type": "file", "file_id": "f"}})]},
        "messages[0].content[0].source",
    ),
    ({"messages": [user(text("a"), result("b"))]}, "messages[0].content[1]"),
    ({"messages": [user(result([{"type": "document"}]))]}, "messages[0].content[0].content[0].type"),
    ({"messages": [{"role": "assistant", "content": [USE | {"input": [1]}]}]}, "messages[0].content[0].input"),
    ({"messages": [{"role": "assistant", "content": [USE | {"name": None}]}]}, "messages[0].content[0].name"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    ({"messages": None}, "messages"),
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": "5"}, "max_tokens"),
    ({"system": [PIXEL]}, "system[0].type"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
    ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
    ({"mcp_servers": [{}]}, "mcp_servers"),
    ({"container": "c"}, "container"),
    ({"output_config": {"effort": "huge"}}, "output_config.effort"),
    ({"brand_new": 1}, "brand_new"),
]


@pytest.mark.parametrize(("members", "field"), REFUSED_BY_CHAT, ids=lambda v: v if isinstance(v, str) else "")
def test_what_chat_cannot_carry_is_refused_by_name(members: dict[str, Any], field: str) -> None:
    with pytest.raises(TranslationError) as refused:
        to_chat(user("x"), **members)
    assert refused.value.field == field


REFUSED_BY_MESSAGES = [
    ({"max_tokens": None}, "max_tokens"),
    ({"n": 2}, "n"),
    ({"logprobs": True}, "logprobs"),
    ({"logit_bias": {"5": 1}}, "logit_bias"),
    ({"presence_penalty": 0.5}, "presence_penalty"),
    ({"response_format": {"type": "json_object"}}, "response_format.type"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ({"functions": []}, "functions"),
    ({"min_p": 0.1}, "min_p"),
    ({"tools": [{"type": "custom", "custom": {"name": "f"}}]}, "tools[0].type"),
    ({"tool_choice": "must"}, "tool_choice"),
    ({"messages": [user("x"), {"role": "system", "content": "y"}]}, "messages[1].role"),
    ({"messages": [user({"type": "input_audio"})]}, "messages[0].content[0].type"),
    (
        {"messages": [user({"type": "image_url", "image_url": {"url": "file:///x"}})]},
        "messages[0].content[0].image_url.url",
    ),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    (
        {
            "messages": [
                {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '"x"'}}]}
            ]
        },
        "messages[0].tool_calls[0].function.arguments",
    ),
]


@pytest.mark.parametrize(("members", "field"), REFUSED_BY_MESSAGES, ids=lambda v: v if isinstance(v, str) else "")
def test_what_messages_cannot_carry_is_refused_by_name(members: dict[str, Any], field: str) -> None:
    with pytest.raises(TranslationError) as refused:
        to_messages(**({"messages": [user("x")]} | members))
    assert refused.value.field == field


@pytest.mark.parametrize("body", [b"", b"[]", b"{oops", b"\xff"])
def test_what_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(TranslationError, match="body: not a JSON object"):
        translate.request(body, CHAT, MESSAGES)


def test_a_refusal_quotes_nothing() -> None:
    with pytest.raises(TranslationError) as refused:
        to_chat({"role": "user", "content": [{"type": "text", "text": {"secret": 1}}]})
    assert "secret" not in str(refused.value)
    assert refused.value.field == "messages[0].content[0].text"


def responses(input_: Any, target: Dialect = CHAT, **more: Any) -> dict[str, Any]:
    return said(RESPONSES, target, **({"model": "m", "input": input_} | more))


HISTORY = [
    {"role": "developer", "content": "Be"},
    {
        "role": "user",
        "content": [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": "https://e.org/a"}],
    },
    {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Let me see", "annotations": []}],
    },
    {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"q": 1}'},
    {"type": "function_call", "call_id": "c2", "name": "f", "arguments": ""},
    {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "dry"}]},
]


def test_a_history_of_items_becomes_turns() -> None:
    messages = responses(HISTORY, instructions="Help")["messages"]
    assert [message["role"] for message in messages] == ["system", "system", "user", "assistant", "tool", "tool"]
    turn = messages[3]
    assert (turn["content"], turn["reasoning_content"]) == ("Let me see", "hm")
    assert [call["function"]["arguments"] for call in turn["tool_calls"]] == ['{"q": 1}', "{}"]
    assert messages[2]["content"][1] == {"type": "image_url", "image_url": {"url": "https://e.org/a"}}
    assert messages[5] == {"role": "tool", "tool_call_id": "c2", "content": "dry"}


def test_members_of_a_responses_request() -> None:
    schema = {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}
    tool = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": True}
    out = responses("Hi", max_output_tokens=9, stream=True, tools=[tool], tool_choice={"type": "function", "name": "f"},
                    parallel_tool_calls=False, reasoning={"effort": "low", "summary": "auto"}, text={"format": schema},
                    store=False, include=["reasoning.encrypted_content"], user="u")  # fmt: skip
    assert out["messages"] == [{"role": "user", "content": "Hi"}]
    assert (out["max_tokens"], out["reasoning_effort"], out["parallel_tool_calls"], out["user"]) == (
        9,
        "low",
        False,
        "u",
    )
    assert out["tools"] == [{"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}]
    assert out["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert out["response_format"]["json_schema"] == {"name": "n", "schema": SCHEMA, "strict": True}
    assert out["stream_options"] == {"include_usage": True}
    assert responses("Hi", MESSAGES, max_output_tokens=9)["max_tokens"] == 9


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"previous_response_id": "r"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"input": None}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input[0].content[0].image_url",
        ),
        ({"text": {"format": {"type": "grammar"}}}, "text.format.type"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_what_a_chat_engine_cannot_do_of_responses_is_refused(members: dict[str, Any], field: str) -> None:
    with pytest.raises(TranslationError) as refused:
        said(RESPONSES, CHAT, **({"model": "m", "input": "x"} | members))
    assert refused.value.field == field


WORDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
TEXTS = WORDS.map(text)
CONTENT = WORDS | st.lists(TEXTS | st.sampled_from([PIXEL, LINK]), min_size=2, max_size=4)


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns in the form that both dialects can say: results first, text before calls, no neighbours of one role."""
    turns: list[dict[str, Any]] = [{"role": "user", "content": draw(CONTENT)}]
    for number in range(draw(st.integers(0, 3))):
        said_ = draw(st.lists(TEXTS, min_size=0, max_size=2))
        calls = [
            {
                "type": "tool_use",
                "id": f"t{number}_{n}",
                "name": "f",
                "input": draw(st.dictionaries(WORDS, st.integers(0, 9) | WORDS, max_size=2)),
            }
            for n in range(draw(st.integers(0 if said_ else 1, 3)))
        ]
        content: Any = said_ + calls
        turns.append({"role": "assistant", "content": said_[0]["text"] if len(content) == 1 and said_ else content})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call["id"],
                "content": draw(WORDS | st.lists(TEXTS, min_size=2, max_size=2)),
            }
            for call in calls
        ]
        after = draw(st.lists(TEXTS, min_size=0 if results else 2, max_size=2))
        turns.append({"role": "user", "content": results + after})
    return turns


@given(conversations(), st.none() | WORDS | st.lists(TEXTS, min_size=2, max_size=3))
def test_a_conversation_survives_the_way_there_and_back(turns: list[dict[str, Any]], system: Any) -> None:
    more = {} if system is None else {"system": system}
    chat = to_chat(*turns, **more)
    assert to_messages(*chat["messages"]) == {"model": "m", "max_tokens": 5, "messages": turns} | more


@pytest.mark.parametrize("module", [request_messages, request_chat, request_responses])
def test_every_member_that_is_dropped_is_documented(module: Any) -> None:
    documented = DOCS.read_text(encoding="utf-8")
    for member in (*module.DROPPED, *module.CARRIED, *getattr(module, "NEUTRAL", ())):
        assert f"`{member}`" in documented
