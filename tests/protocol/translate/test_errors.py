"""Errors keep their meaning and their message, whoever speaks."""

# ruff: noqa: ANN401 - JSON of any shape

import json
from typing import Any

import pytest
from tests.protocol.translate.streams import CHAT, MESSAGES, RESPONSES

from setpoint.protocol import translate
from setpoint.records.target import Dialect


def told(status: int, body: bytes, source: Dialect, target: Dialect) -> dict[str, Any]:
    out = json.loads(translate.error(status, body, source, target))["error"]
    assert isinstance(out, dict)
    return out


def openai(message: str, **more: Any) -> bytes:
    return json.dumps({"error": {"message": message} | more}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, openai("bad", type="BadRequestError", code=400), "invalid_request_error"),
        (401, openai("who", code="invalid_api_key"), "authentication_error"),
        (403, openai("no"), "permission_error"),
        (404, openai("none", type="NotFoundError", code=404), "not_found_error"),
        (413, openai("big"), "request_too_large"),
        (422, openai("odd"), "invalid_request_error"),
        (429, openai("slow"), "rate_limit_error"),
        (500, openai("oops", type="server_error"), "api_error"),
        (503, openai("busy"), "overloaded_error"),
        (504, openai("late"), "timeout_error"),
    ],
)
def test_the_kind_follows_the_status(status: int, body: bytes, kind: str) -> None:
    whole = json.loads(translate.error(status, body, CHAT, MESSAGES))
    assert whole["type"] == "error"
    assert whole["error"] == {"type": kind, "message": json.loads(body)["error"]["message"]}


@pytest.mark.parametrize(
    "body",
    [
        openai("the request exceeds the available context size", type="exceed_context_size_error", code=400),
        openai("This model's maximum context length is 4096 tokens."),
        openai("long", code="context_length_exceeded"),
    ],
)
def test_a_prompt_too_long_is_recognised_by_coding_agents(body: bytes) -> None:
    out = told(400, body, CHAT, MESSAGES)
    assert out["type"] == "invalid_request_error"
    assert out["message"].startswith("prompt is too long: ")
    back = told(400, json.dumps({"type": "error", "error": out}).encode(), MESSAGES, CHAT)
    assert back["code"] == "context_length_exceeded"


def test_anthropic_errors_in_openai_words() -> None:
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
    want = {"message": "Overloaded", "type": "server_error", "param": None, "code": "overloaded"}
    assert told(529, body, MESSAGES, CHAT) == want
    assert told(529, body, MESSAGES, RESPONSES) == want


@pytest.mark.parametrize("body", [b"", b"<html>secret</html>", b"[1]", b'{"error":{}}', b'{"error":null}'])
def test_bodies_without_a_message_tell_their_status_only(body: bytes) -> None:
    out = told(502, body, CHAT, MESSAGES)
    assert out == {"type": "api_error", "message": "the engine answered HTTP 502"}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("boom", "api_error"),
        ({"code": 429, "message": "slow"}, "rate_limit_error"),
        ({"code": 418}, "invalid_request_error"),
        ({"type": "overloaded_error"}, "overloaded_error"),
        ({"type": "rate_limit_exceeded"}, "rate_limit_error"),
        (None, "api_error"),
    ],
)
def test_errors_inside_a_stream_have_no_status(error: object, kind: str) -> None:
    assert translate.describe(error)[0] == kind


def test_a_stream_error_is_in_the_clients_dialect() -> None:
    assert translate.stream_error(MESSAGES, "api_error", "cut") == (
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"cut"}}\n\n'
    )
    assert translate.stream_error(CHAT, "api_error", "cut") == (
        b'data: {"error":{"message":"cut","type":"server_error","param":null,"code":null}}\n\n'
    )
    assert translate.stream_error(RESPONSES, "api_error", "cut") == (
        b'event: error\ndata: {"type":"error","code":"server_error","message":"cut",'
        b'"param":null,"sequence_number":0}\n\n'
    )


def test_an_error_inside_a_whole_answer_stays_one() -> None:
    out = json.loads(translate.whole(openai("boom"), CHAT, MESSAGES))
    assert out == {"type": "error", "error": {"type": "api_error", "message": "boom"}}
    body = b'{"type":"error","error":{"type":"api_error","message":"boom"}}'
    assert json.loads(translate.whole(body, MESSAGES, RESPONSES))["error"]["message"] == "boom"
