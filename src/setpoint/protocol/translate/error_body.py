"""Errors: bodies and stream events, from one dialect into another.

The words in the middle are Anthropic's error types. Sources: platform.claude.com/docs/en/api/errors and OpenAI's error
codes page. Bodies that are no JSON (a proxy's HTML page) are not passed on: only their status is.
"""

from typing import Any

import msgspec

from setpoint.protocol.wire import decoded_error
from setpoint.records.target import Dialect

_BY_STATUS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_TO_OPENAI = {
    "api_error": "server_error",
    "overloaded_error": "server_error",
    "timeout_error": "server_error",
    "rate_limit_error": "rate_limit_exceeded",
    "request_too_large": "invalid_request_error",
    "billing_error": "insufficient_quota",
    "not_found_error": "invalid_request_error",
}
_CODES = {
    "overloaded_error": "overloaded",
    "timeout_error": "timeout",
    "rate_limit_error": "rate_limit_exceeded",
    "not_found_error": "not_found",
    "billing_error": "insufficient_quota",
    "authentication_error": "invalid_api_key",
}
_KINDS = frozenset({*_BY_STATUS.values(), "invalid_request_error", "api_error"})
# What engines call their own failures.
_FROM_ENGINES = {
    "server_error": "api_error",
    "internal_server_error": "api_error",
    "internalservererror": "api_error",
    "overloaded": "overloaded_error",
    "unavailable_error": "overloaded_error",
    "rate_limit": "rate_limit_error",
    "rate_limit_exceeded": "rate_limit_error",
    "insufficient_quota": "billing_error",
    "badrequesterror": "invalid_request_error",
    "notfounderror": "not_found_error",
    "exceed_context_size_error": "invalid_request_error",
    "context_length_exceeded": "invalid_request_error",
    "not_supported_error": "invalid_request_error",
    "invalid_api_key": "authentication_error",
}
_TOO_LONG = "prompt is too long"  # Anthropic's words; coding agents shorten their history when they read them
_TOO_LONG_SIGNS = ("exceed_context_size_error", "context_length_exceeded", "maximum context length", _TOO_LONG)


def describe(error: object, status: int = 0) -> tuple[str, str]:
    """Kind (Anthropic's word) and message of a decoded error object, whatever dialect it is in.

    Args:
        error: The ``error`` member of a body or an event; None where there was no JSON.
        status: HTTP status; 0 for an error inside a stream.
    """
    members: dict[str, Any] = error if isinstance(error, dict) else {"message": error} if isinstance(error, str) else {}
    names = [str(members[key]).lower() for key in ("code", "type") if members.get(key) not in (None, "")]
    message = members.get("message")
    if not isinstance(message, str) or not message:
        message = f"the engine answered HTTP {status}" if status else "the engine reported an error"
    found = (f"{' '.join(names)} {message}").lower()
    if any(sign in found for sign in _TOO_LONG_SIGNS):
        return "invalid_request_error", message if _TOO_LONG in message.lower() else f"{_TOO_LONG}: {message}"
    if status in _BY_STATUS:
        return _BY_STATUS[status], message
    for name in names:
        if name in _KINDS:
            return name, message
        if name in _FROM_ENGINES:
            return _FROM_ENGINES[name], message
        if name.isdigit() and int(name) in _BY_STATUS:
            return _BY_STATUS[int(name)], message
    codes = [int(name) for name in names if name.isdigit()]
    code = status or (codes[0] if codes else 500)
    return ("invalid_request_error" if 400 <= code < 500 else "api_error"), message


def error_object(target: Dialect, kind: str, message: str) -> dict[str, Any]:
    """The error in the words of a dialect: the whole body of an error answer."""
    if target is Dialect.MESSAGES:
        return {"type": "error", "error": {"type": kind, "message": message}}
    too_long = message.lower().startswith(_TOO_LONG)
    code = "context_length_exceeded" if too_long else _CODES.get(kind)
    members = {"message": message, "type": _TO_OPENAI.get(kind, kind), "param": None, "code": code}
    return {"error": members}


def error_body(target: Dialect, kind: str, message: str) -> bytes:
    """The body of an error answer, for errors that have no engine behind them."""
    return msgspec.json.encode(error_object(target, kind, message))


def error(status: int, body: bytes, source: Dialect, target: Dialect) -> bytes:
    """The body of an engine's error answer, in the client's dialect; the status stays what it is.

    Args:
        status: The engine's HTTP status.
        body: The engine's body; may be empty or no JSON.
        source: The engine's dialect.
        target: The client's dialect.
    """
    if source is target:
        return body
    return error_body(target, *describe(decoded_error(body), status))


def stream_error(target: Dialect, kind: str, message: str, number: int = 0) -> bytes:
    """An error inside a stream. It is the last thing the stream says: no terminal event follows.

    Args:
        target: The client's dialect.
        kind: Anthropic's word, e.g. ``api_error``.
        message: For the client; no content of anybody else.
        number: Its place in the stream, where the dialect counts events.
    """
    if target is Dialect.RESPONSES:
        members = error_object(target, kind, message)["error"]
        event = {"type": "error", "code": members["code"] or members["type"], "message": message, "param": None}
        event["sequence_number"] = number
        return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"
    data = b"data: " + error_body(target, kind, message) + b"\n\n"
    return b"event: error\n" + data if target is Dialect.MESSAGES else data
