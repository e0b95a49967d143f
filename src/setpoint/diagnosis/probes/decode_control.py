"""Streams alone, then the same streams beside long prompts."""

import numpy as np

from setpoint.diagnosis.interval import Interval, ratio
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.probe import Conditions, Probe, longest_prompt, middle_prompt
from setpoint.metrics.table import ExchangeTable, Floats, Mask
from setpoint.workload.card import Workload
from setpoint.workload.schedule import Schedule, Session, Turn

STREAMS = 3
PROMPTS = 3
LEAST_S = 2.0  # of streaming in each half
MOST_TOKENS = 256
FEWEST_GAPS = 4


def _schedule(card: Workload, conditions: Conditions) -> Schedule:
    wanted_s = max(LEAST_S, PROMPTS * conditions.wait_s)
    tokens = int(min(max(wanted_s / max(conditions.step_s, 1e-3), 16), MOST_TOKENS))
    half_s = 1.6 * conditions.answer_s(tokens) + 0.5
    short = max(middle_prompt(card) // 4, 16)
    streams = STREAMS if conditions.slots is None else max(min(STREAMS, conditions.slots - 1), 1)  # room for a prompt
    sessions: list[Session] = []
    for begin_s in (0.0, half_s):
        sessions += [Session(len(sessions) + i, begin_s, (Turn(short, tokens),)) for i in range(streams)]
    stream_s = conditions.step_s * tokens
    for number in range(PROMPTS):
        at_s = half_s + conditions.wait_s + stream_s * (number + 0.5) / (PROMPTS + 1)
        sessions.append(Session(len(sessions), round(at_s, 6), (Turn(longest_prompt(card), 1),)))
    length_s = 2 * half_s
    return Schedule(tuple(sessions), conditions.seed, len(sessions) / length_s, None, length_s)


def slowdown(observation: Observation) -> Interval | None:
    """Mean time of a stream's gaps beside long prompts, over that without.

    None when it was not observed: a half is missing, no long prompt was computed while the streams ran (it waited for
    one of their slots), or the first streams were not done before. Streams that the end of the probe cut short beside
    long prompts count with the gaps that they had: the slower they were, the fewer got to their end.
    """
    table = observation.table
    long = table.planned_output_tokens == 1
    sessions = np.unique(table.session[~long])
    first, second = (np.isin(table.session, half) for half in np.split(sessions, [(len(sessions) + 1) // 2]))
    alone, beside, computed = (
        _mean_gaps(table, first & table.answered),
        _mean_gaps(table, second),
        long & table.answered,
    )
    if not len(alone) or not len(beside) or not computed.any():
        return None
    if table.first_token_s[computed].min() >= np.nanmax(table.last_token_s[second]):
        return None
    if np.nanmax(table.last_token_s[first]) > np.nanmin(table.sent_s[long]):
        return None
    size = min(len(alone), len(beside))
    return ratio(beside[:size], alone[:size])


def _mean_gaps(table: ExchangeTable, chosen: Mask) -> Floats:
    """Mean gap of each of these streams that has enough of them."""
    rows = np.flatnonzero(chosen & (table.gaps >= FEWEST_GAPS))
    return np.array([table.gap_s[table.gap_at[r] : table.gap_at[r] + table.gaps[r]].mean(dtype=float) for r in rows])


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
