"""Engine wedged: it takes requests and generates nothing."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part
from setpoint.units import format_duration


def _examine(e: Evidence) -> Examination:
    still = signs.silence_s(e.subject)
    words = f"no token came for anybody for {format_duration(still)} while a request was open that never got one"
    seen = Check(still >= signs.SILENT_S, words, needed=True)
    canary = e.probe("canary")
    if canary is None:
        alive = Check(None, "whether a one-token canary is answered")
    else:
        dead = not canary.table.answered.any()
        alive = Check(dead, f"a one-token canary was {'not answered' if dead else 'answered'}")
    return Examination(e.share((Part.SILENT,), WEDGED.metrics), (seen, alive))


WEDGED = Hypothesis(
    name="wedged",
    title="Engine wedged",
    statement="The engine takes requests and generates nothing.",
    metrics=("ttft", "e2e"),
    probes=("canary",),
    refutation="A one-token canary is answered within its deadline.",
    examine=_examine,
)
