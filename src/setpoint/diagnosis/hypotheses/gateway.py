"""Gateway or network: the time goes before the engine hears of the request."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part
from setpoint.units import format_duration


def _examine(e: Evidence) -> Examination:
    found = e.upstream
    parts: tuple[Part, ...] = (Part.CONNECT, Part.NETWORK)
    if found is None:  # then it may be in any part of the wait that load or prompt do not explain
        parts = (Part.CONNECT, Part.NETWORK, Part.OVERHEAD, Part.CONTENTION, Part.QUEUE, Part.UNKNOWN)
        seen = Check(None, "how long requests are on their way before the engine knows them", needed=True)
    else:
        span = f"{format_duration(found.low)} to {format_duration(found.high)}"
        words = f"a request is {format_duration(found.value)} ({span}) on its way before the engine knows it"
        holds = True if found.low > 0 else False if found.high <= 0 else None  # zero within it refutes nothing
        seen = Check(holds, words, needed=True)
    return Examination(
        e.share(parts, GATEWAY.metrics), (seen, signs.host_is_quick(e), signs.gets_cpu(e), signs.generates(e))
    )


GATEWAY = Hypothesis(
    name="gateway",
    title="Gateway or network",
    statement="Requests spend their time in a gateway or on the network, before the engine hears of them.",
    metrics=("ttft", "e2e"),
    probes=("direct",),
    refutation="The same prompts sent to the engine itself take as long.",
    examine=_examine,
)
