"""Interconnect: accelerators that share a layer wait for each other."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence, Share
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.interval import Interval
from setpoint.diagnosis.parts import Part


def _examine(e: Evidence) -> Examination:
    size = e.subject.tensor_parallel
    if size is None:
        check = Check(None, "how many accelerators share a layer", needed=True)
        return Examination(e.share((Part.STEP, Part.UNKNOWN), INTERCONNECT.metrics), (signs.alone_breaks(e), check))
    if size < 2:
        return Examination(None, (Check(False, "no layer is split over accelerators"),))
    active, memory = e.subject.mean("gpu_sm_active"), e.subject.mean("gpu_dram_active")
    split = Check(True, f"each layer is split over {size} accelerators")
    step = e.share((Part.STEP, Part.UNKNOWN), INTERCONNECT.metrics)
    if active is None or memory is None:
        return Examination(
            step, (split, signs.alone_breaks(e), Check(None, "SM and memory activity of the GPUs", needed=True))
        )
    waiting = max(active - memory, 0.0)
    words = f"multiprocessors are busy {active:.0%} of the time while memory moves data {memory:.0%}: they wait in collectives"
    checks = (
        split,
        signs.alone_breaks(e),
        Check(active >= signs.IDLE_GPU and memory < 0.4, words, needed=True),
        signs.gets_cpu(e),
    )
    if step is None:
        return Examination(None, checks)
    part = step.interval
    share = Interval(part.value * waiting, part.low * waiting, part.high * waiting, part.samples)
    return Examination(Share(share, step.symptom, step.seconds * waiting), checks)


INTERCONNECT = Hypothesis(
    name="interconnect",
    title="Interconnect",
    statement="Accelerators that share each layer spend the step exchanging data.",
    metrics=("tpot", "itl", "e2e"),
    probes=("output_ladder",),
    refutation="The same model on fewer accelerators is no faster a step.",
    examine=_examine,
)
