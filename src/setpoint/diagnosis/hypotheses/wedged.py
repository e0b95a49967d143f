"""Engine wedged: it takes requests and generates nothing."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part
from setpoint.diagnosis.standstill import SILENT_S
from setpoint.units import format_duration


def _examine(e: Evidence) -> Examination:
    spans = e.subject.standstills
    share = e.share((Part.SILENT,), WEDGED.metrics)
    if spans:
        longest = max(end - begin for begin, end in spans)
        words = (
            f"no token came for anybody for {format_duration(longest)} while requests were open, and the engine "
            "neither used a CPU nor waited for one"
        )
        canary = e.probe("canary")
        later = "not sent" if canary is None else "answered" if canary.table.answered.any() else "not answered"
        return Examination(
            share, (Check(True, words, needed=True), Check(True, f"a one-token canary afterwards: {later}")), least=1
        )
    still = signs.silence_s(e.subject)
    words = f"no token came for anybody for {format_duration(still)} while a request was open that never got one"
    seen = Check(still >= SILENT_S, words, needed=True)
    canary = e.probe("canary")
    if canary is None:
        alive = Check(None, "whether a one-token canary is answered")
    else:
        dead = not canary.table.answered.any()
        alive = Check(dead, f"a one-token canary was {'not answered' if dead else 'answered'}")
    return Examination(share, (seen, alive), least=1)  # the whole engine is silent


WEDGED = Hypothesis(
    name="wedged",
    title="Engine wedged",
    statement="The engine takes requests and generates nothing, for seconds or for good.",
    metrics=("ttft", "e2e", "tpot", "itl"),
    probes=("canary",),
    refutation="A one-token canary is answered within its deadline; or the engine uses its CPU while nobody gets a token.",
    examine=_examine,
)
