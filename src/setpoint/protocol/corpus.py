"""The cases of the conformance corpus."""

import json

from setpoint.protocol.conformance import (
    DONE,
    JSON,
    MESSAGE_STOP,
    ROLE,
    SSE,
    START,
    STOP,
    Case,
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
from setpoint.records.exchange import Outcome
from setpoint.records.target import Dialect

CHAT, TEXT, VECTORS, ANTHROPIC = Dialect.CHAT, Dialect.COMPLETIONS, Dialect.EMBEDDINGS, Dialect.MESSAGES
RESPONSES = Dialect.RESPONSES
COMPLETE, LENGTH, TRUNCATED, EMPTY = Outcome.COMPLETE, Outcome.LENGTH, Outcome.TRUNCATED, Outcome.EMPTY
ERROR, MALFORMED, REFUSED, REJECTED = Outcome.ERROR, Outcome.MALFORMED, Outcome.REFUSED, Outcome.REJECTED
EXHAUSTED = Outcome.REASONING_EXHAUSTED
WEATHER = '{"city": "Zürich"}'


def _completion(text: str, finish: str | None = None) -> dict[str, object]:
    return {"object": "text_completion", "choices": [{"index": 0, "text": text, "finish_reason": finish}]}


def _body(message: dict[str, object], finish: str | None, tokens: int = 2) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish}
    counts = {"prompt_tokens": 9, "completion_tokens": tokens, "total_tokens": 9 + tokens}
    return json.dumps({"object": "chat.completion", "choices": [choice], "usage": counts}).encode()


def _message(content: list[dict[str, object]], stop: str | None, tokens: int = 2) -> bytes:
    counts = {"input_tokens": 9, "output_tokens": tokens}
    return json.dumps({"type": "message", "content": content, "stop_reason": stop, "usage": counts}).encode()


HELLO = sse(ROLE, say("Hel"), say("lo"), STOP, usage(9, 2), DONE)

STREAMS = (
    Case("a plain answer", CHAT, HELLO, COMPLETE, visible=5, tokens=2, text="Hello"),
    Case("no usage chunk", CHAT, sse(ROLE, say("Hello"), STOP, DONE), COMPLETE, visible=5),
    Case(
        "cut by the output limit", CHAT, sse(say("Hello"), chat(finish="length"), usage(9, 1), DONE), LENGTH, tokens=1
    ),
    Case(
        "content beside the finish reason",
        CHAT,
        sse(say("a"), chat({"content": "b"}, "length"), DONE),
        LENGTH,
        text="ab",
    ),
    Case("CRLF line ends", CHAT, sse(ROLE, say("Hello"), STOP, DONE, end="\r\n\r\n"), COMPLETE, visible=5),
    Case("CR line ends", CHAT, sse(ROLE, say("Hello"), STOP, DONE, end="\r\r"), COMPLETE, visible=5),
    Case(
        "mixed line ends",
        CHAT,
        sse(say("a"), end="\r\n\n") + sse(say("b"), STOP, DONE, end="\n\r\n"),
        COMPLETE,
        text="ab",
    ),
    Case("no space after data:", CHAT, sse(ROLE, say("Hello"), STOP, DONE, prefix="data:"), COMPLETE, visible=5),
    Case(
        "comments between events",
        CHAT,
        b": ping\n\n" + sse(say("Hello")) + b":\n\n" + sse(STOP, DONE),
        COMPLETE,
        visible=5,
    ),
    Case("a comment inside an event", CHAT, b": a\n" + sse(say("Hello")) + sse(STOP, DONE), COMPLETE, visible=5),
    Case("id and retry fields", CHAT, b"id: 1\nretry: 10\n" + sse(say("Hello"), STOP, DONE), COMPLETE, visible=5),
    Case(
        "an event over several data lines",
        CHAT,
        b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"Hello"}}]}\n\n' + sse(STOP, DONE),
        COMPLETE,
        visible=5,
    ),
    Case("a byte order mark", CHAT, b"\xef\xbb\xbf" + HELLO, COMPLETE, visible=5),
    Case("many bytes a character", CHAT, sse(say("Grüß"), say("é🙂"), STOP, DONE), COMPLETE, visible=6, text="Grüßé🙂"),
    Case(
        "several tokens in a chunk", CHAT, sse(say("one two three four"), STOP, usage(9, 4), DONE), COMPLETE, tokens=4
    ),
    Case("choices null in the usage chunk", CHAT, sse(say("x"), STOP, usage(9, 1) | {"choices": None}, DONE), COMPLETE),
    Case(
        "nulls everywhere",
        CHAT,
        sse(chat({"content": "x", "tool_calls": None, "reasoning": None}), STOP, DONE),
        COMPLETE,
    ),
    Case(
        "content as parts",
        CHAT,
        sse(chat({"content": [{"type": "text", "text": "Hello"}]}), STOP, DONE),
        COMPLETE,
        visible=5,
    ),
    Case("padding after the terminal event", CHAT, HELLO + b"\n\n: bye\n\n", COMPLETE, visible=5),
    Case("no blank line after the terminal event", CHAT, HELLO[:-2], COMPLETE, visible=5),
    Case("lost after the terminal event", CHAT, HELLO, COMPLETE, broken=True, visible=5),
    Case("no content type", CHAT, HELLO, COMPLETE, content_type="", visible=5),
    Case(
        "a content type with a charset",
        CHAT,
        HELLO,
        COMPLETE,
        content_type="text/event-stream; charset=utf-8",
        visible=5,
    ),
    Case(
        "two choices", CHAT, sse(say("a"), {"choices": [{"index": 1, "delta": {"content": "b"}}]}, STOP, DONE), COMPLETE
    ),
    Case("unknown members", CHAT, sse(say("x") | {"prompt_text": None, "x": [1]}, STOP, DONE), COMPLETE, visible=1),
    Case(
        "completions",
        TEXT,
        sse(_completion("Hel"), _completion("lo", "stop"), usage(9, 2), DONE),
        COMPLETE,
        text="Hello",
    ),
    Case("completions cut by the limit", TEXT, sse(_completion("Hello", "length"), DONE), LENGTH),
)

