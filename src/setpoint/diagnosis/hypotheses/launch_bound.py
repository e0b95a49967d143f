"""Launch-bound GPU: kernels are so small that launching them takes longer than running them."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence, Share
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.interval import Interval
from setpoint.diagnosis.parts import Part


def _examine(e: Evidence) -> Examination:
    active, util = e.subject.mean("gpu_sm_active"), e.subject.mean("gpu_util")
    if active is None:
        check = Check(None, "SM activity of the GPU (GPU-Util alone says nothing)", needed=True)
        return Examination(e.share((Part.STEP, Part.UNKNOWN), LAUNCH_BOUND.metrics), (signs.alone_breaks(e), check))
    also = "" if util is None else f", though GPU-Util shows {util:.0f}%"
    checks = (
        signs.alone_breaks(e),
        Check(active < signs.IDLE_GPU, f"the GPU's multiprocessors are active {active:.0%} of the time{also}", needed=True),
        signs.gets_cpu(e), signs.host_is_quick(e), signs.speculation_pays(e),
    )  # fmt: skip
    step = e.share((Part.STEP, Part.UNKNOWN), LAUNCH_BOUND.metrics)
    if step is None:
        return Examination(None, checks)
    part, idle = step.interval, 1 - active
    share = Interval(part.value * idle, part.low * idle, part.high * idle, part.samples)
    return Examination(Share(share, step.symptom, step.seconds * idle), checks)


LAUNCH_BOUND = Hypothesis(
    name="launch_bound",
    title="Launch-bound GPU",
    statement="The GPU waits for its next kernel: steps are made of launches, not of work.",
    metrics=("tpot", "itl", "e2e"),
    probes=("output_ladder",),
    refutation="SM activity is high while streams run; or CUDA graphs leave the pace as it is.",
    examine=_examine,
)
