"""W3C trace context: the client's is the parent of the gateway's span, and that one the parent of the engine's.

The ids of an exchange's span follow from the exchange's own id, so that the process that serves it can tell the engine,
and the one that makes the span of the journal line later finds the same.
"""

import re
from collections.abc import Mapping

_TRACE = re.compile(r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")
SAMPLED = "01"
FIELDS = frozenset({"traceparent", "tracestate"})


def traceparent(fields: Mapping[str, str]) -> str | None:
    """The trace context of a request, if it is one."""
    trace = fields.get("traceparent")
    return trace if trace is not None and _TRACE.match(trace) else None


def trace_id(exchange: str) -> int:
    """Of the trace that begins with an exchange (24 hexadecimal digits)."""
    return int(f"{exchange}{exchange[:8]}", 16) or 1


def span_id(exchange: str) -> int:
    """Of an exchange's own span."""
    return int(exchange[:16], 16) or 1


def passed_on(fields: Mapping[str, str], exchange: str | None) -> str:
    """Header lines for the engine.

    Args:
        fields: The client's, names in lower case.
        exchange: Id of the exchange whose span is the engine's parent; None where the gateway makes no spans, and the
            client's context goes on as it is.
    """
    said = traceparent(fields)
    if exchange is None:
        context = said
    elif said is None:
        context = f"00-{trace_id(exchange):032x}-{span_id(exchange):016x}-{SAMPLED}"
    else:
        version, trace, _, flags = said.split("-")
        context = f"{version}-{trace}-{span_id(exchange):016x}-{flags}"
    if context is None:
        return ""
    state = fields.get("tracestate") if said is not None else None
    return f"traceparent: {context}\r\n" + (f"tracestate: {state}\r\n" if state is not None else "")
