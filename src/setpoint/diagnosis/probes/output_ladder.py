"""Answers of two lengths after prompts of two lengths, one at a time: what one decode step costs alone."""

from setpoint.diagnosis.probe import Conditions, Probe, longest_prompt, one_at_a_time
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Turn

SHORT, LONG = 8, 24
ROUNDS = 4
LONGEST_S = 10.0


def _schedule(card: Workload, conditions: Conditions) -> Schedule:
    top = longest_prompt(card)
    shapes = [(max(top // 8, 16), SHORT), (top, LONG), (max(top // 8, 16), LONG)]
    return one_at_a_time([Turn(p, n) for _ in range(ROUNDS) for p, n in shapes], conditions, LONGEST_S)


OUTPUT_LADDER = Probe(
    name="output_ladder",
    title="Output ladder at one stream",
    question="What does one decode step cost when nobody else is there, and how does it grow with context?",
    results=(
        ("the step alone breaks the promise", "decode bandwidth, launch overhead or interconnect, not load"),
        ("the step alone keeps it", "company is the cause: the batch, prefills, preemption"),
    ),
    schedule=_schedule,
)