ENDINGS = (
    Case("a clean end without finish reason", CHAT, sse(ROLE, say("Hello")), TRUNCATED, visible=5),
    Case("a terminal event without finish reason", CHAT, sse(ROLE, say("Hello"), DONE), TRUNCATED),
    Case("a finish reason without terminal event", CHAT, sse(ROLE, say("Hello"), STOP), TRUNCATED),
    Case("finish reason null to the end", CHAT, sse(say("Hello"), chat(), usage(9, 1), DONE), TRUNCATED),
    Case("lost in the middle", CHAT, sse(ROLE, say("Hello")), TRUNCATED, broken=True),
    Case("lost inside an event", CHAT, sse(say("Hello")) + b'data: {"choices":[{"ind', TRUNCATED, broken=True),
    Case("a clean end inside an event", CHAT, sse(say("Hello")) + b'data: {"choices":[{"ind', TRUNCATED),
    Case("lost before any event", CHAT, b"", TRUNCATED, broken=True),
    Case("completions without an end", TEXT, sse(_completion("Hello")), TRUNCATED),
    Case("nothing but the end", CHAT, sse(ROLE, STOP, usage(9, 0), DONE), EMPTY, tokens=0),
    Case("tokens and nothing visible", CHAT, sse(ROLE, chat(finish="length"), usage(9, 7), DONE), EMPTY, tokens=7),
    Case(
        "null content and null reasoning",
        CHAT,
        sse(chat({"content": None, "reasoning": None}), STOP, usage(9, 5), DONE),
        EMPTY,
    ),
    Case("an empty body", CHAT, b"", EMPTY, content_type=""),
    Case("an empty stream", CHAT, b"", TRUNCATED),
    Case("an empty completion", TEXT, sse(_completion("", "stop"), DONE), EMPTY),
)

