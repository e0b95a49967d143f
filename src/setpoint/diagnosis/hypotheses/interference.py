"""Prefill-decode interference: running streams stall while long prompts are computed."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part
from setpoint.diagnosis.probes.decode_control import slowdown


def _examine(e: Evidence) -> Examination:
    control = e.probe("decode_control")
    found = None if control is None else slowdown(control)
    if found is None:
        seen = Check(None, "whether streams slow down beside long prompts", needed=True)
    else:
        words = f"beside long prompts a stream's gaps are {found.value:.1f} times as long ({found.low:.1f} to {found.high:.1f})"
        seen = Check(found.low >= 1.2, words, needed=True)
    checks = [seen, signs.host_is_quick(e), signs.generates(e)]
    if found is None:  # else both halves of the control were on the same machine, and their ratio stands
        checks.append(signs.gets_cpu(e))
    return Examination(e.share((Part.STALL_PREFILL,), INTERFERENCE.metrics), tuple(checks))


INTERFERENCE = Hypothesis(
    name="interference",
    title="Prefill-decode interference",
    statement="Streams stall while the prompts of others are computed.",
    metrics=("tpot", "itl", "e2e"),
    probes=("prompt_ladder", "output_ladder", "decode_control"),
    refutation="The same streams keep their pace beside long prompts.",
    examine=_examine,
)
