"""Speculation collapse: most of what is drafted is thrown away."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence, Share
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.interval import Interval
from setpoint.diagnosis.parts import Part


def _examine(e: Evidence) -> Examination:
    found = signs.speculation_waste(e.subject)
    if found is None:
        return Examination(None, (Check(False, "the engine reports no drafted tokens"),))
    acceptance, waste = found
    check = Check(
        acceptance < signs.ACCEPTED,
        f"{acceptance:.0%} of drafted tokens are accepted; {waste:.0%} of verified positions are thrown away",
        needed=True,
    )
    step = e.share((Part.STEP, Part.UNKNOWN), SPECULATION.metrics)
    if step is None:
        return Examination(None, (check,))
    part = step.interval
    wasted = Interval(part.value * waste, part.low * waste, part.high * waste, part.samples)
    return Examination(Share(wasted, step.symptom, step.seconds * waste), (check, signs.gets_cpu(e)))


SPECULATION = Hypothesis(
    name="speculation",
    title="Speculation collapse",
    statement="Drafted tokens are mostly rejected: drafting and verifying cost more than they bring.",
    metrics=("tpot", "itl", "e2e"),
    probes=("output_ladder",),
    refutation="With speculation off at the same load the pace stays or falls.",
    examine=_examine,
)
