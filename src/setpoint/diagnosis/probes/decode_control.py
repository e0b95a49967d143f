"""Streams alone, then the same streams beside long prompts."""

import numpy as np

from setpoint.diagnosis.interval import Interval, ratio
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.probe import Conditions, Probe, longest_prompt, middle_prompt
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Session, Turn

STREAMS = 3
PROMPTS = 3
LEAST_S = 2.0  # of streaming in each half
MOST_TOKENS = 256


def _schedule(card: Workload, conditions: Conditions) -> Schedule:
    wanted_s = max(LEAST_S, PROMPTS * conditions.wait_s)
    tokens = int(min(max(wanted_s / max(conditions.step_s, 1e-3), 16), MOST_TOKENS))
    half_s = 1.6 * conditions.answer_s(tokens) + 0.5
    short = max(middle_prompt(card) // 4, 16)
    sessions: list[Session] = []
    for begin_s in (0.0, half_s):
        sessions += [Session(len(sessions) + i, begin_s, (Turn(short, tokens),)) for i in range(STREAMS)]
    stream_s = conditions.step_s * tokens
    for number in range(PROMPTS):
        at_s = half_s + conditions.wait_s + stream_s * (number + 0.5) / (PROMPTS + 1)
        sessions.append(Session(len(sessions), round(at_s, 6), (Turn(longest_prompt(card), 1),)))
    length_s = 2 * half_s
    return Schedule(tuple(sessions), conditions.seed, len(sessions) / length_s, None, length_s)


def slowdown(observation: Observation) -> Interval | None:
    """Mean time of a stream's gaps beside long prompts, over that without; None when a half was not seen."""
    table = observation.table
    pace = np.full(len(table), np.nan)
    for row in np.flatnonzero(table.answered & (table.gaps >= 4)):
        pace[row] = float(table.gap_s[table.gap_at[row] : table.gap_at[row] + table.gaps[row]].mean())
    alone, beside = (
        pace[(table.session >= first) & (table.session < first + STREAMS) & ~np.isnan(pace)] for first in (0, STREAMS)
    )
    if not len(alone) or not len(beside):
        return None
    size = min(len(alone), len(beside))
    return ratio(beside[:size], alone[:size])


DECODE_CONTROL = Probe(
    name="decode_control",
    title="Decode-only control beside long prompts",
    question="Do streams stall when long prompts arrive beside them?",
    results=(
        ("the streams are slower beside long prompts", "prefill interferes with decode"),
        ("the streams keep their pace", "prefill does not interfere"),
    ),
    schedule=_schedule,
)
