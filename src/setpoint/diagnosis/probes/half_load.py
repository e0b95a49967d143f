"""The card's own traffic at half its load."""

from setpoint.diagnosis.probe import Conditions, Probe
from setpoint.workload.card import Workload
from setpoint.workload.generate import schedule_for
from setpoint.workload.schedule import Schedule

SENDS = 24
LONGEST_S = 12.0


def _schedule(card: Workload, conditions: Conditions) -> Schedule:
    if conditions.users is not None:
        length_s = min(LONGEST_S, max(4.0, 4 * conditions.answer_s(int(card.traffic.output_tokens.mean))))
        users = max(conditions.users // 2, 1)
        return schedule_for(card, conditions.seed, concurrency=users, duration_s=length_s, folder=conditions.folder)
    assert conditions.rate_per_s is not None
    rate = conditions.rate_per_s / 2
    length_s = min(LONGEST_S, max(4.0, SENDS / rate))
    return schedule_for(card, conditions.seed, rate_per_s=rate, duration_s=length_s, folder=conditions.folder)


HALF_LOAD = Probe(
    name="half_load",
    title="Half the load",
    question="Does the wait go away with the load?",
    results=(
        ("TTFT falls to its level alone", "requests queued for capacity"),
        ("TTFT stays", "the wait does not come from load"),
    ),
    schedule=_schedule,
)
