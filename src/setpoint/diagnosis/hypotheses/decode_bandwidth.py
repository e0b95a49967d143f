"""Decode bandwidth: one stream alone is slower than promised."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part


def _examine(e: Evidence) -> Examination:
    checks = [signs.alone_breaks(e), signs.gets_cpu(e), signs.speculation_pays(e)]
    busy, memory = e.subject.mean("gpu_sm_active"), e.subject.mean("gpu_dram_active")
    if busy is not None:
        checks.append(Check(busy >= signs.IDLE_GPU, f"the GPU's multiprocessors are active {busy:.0%} of the time"))
    if memory is not None:
        checks.append(Check(memory >= 0.4, f"the GPU's memory moves data {memory:.0%} of the time"))
    if busy is None and memory is None and not e.subject.computes_on_cpu:
        checks.append(Check(None, "GPU activity: bandwidth is not told from launch overhead"))
    return Examination(e.share((Part.STEP,), DECODE_BANDWIDTH.metrics), tuple(checks))


DECODE_BANDWIDTH = Hypothesis(
    name="decode_bandwidth",
    title="Decode bandwidth",
    statement="Reading weights and cache for one step takes too long, even for a single stream.",
    metrics=("tpot", "itl", "e2e"),
    probes=("output_ladder",),
    refutation="One stream alone keeps the promised pace.",
    examine=_examine,
)
