"""Cold start: the first requests pay for what later ones find ready."""

import numpy as np

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import MATERIAL, Check, Examination, Hypothesis
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.parts import Part
from setpoint.units import format_duration


def _examine(e: Evidence) -> Examination:
    early = signs.late_ones_are_early(e)
    checks = [Check(early, "late requests lie at the beginning of the run and then cease", needed=True)]
    repeat = e.probe("repeat")
    found = None if repeat is None else _excess(e, repeat)
    if found is not None:
        first_s, expected_s = found
        words = (
            f"after a restart the first request waits {format_duration(first_s)}, "
            f"{format_duration(expected_s)} when all is warm"
        )
        checks.append(Check(first_s - expected_s >= MATERIAL * first_s, words))
    waiting = signs.waits(e)
    checks.append(Check(None if waiting.holds is None else not waiting.holds, waiting.words))
    checks += [signs.generates(e), signs.gets_cpu(e)]
    return Examination(e.share((Part.QUEUE,), COLD_START.metrics), tuple(checks))


def _excess(e: Evidence, repeat: Observation) -> tuple[float, float] | None:
    """The first wait after the restart, and what the same prompt costs alone and warm; None when not known.

    Not against the second identical request: that one also finds the prompt in the prefix cache.
    """
    if not len(repeat.table) or np.isnan(repeat.wait_s[0]):
        return None
    expected = e.model.wait_s(repeat.uncached_tokens)
    return None if expected is None else (float(repeat.wait_s[0]), float(expected[0]))


COLD_START = Hypothesis(
    name="cold_start",
    title="Cold start",
    statement="Requests soon after a start are slow: weights, compilation, graphs or caches are not warm yet.",
    metrics=("ttft", "e2e"),
    probes=("prompt_ladder", "repeat"),
    refutation="The first request after a restart is as quick as the same one later, the prefix cache left out.",
    examine=_examine,
)