REASONING = (
    Case(
        "reasoning_content, then an answer",
        CHAT,
        sse(chat({"reasoning_content": "hm"}), say("Hello"), STOP, usage(9, 3), DONE),
        COMPLETE,
        visible=5,
    ),
    Case("reasoning, then an answer", CHAT, sse(chat({"reasoning": "hm"}), say("Hi"), STOP, DONE), COMPLETE, visible=2),
    Case("reasoning to the limit", CHAT, sse(chat({"reasoning": "hm"}), chat(finish="length"), usage(9, 1), DONE), EXHAUSTED),
    Case("reasoning and a stop", CHAT, sse(chat({"reasoning_content": "hm"}), STOP, DONE), EXHAUSTED),
    Case(
        "reasoning known from usage alone",
        CHAT,
        sse(ROLE, STOP, usage(9, 8, completion_tokens_details={"reasoning_tokens": 8}), DONE),
        EXHAUSTED,
        tokens=8,
    ),
    Case("a stream cut in its reasoning", CHAT, sse(chat({"reasoning": "hm"})), TRUNCATED),
    Case(
        "thinking, then text",
        ANTHROPIC,
        events(
            START, block(0, "thinking"), piece(0, "thinking_delta", "hm"), stop_block(0),
            *text_block("Hello", index=1), ended("end_turn"), MESSAGE_STOP,
        ),
        COMPLETE,
        visible=5,
    ),
    Case(
        "thinking to the limit",
        ANTHROPIC,
        events(START, block(0, "thinking"), piece(0, "thinking_delta", "hm"), stop_block(0), ended("max_tokens"), MESSAGE_STOP),
        EXHAUSTED,
    ),
)  # fmt: skip

TOOLS = (
    Case(
        "a call in many pieces",
        CHAT,
        sse(tool(0, "c1", "weather"), tool(0, arguments='{"city": '), tool(0, arguments='"Zürich"}'), chat(finish="tool_calls"), DONE),
        COMPLETE,
        arguments=(WEATHER,),
    ),
    Case("a call in one piece", CHAT, sse(tool(0, "c1", "weather", WEATHER), chat(finish="tool_calls"), DONE), COMPLETE, arguments=(WEATHER,)),
    Case("a call without arguments", CHAT, sse(tool(0, "c1", "now", ""), chat(finish="tool_calls"), DONE), COMPLETE, arguments=("",)),
    Case(
        "parallel calls",
        CHAT,
        sse(tool(0, "c1", "a", "{}"), tool(1, "c2", "b"), tool(1, arguments=WEATHER), chat(finish="tool_calls"), DONE),
        COMPLETE,
        arguments=("{}", WEATHER),
    ),
    Case(
        "parallel calls all with index 0",
        CHAT,
        sse(tool(0, "c1", "a"), tool(0, arguments="{}"), tool(0, "c2", "b"), tool(0, arguments=WEATHER), chat(finish="tool_calls"), DONE),
        COMPLETE,
        arguments=("{}", WEATHER),
    ),
    Case(
        "interleaved arguments",
        CHAT,
        sse(tool(0, "c1", "a"), tool(1, "c2", "b"), tool(0, arguments="{"), tool(1, arguments=WEATHER), tool(0, arguments="}"), chat(finish="tool_calls"), DONE),
        COMPLETE,
        arguments=("{}", WEATHER),
    ),
    Case("id first, name later", CHAT, sse(tool(0, "c1"), tool(0, name="a"), tool(0, arguments="{}"), chat(finish="tool_calls"), DONE), COMPLETE, arguments=("{}",)),
    Case("an id in every piece", CHAT, sse(tool(0, "c1", "a"), tool(0, "c1", arguments=WEATHER), chat(finish="tool_calls"), DONE), COMPLETE, arguments=(WEATHER,)),
    Case("empty tool_calls", CHAT, sse(chat({"content": "Hello", "tool_calls": []}), STOP, DONE), COMPLETE, visible=5),
    Case("arguments that are a string", CHAT, sse(tool(0, "c1", "weather", '"Paris"'), chat(finish="tool_calls"), DONE), MALFORMED),
    Case("arguments cut short", CHAT, sse(tool(0, "c1", "weather", '{"city": "Zü'), chat(finish="tool_calls"), DONE), MALFORMED),
    Case("a call without a name", CHAT, sse(tool(0, "c1", arguments="{}"), chat(finish="tool_calls"), DONE), MALFORMED),
    Case("arguments before any call", CHAT, sse(tool(0, arguments="{}"), chat(finish="tool_calls"), DONE), MALFORMED),
    Case("a call announced and missing", CHAT, sse(say("Let me look"), chat(finish="tool_calls"), DONE), MALFORMED),
    Case("a call without its end", CHAT, sse(tool(0, "c1", "weather", WEATHER)), TRUNCATED),
    Case(
        "tool_use",
        ANTHROPIC,
        events(
            START, block(0, "tool_use", id="t1", name="weather", input={}), piece(0, "input_json_delta", '{"city": '),
            piece(0, "input_json_delta", '"Zürich"}'), stop_block(0), ended("tool_use"), MESSAGE_STOP,
        ),
        COMPLETE,
        arguments=(WEATHER,),
    ),
    Case(
        "tool_use without arguments",
        ANTHROPIC,
        events(START, block(0, "tool_use", id="t1", name="now", input={}), stop_block(0), ended("tool_use"), MESSAGE_STOP),
        COMPLETE,
        arguments=("",),
    ),
    Case(
        "tool_use cut short",
        ANTHROPIC,
        events(
            START, block(0, "tool_use", id="t1", name="w", input={}), piece(0, "input_json_delta", '{"c'), stop_block(0),
            ended("tool_use"), MESSAGE_STOP,
        ),
        MALFORMED,
    ),
)  # fmt: skip

