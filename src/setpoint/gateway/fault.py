"""An engine's answer that is none: what its client is told, and when it may be asked again."""

from setpoint.gateway.refusal import Refusal
from setpoint.protocol.judgement import Judgement
from setpoint.records.exchange import Outcome

_FAULTS = {
    Outcome.TRUNCATED: (502, "truncated", "The answer was cut off before its end."),
    Outcome.EMPTY: (502, "empty_answer", "The model ended its answer with nothing in it."),
    Outcome.MALFORMED: (502, "malformed_answer", "The model's answer broke the protocol."),
    Outcome.CANCELLED: (503, "draining", "The gateway is ending."),
    Outcome.TIMEOUT: (504, "timeout", "The model did not answer in time."),
}


def fault(judgement: Judgement) -> Refusal:
    """The error that a verdict is."""
    status, code, message = _FAULTS.get(judgement.outcome, (502, "upstream_error", "The model server failed."))
    return Refusal(status, code, message)


def retry_after_s(value: str | None) -> float | None:
    """Seconds in an engine's ``retry-after``; None without one, and for a date."""
    try:
        return None if value is None else max(0.0, float(value))
    except ValueError:
        return None
