"""Decode bandwidth: one stream alone is slower than promised."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part
from setpoint.units import format_duration


def _examine(e: Evidence) -> Examination:
    checks = [_alone(e), signs.gets_cpu(e), signs.speculation_pays(e)]
    busy, memory = e.subject.mean("gpu_sm_active"), e.subject.mean("gpu_dram_active")
    if busy is not None:
        checks.append(Check(busy >= signs.IDLE_GPU, f"the GPU's multiprocessors are active {busy:.0%} of the time"))
    if memory is not None:
        checks.append(Check(memory >= 0.4, f"the GPU's memory moves data {memory:.0%} of the time"))
    if busy is None and memory is None and not e.subject.computes_on_cpu:
        checks.append(Check(None, "GPU activity: bandwidth is not told from launch overhead"))
    return Examination(e.share((Part.STEP,), DECODE_BANDWIDTH.metrics), tuple(checks))


def _alone(e: Evidence) -> Check:
    """A stream without company breaks the pace, or takes most of an end-to-end limit."""
    found = signs.step_alone(e)
    if found is not None:
        step_s, limit_s = found
        return Check(
            step_s > limit_s,
            f"one stream alone takes {format_duration(step_s)} a step, promised {format_duration(limit_s)}",
            needed=True,
        )
    limits = [s.limit_s for s in e.broken if s.metric == "e2e" and s.limit_s is not None]
    if e.model.step_s is None or not limits:
        return Check(None, "what a decode step of one stream takes", needed=True)
    alone_s = float(e.parts.of_stream(Part.STEP).mean())
    return Check(
        alone_s > min(limits) / 2,
        f"decode alone takes {format_duration(alone_s)} of {format_duration(min(limits))} promised end to end",
        needed=True,
    )


DECODE_BANDWIDTH = Hypothesis(
    name="decode_bandwidth",
    title="Decode bandwidth",
    statement="Reading weights and cache for one step takes too long, even for a single stream.",
    metrics=("tpot", "itl", "e2e"),
    probes=("output_ladder",),
    refutation="One stream alone keeps the promised pace.",
    examine=_examine,
)