FAILURES = (
    Case(
        "an error inside a 200", CHAT, sse(say("Hel"), {"error": {"type": "server_error", "message": "secret"}}), ERROR
    ),
    Case("an error event", CHAT, sse(say("Hel")) + b'event: error\ndata: {"message": "secret"}\n\n', ERROR),
    Case("an error, then a proper end", CHAT, sse({"error": {"code": 500}}, STOP, DONE), ERROR),
    Case("an error as plain JSON with 200", CHAT, b'{"error": {"type": "overloaded"}}', ERROR, content_type=JSON),
    Case("an error that is a string", CHAT, sse({"error": "boom"}), ERROR),
    Case("finish reason error", CHAT, sse(say("Hel"), chat(finish="error"), DONE), ERROR),
    Case("finish reason abort", CHAT, sse(say("Hel"), chat(finish="abort"), DONE), ERROR),
    Case("withheld by a filter", CHAT, sse(say("Hel"), chat(finish="content_filter"), DONE), REFUSED),
    Case("too many requests", CHAT, b'{"error": {"type": "rate_limit"}}', REJECTED, status=429, content_type=JSON),
    Case("no capacity", CHAT, b"", REJECTED, status=503, content_type=""),
    Case(
        "overloaded",
        ANTHROPIC,
        b'{"type":"error","error":{"type":"overloaded_error"}}',
        REJECTED,
        status=529,
        content_type=JSON,
    ),
    Case(
        "a prompt too long",
        CHAT,
        b'{"error":{"type":"exceed_context_size_error"}}',
        REFUSED,
        status=400,
        content_type=JSON,
    ),
    Case("no key", CHAT, b"nope", REFUSED, status=401, content_type="text/plain"),
    Case("no such model", CHAT, b'{"error":{"code":404}}', REFUSED, status=404, content_type=JSON),
    Case("an internal error", CHAT, b"<html>oops</html>", ERROR, status=500, content_type="text/html"),
    Case("an HTML page with 200", CHAT, b"<html>welcome</html>", MALFORMED, content_type="text/html"),
    Case("HTML without a content type", CHAT, b"<html>welcome</html>", MALFORMED, content_type=""),
    Case("an event that is not JSON", CHAT, sse(say("Hel"), "{oops", STOP, DONE), MALFORMED),
    Case("content of a wrong type", CHAT, sse(chat({"content": 7}), STOP, DONE), MALFORMED),
    Case("JSON of another API", CHAT, b'{"hello": "world"}', MALFORMED, content_type=JSON),
    Case(
        "an Anthropic error event", ANTHROPIC, events(START, {"type": "error", "error": {"type": "api_error"}}), ERROR
    ),
)

