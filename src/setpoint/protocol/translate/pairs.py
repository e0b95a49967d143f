"""Requests and whole answers, by pair of dialects."""

from collections.abc import Callable
from typing import Any

import msgspec

from setpoint.errors import TranslationError
from setpoint.protocol.translate import request_chat, request_messages, request_responses
from setpoint.protocol.translate.error_body import error_body
from setpoint.protocol.translate.fields import Fields, fields_of
from setpoint.protocol.translate.stream import READERS, WRITERS
from setpoint.protocol.translate.write_whole import Collector, whole_body
from setpoint.protocol.translate.writer import BrokenAnswer, Envelope, ReportedError
from setpoint.records.target import Dialect


def _responses_to_messages(fields: Fields) -> dict[str, Any]:
    """By way of chat: a field of the second step is named as chat names it."""
    return request_chat.to_messages(fields_of(msgspec.json.encode(request_responses.to_chat(fields))))


_REQUESTS: dict[tuple[Dialect, Dialect], Callable[[Fields], dict[str, Any]]] = {
    (Dialect.MESSAGES, Dialect.CHAT): request_messages.to_chat,
    (Dialect.CHAT, Dialect.MESSAGES): request_chat.to_messages,
    (Dialect.RESPONSES, Dialect.CHAT): request_responses.to_chat,
    (Dialect.RESPONSES, Dialect.MESSAGES): _responses_to_messages,
}

TRANSLATED = frozenset(_REQUESTS)
"""Pairs of (client's dialect, engine's dialect) that are translated; a pair of equals needs no translation."""


def request(body: bytes, source: Dialect, target: Dialect) -> bytes:
    """A client's request in the engine's dialect.

    Args:
        body: The client's JSON.
        source: The client's dialect.
        target: The engine's dialect.

    Raises:
        TranslationError: a field is malformed, or the engine's dialect has no word for it.
    """
    if source is target:
        return body
    translate = _REQUESTS.get((source, target))
    if translate is None:
        raise TranslationError("dialect", f"no translation of requests from {source} to {target}.")
    return msgspec.json.encode(translate(fields_of(body)))


def whole(body: bytes, source: Dialect, target: Dialect, envelope: Envelope | None = None) -> bytes:
    """An engine's whole answer in the client's dialect. An error inside it stays an error.

    Args:
        body: The engine's JSON.
        source: The engine's dialect.
        target: The client's dialect.
        envelope: What the client's answer must say and the engine's may not.

    Raises:
        TranslationError: the answer is malformed, or cannot be said in the client's dialect.
    """
    if source is target:
        return body
    if source not in READERS or target not in WRITERS:
        raise TranslationError("dialect", f"no translation of answers from {source} to {target}.")
    envelope = envelope or Envelope()
    seen = Collector()
    try:
        READERS[source](seen, envelope).whole(body)
        return whole_body(seen, target, envelope)
    except ReportedError as reported:
        return error_body(target, reported.kind, reported.message)
    except BrokenAnswer as broken:
        raise TranslationError(broken.field, f"{broken.message}, in the engine's answer.") from broken
