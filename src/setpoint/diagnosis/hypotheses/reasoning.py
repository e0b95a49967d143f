"""Hidden reasoning: tokens flow that nobody sees."""

from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part
from setpoint.units import format_duration


def _examine(e: Evidence) -> Examination:
    hidden = e.parts.first[Part.REASONING]
    words = f"between the first token and the first visible one lie {format_duration(float(hidden.mean()) if len(hidden) else 0.0)} on average"
    return Examination(
        e.share((Part.REASONING,), REASONING.metrics), (Check(bool((hidden > 0).any()), words, needed=True),)
    )


REASONING = Hypothesis(
    name="reasoning",
    title="Hidden reasoning",
    statement="The model reasons before it says anything visible: the user waits while tokens flow.",
    metrics=("ttft", "e2e"),
    probes=(),
    refutation="With reasoning off, or a lower effort, the time to the first visible token stays.",
    examine=_examine,
)
