"""One token, with a deadline: does the engine still generate at all?"""

from setpoint.diagnosis.probe import Conditions, Probe, middle_prompt, one_at_a_time
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Turn

DEADLINE_S = 10.0


def _schedule(card: Workload, conditions: Conditions) -> Schedule:
    return one_at_a_time([Turn(middle_prompt(card), 1)], conditions, 1.0)


CANARY = Probe(
    name="canary",
    title="One-token canary with a deadline",
    question="Does the engine still generate when nothing else is asked of it?",
    results=(
        ("an answer within the deadline", "the engine is alive: it was slow, not wedged"),
        ("no answer", "the engine is wedged: it takes requests and generates nothing"),
    ),
    schedule=_schedule,
    warmup_requests=0,
    deadline_s=DEADLINE_S,
)
