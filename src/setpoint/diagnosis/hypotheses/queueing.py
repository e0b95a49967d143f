"""Queueing for capacity: requests wait for a slot or for memory that is in use."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Examination, Hypothesis
from setpoint.diagnosis.parts import Part


def _examine(e: Evidence) -> Examination:
    checks = (
        signs.waits(e), signs.wait_falls(e), signs.no_room(e), signs.no_preemption(e), signs.generates(e), signs.gets_cpu(e),
        signs.host_is_quick(e), signs.not_only_at_the_start(e),
    )  # fmt: skip
    return Examination(e.share((Part.QUEUE,), QUEUEING.metrics), checks)


QUEUEING = Hypothesis(
    name="queueing",
    title="Queueing for capacity",
    statement="Requests wait for capacity: all slots or all memory are in use when they come.",
    metrics=("ttft", "e2e"),
    probes=("prompt_ladder", "half_load"),
    refutation="At half the load the time to first token stays.",
    examine=_examine,
)