ANTHROPIC_STREAMS = (
    Case("a plain message", ANTHROPIC, events(START, *text_block("Hel", "lo"), ended("end_turn"), MESSAGE_STOP), COMPLETE, visible=5, tokens=2),
    Case("CRLF message", ANTHROPIC, events(START, *text_block("Hi"), ended("end_turn"), MESSAGE_STOP, end="\r\n"), COMPLETE, visible=2),
    Case("pings between events", ANTHROPIC, events(START, {"type": "ping"}, *text_block("Hi"), ended("end_turn"), MESSAGE_STOP), COMPLETE),
    Case("data without event names", ANTHROPIC, sse(START, *text_block("Hi"), ended("end_turn"), MESSAGE_STOP), COMPLETE, visible=2),
    Case("max_tokens", ANTHROPIC, events(START, *text_block("Hi"), ended("max_tokens"), MESSAGE_STOP), LENGTH),
    Case("a stop sequence", ANTHROPIC, events(START, *text_block("Hi"), ended("stop_sequence"), MESSAGE_STOP), COMPLETE),
    Case("two text blocks", ANTHROPIC, events(START, *text_block("a"), *text_block("b", index=1), ended("end_turn"), MESSAGE_STOP), COMPLETE, text="ab"),
    Case("no message_stop", ANTHROPIC, events(START, *text_block("Hi"), ended("end_turn")), TRUNCATED),
    Case("no stop reason", ANTHROPIC, events(START, *text_block("Hi"), ended(None), MESSAGE_STOP), TRUNCATED),
    Case("lost in a block", ANTHROPIC, events(START, block(0), piece(0, "text_delta", "Hi")), TRUNCATED, broken=True),
    Case("a block never stopped", ANTHROPIC, events(START, block(0), piece(0, "text_delta", "Hi"), ended("end_turn"), MESSAGE_STOP), MALFORMED),
    Case("a block started twice", ANTHROPIC, events(START, block(0), block(0), stop_block(0), ended("end_turn"), MESSAGE_STOP), MALFORMED),
    Case("a delta outside its block", ANTHROPIC, events(START, piece(3, "text_delta", "Hi"), ended("end_turn"), MESSAGE_STOP), MALFORMED),
    Case("a message with nothing in it", ANTHROPIC, events(START, ended("end_turn", 4), MESSAGE_STOP), EMPTY, tokens=4),
)  # fmt: skip

WHOLE = (
    Case("a whole answer", CHAT, _body({"content": "Hello"}, "stop"), COMPLETE, content_type=JSON, visible=5, tokens=2),
    Case("a whole answer cut by the limit", CHAT, _body({"content": "Hello"}, "length"), LENGTH, content_type=JSON),
    Case("a whole answer with a call", CHAT, _body({"content": None, "tool_calls": [{"id": "c", "function": {"name": "w", "arguments": WEATHER}}]}, "tool_calls"), COMPLETE, content_type=JSON, arguments=(WEATHER,)),
    Case("arguments as an object", CHAT, _body({"tool_calls": [{"id": "c", "function": {"name": "w", "arguments": {"a": 1}}}]}, "tool_calls"), COMPLETE, content_type=JSON, arguments=('{"a":1}',)),
    Case("a whole answer without content", CHAT, _body({"content": ""}, "stop", 0), EMPTY, content_type=JSON),
    Case("content removed at a tool marker", CHAT, _body({"content": ""}, "length", 64), EMPTY, content_type=JSON, tokens=64),
    Case("a whole answer of reasoning", CHAT, _body({"content": None, "reasoning_content": "hm"}, "length"), EXHAUSTED, content_type=JSON),
    Case("a whole answer without finish reason", CHAT, _body({"content": "Hello"}, None), TRUNCATED, content_type=JSON),
    Case("a whole answer cut in its JSON", CHAT, _body({"content": "Hello"}, "stop")[:-7], MALFORMED, content_type=JSON),
    Case("JSON lost on the way", CHAT, _body({"content": "Hello"}, "stop")[:-7], TRUNCATED, content_type=JSON, broken=True),
    Case("a stream where JSON was asked for", CHAT, HELLO, COMPLETE, content_type=SSE, visible=5),
    Case("JSON without a content type", CHAT, _body({"content": "Hello"}, "stop"), COMPLETE, content_type="", visible=5),
    Case("a whole message", ANTHROPIC, _message([{"type": "text", "text": "Hello"}], "end_turn"), COMPLETE, content_type=JSON, visible=5, tokens=2),
    Case("a whole message with a call", ANTHROPIC, _message([{"type": "tool_use", "id": "t", "name": "w", "input": {"a": 1}}], "tool_use"), COMPLETE, content_type=JSON, arguments=('{"a":1}',)),
    Case("a whole message with nothing", ANTHROPIC, _message([], "end_turn"), EMPTY, content_type=JSON),
    Case("vectors", VECTORS, b'{"data":[{"embedding":[0.1,0.2]}],"usage":{"prompt_tokens":3}}', COMPLETE, content_type=JSON),
    Case("a vector as base64", VECTORS, b'{"data":[{"embedding":"zczMPQ=="}]}', COMPLETE, content_type=JSON),
    Case("an empty vector", VECTORS, b'{"data":[{"embedding":[]}]}', MALFORMED, content_type=JSON),
    Case("no vectors", VECTORS, b'{"data":[]}', MALFORMED, content_type=JSON),
)  # fmt: skip

