"""The scheduler is too shy: requests wait beside free memory and free slots."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Examination, Hypothesis
from setpoint.diagnosis.parts import Part


def _examine(e: Evidence) -> Examination:
    checks = (signs.waits(e), signs.free_room(e), signs.no_preemption(e), signs.generates(e), signs.gets_cpu(e))
    return Examination(e.share((Part.QUEUE,), SCHEDULER.metrics), checks)


SCHEDULER = Hypothesis(
    name="scheduler",
    title="Scheduler too shy",
    statement="Requests wait although memory and slots are free: admission is too conservative. (Too eager shows as preemption.)",
    metrics=("ttft", "e2e"),
    probes=("prompt_ladder",),
    refutation="A less conservative admission in a paired run leaves the wait as it is.",
    examine=_examine,
)
