"""Prefill compute: the prompt itself takes the time."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part
from setpoint.units import format_duration


def _examine(e: Evidence) -> Examination:
    cost = e.model.prefill_s_per_token
    if cost is None:
        seen = Check(None, "what a prompt token costs alone", needed=True)
    else:
        words = f"a prompt token alone costs {format_duration(cost.value)} ({format_duration(cost.low)} to {format_duration(cost.high)})"
        seen = Check(cost.low > 0, words, needed=True)
    return Examination(
        e.share((Part.PREFILL, Part.CONTENTION), PREFILL.metrics), (seen, signs.host_is_quick(e), signs.gets_cpu(e))
    )


PREFILL = Hypothesis(
    name="prefill",
    title="Prefill compute",
    statement="Computing the prompt takes the time: long prompts, or too little compute.",
    metrics=("ttft", "e2e"),
    probes=("prompt_ladder",),
    refutation="Alone, the time to first token does not grow with the prompt.",
    examine=_examine,
)
