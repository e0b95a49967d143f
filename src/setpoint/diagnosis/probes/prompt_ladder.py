"""Prompts of rising length, one at a time: what a prompt token costs, and what an empty prompt would."""

import numpy as np

from setpoint.diagnosis.probe import Conditions, Probe, longest_prompt, one_at_a_time
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Turn

RUNGS = 4
ROUNDS = 5
LONGEST_S = 12.0


def ladder(card: Workload) -> list[int]:
    """Prompt lengths, from an eighth of the card's longest up to it."""
    top = longest_prompt(card)
    return [int(x) for x in np.unique(np.rint(np.geomspace(max(top / 8, 16), top, RUNGS)))]


def schedule(card: Workload, conditions: Conditions) -> Schedule:
    """Rounds over all lengths, so that a run that ends early has seen each of them."""
    return one_at_a_time([Turn(n, 2) for _ in range(ROUNDS) for n in ladder(card)], conditions, LONGEST_S)


PROMPT_LADDER = Probe(
    name="prompt_ladder",
    title="Prompt-length ladder at one stream",
    question="How much of the time to first token is prefill, when nobody else is there?",
    results=(
        ("TTFT rises with the length to its level under load", "prefill compute is the cause"),
        ("TTFT stays low at every length", "the request waits for something else: a slot, a cache, the host"),
        ("TTFT is high at every length", "fixed overhead: gateway, network, tokenizer, hidden reasoning"),
    ),
    schedule=schedule,
)
