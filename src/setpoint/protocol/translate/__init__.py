"""Translation between the dialects: requests, whole answers, streams and errors. Pure: bytes in, bytes out.

In: what a client sent in its dialect, or what an engine answered in its own. Out: the same in the other. What cannot
be carried is refused with the name of its field (``TranslationError``), never dropped in silence; the few members
that mean nothing on the other side are listed in ``docs/translation.md``.

    request(body, source, target)          client's dialect → engine's dialect
    whole(body, source, target, envelope)  engine's dialect → client's dialect
    StreamTranslator(source, target, envelope)
    error(status, body, source, target)    an error's body
    stream_error(target, kind, message)    an error inside a stream; ends it
    ping(target)                           what keeps an idle connection open

Each accepts ``source is target`` and then changes nothing.
"""

from setpoint.protocol.translate.error_body import describe, error, error_body, stream_error
from setpoint.protocol.translate.pairs import TRANSLATED, request, whole
from setpoint.protocol.translate.stream import StreamTranslator, ping
from setpoint.protocol.translate.writer import Envelope

__all__ = [
    "TRANSLATED",
    "Envelope",
    "StreamTranslator",
    "describe",
    "error",
    "error_body",
    "ping",
    "request",
    "stream_error",
    "whole",
]
