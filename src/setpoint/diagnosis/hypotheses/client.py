"""The load generator is the bottleneck: it sends late, or reads late."""

from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import BUSY_CLIENT, Check, Examination, Hypothesis
from setpoint.diagnosis.parts import FIRST, Part


def _examine(e: Evidence) -> Examination:
    client = e.subject.client
    good = client.get("good") if client else None
    reasons = "; ".join(str(r) for r in client.get("reasons", ())) or "its certificate is good"
    checks = [Check(None if good is None else not good, f"the client says of itself: {reasons}", needed=True)]
    # A client that sends late cannot vouch for the time that its connections took either.
    parts: tuple[Part, ...] = (Part.CLIENT,) if good is not False else (Part.CLIENT, Part.CONNECT)
    busy = float(client.get("cpu_share", 0.0))
    if busy > BUSY_CLIENT:
        parts = (*FIRST, Part.UNKNOWN)
        checks.append(
            Check(True, f"a client process used {busy:.0%} of a core: all that it saw, it may have seen late")
        )
    return Examination(e.share(parts, CLIENT.metrics), tuple(checks))


CLIENT = Hypothesis(
    name="client",
    title="Client",
    statement="The load generator, not the target, is the bottleneck.",
    metrics=("ttft", "e2e"),
    probes=(),
    refutation="More client processes, or a machine of their own: the latencies stay.",
    examine=_examine,
)
