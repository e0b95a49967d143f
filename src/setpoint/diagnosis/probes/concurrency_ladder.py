"""Waves of one, two, four, ... requests of one shape: what each further stream adds to a decode step."""

from setpoint.diagnosis.probe import Conditions, Probe, middle_prompt
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Session, Turn

MOST_STREAMS = 16
LONGEST_S = 15.0
SLOWER = 2.0  # a wave may take this many times a request alone, and half of that again for each doubling
SPACE_S = 0.2


def _schedule(card: Workload, conditions: Conditions) -> Schedule:
    output = min(max(int(card.traffic.output_tokens.mean), 8), 32)
    top = min(max(conditions.streams, 2), MOST_STREAMS)
    sizes = [n for n in (1, 2, 4, 8, 16) if n <= top] + ([top] if top not in (2, 4, 8, 16) else [])
    prompt = max(middle_prompt(card) // 4, 16)  # short: what a wave's prompts cost each other is not the batch's
    alone_s = conditions.answer_s(output)
    sessions: list[Session] = []
    start_s = 0.0
    for rung, size in enumerate(sizes * 2):
        if sessions and start_s > LONGEST_S:
            break
        for _ in range(size):
            sessions.append(Session(len(sessions), round(start_s, 6), (Turn(prompt, output),)))
        start_s += alone_s * (SLOWER + 0.5 * (rung % len(sizes))) + SPACE_S
    rate = len(sessions) / start_s
    return Schedule(tuple(sessions), conditions.seed, rate, None, start_s)


CONCURRENCY_LADDER = Probe(
    name="concurrency_ladder",
    title="Concurrency ladder at one shape",
    question="How much does each further stream add to a decode step, with no prefill in between?",
    results=(
        ("the step grows with the streams past the promise", "batch contention"),
        ("the step stays", "the batch is not the cause"),
    ),
    schedule=_schedule,
)
