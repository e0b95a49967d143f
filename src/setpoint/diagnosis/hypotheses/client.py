"""The load generator is the bottleneck: it sends late, or reads late."""

from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part


def _examine(e: Evidence) -> Examination:
    found = e.share((Part.CLIENT,), CLIENT.metrics)
    client = e.subject.client
    good = client.get("good") if client else None
    reasons = "; ".join(str(r) for r in client.get("reasons", ())) or "its certificate is good"
    check = Check(None if good is None else not good, f"the client says of itself: {reasons}", needed=True)
    return Examination(found, (check,))


CLIENT = Hypothesis(
    name="client",
    title="Client",
    statement="The load generator, not the target, is the bottleneck.",
    metrics=("ttft", "e2e"),
    probes=(),
    refutation="More client processes, or a machine of their own: the latencies stay.",
    examine=_examine,
)
