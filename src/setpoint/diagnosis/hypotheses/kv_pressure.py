"""KV pressure: the cache holds less than is admitted, and requests are preempted and computed again."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part


def _examine(e: Evidence) -> Examination:
    usage = e.subject.peak("kv_usage")
    full = Check(
        None if usage is None else usage >= signs.KV_FULL,
        "KV usage is unknown" if usage is None else f"KV usage peaks at {usage:.0%}",
    )
    parts = (Part.STALL_PREEMPTION, Part.QUEUE)
    return Examination(
        e.share(parts, KV_PRESSURE.metrics), (signs.preempts(e), full, signs.generates(e), signs.gets_cpu(e))
    )


KV_PRESSURE = Hypothesis(
    name="kv_pressure",
    title="KV pressure and preemption",
    statement="More is admitted than the KV cache holds: requests are preempted, wait, and are computed again.",
    metrics=("ttft", "tpot", "itl", "e2e"),
    probes=("prompt_ladder", "output_ladder"),
    refutation="With fewer admitted at once the preemptions stop and the stalls stay.",
    examine=_examine,
)
