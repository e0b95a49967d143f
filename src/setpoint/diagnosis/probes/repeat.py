"""The same request again and again: is the first dear and the second cheap?"""

from setpoint.diagnosis.probe import Conditions, Probe, middle_prompt, one_at_a_time
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Turn

REPEATS = 8


def _schedule(card: Workload, conditions: Conditions) -> Schedule:
    length = middle_prompt(card)
    turn = Turn(length, 2, prefix_group=0, prefix_tokens=length - 1)
    return one_at_a_time([turn] * REPEATS, conditions, 10.0)


REPEAT = Probe(
    name="repeat",
    title="The same request repeated after a restart",
    question="Does the first request after a start pay for what later ones find ready?",
    results=(
        ("only the first is slow", "cold start: compilation, graphs or caches are made when first needed"),
        ("all are equally slow", "the start is not the cause"),
    ),
    schedule=_schedule,
    warmup_requests=0,
    restarts=True,
)
