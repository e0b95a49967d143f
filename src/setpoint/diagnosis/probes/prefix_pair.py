"""Prompts that begin alike against prompts that do not, in turn, one at a time."""

import numpy as np

from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.probe import Conditions, Probe, longest_prompt, one_at_a_time
from setpoint.metrics.table import Floats, Mask
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Turn

PAIRS = 6
SHARED = 0.9  # of the prompt
LONGEST_S = 12.0


def _schedule(card: Workload, conditions: Conditions) -> Schedule:
    length = longest_prompt(card)
    unique = Turn(length, 2)
    shared = Turn(length, 2, prefix_group=0, prefix_tokens=int(SHARED * length))
    return one_at_a_time([shared, *[unique, shared] * PAIRS], conditions, LONGEST_S)


def unique_arm(observation: Observation) -> Mask:
    """Which exchanges sent a prompt that shares nothing."""
    return np.asarray(observation.table.session % 2 == 1, dtype=np.bool_)


def arms(observation: Observation) -> tuple[Floats, Floats, float]:
    """Waits of unique prompts, of prompts whose beginning was sent before, and how many tokens they share."""
    table = observation.table
    known = table.answered & ~np.isnan(observation.wait_s)
    odd = unique_arm(observation)
    lengths = table.planned_prompt_tokens
    shared_tokens = SHARED * float(lengths.mean()) if len(table) else 0.0
    return observation.wait_s[known & odd], observation.wait_s[known & ~odd & (table.session > 0)], shared_tokens


PREFIX_PAIR = Probe(
    name="prefix_pair",
    title="Shared against unique prefixes",
    question="Does a prompt whose beginning was seen before cost less?",
    results=(
        ("shared prompts are as slow", "there is no prefix cache, or it is off"),
        ("shared prompts are fast", "the cache works: under load it is defeated by routing, layout or eviction"),
        ("shared prompts are slow although the engine says cached", "the host: tokenizing costs, not prefill"),
    ),
    schedule=_schedule,
)