SAID = {"type": "response.output_text.delta", "output_index": 0, "delta": "Hello"}
THOUGHT = {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "hm"}
CALLED = {
    "type": "response.output_item.added",
    "output_index": 0,
    "item": {"type": "function_call", "call_id": "c", "name": "w", "arguments": ""},
}
PARTS = (
    {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": part}
    for part in ('{"city": ', '"Zürich"}')
)
COUNTS = {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}}


def _ended(status: str, **more: object) -> dict[str, object]:
    return {"type": f"response.{status}", "response": {"status": status, "output": [], "usage": COUNTS} | more}


RESPONSES_STREAMS = (
    Case("a plain response", RESPONSES, events({"type": "response.created"}, SAID, _ended("completed")), COMPLETE, visible=5, tokens=2, text="Hello"),
    Case("a response closed in its reasoning", RESPONSES, events({"type": "response.created"}, THOUGHT), TRUNCATED),
    Case("a response without its last event", RESPONSES, events(SAID), TRUNCATED),
    Case("a response cut by the limit", RESPONSES, events(SAID, _ended("incomplete", incomplete_details={"reason": "max_output_tokens"})), LENGTH),
    Case("a response withheld", RESPONSES, events(SAID, _ended("incomplete", incomplete_details={"reason": "content_filter"})), REFUSED),
    Case("a response of reasoning", RESPONSES, events(THOUGHT, _ended("completed")), EXHAUSTED),
    Case("a response with nothing", RESPONSES, events(_ended("completed")), EMPTY),
    Case("a response that failed", RESPONSES, events(SAID, _ended("failed", error={"code": "server_error", "message": "secret"})), ERROR),
    Case("an error event in a response", RESPONSES, events(SAID, {"type": "error", "code": "server_error", "message": "secret"}), ERROR),
    Case("a response with a call", RESPONSES, events(CALLED, *PARTS, _ended("completed")), COMPLETE, arguments=(WEATHER,)),
    Case("response arguments without a call", RESPONSES, events({"type": "response.function_call_arguments.delta", "delta": "{}"}, _ended("completed")), MALFORMED),
    Case("a response event that is not JSON", RESPONSES, sse("{oops"), MALFORMED),
    Case(
        "a whole response",
        RESPONSES,
        json.dumps({"status": "completed", "usage": COUNTS, "output": [
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
            {"type": "function_call", "call_id": "c", "name": "w", "arguments": WEATHER},
        ]}).encode(),
        COMPLETE,
        content_type=JSON,
        visible=5 + 1 + len(WEATHER),
        arguments=(WEATHER,),
    ),
    Case("a whole response without status", RESPONSES, b'{"output":[]}', TRUNCATED, content_type=JSON),
    Case("a body that is no response", RESPONSES, b'{"choices":[]}', MALFORMED, content_type=JSON),
)  # fmt: skip

CORPUS = (*STREAMS, *ENDINGS, *REASONING, *TOOLS, *FAILURES, *ANTHROPIC_STREAMS, *WHOLE, *RESPONSES_STREAMS)
