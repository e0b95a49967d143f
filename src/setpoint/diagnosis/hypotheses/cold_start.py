"""Cold start: the first requests pay for what later ones find ready."""

import numpy as np

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part
from setpoint.units import format_duration


def _examine(e: Evidence) -> Examination:
    early = signs.late_ones_are_early(e)
    checks = [Check(early, "late requests lie at the beginning of the run and then cease", needed=True)]
    repeat = e.probe("repeat")
    if repeat is not None:
        waits_s = repeat.wait_s[~np.isnan(repeat.wait_s)]
        if len(waits_s) >= 3:
            first, later = float(waits_s[0]), float(np.median(waits_s[2:]))
            checks.append(
                Check(
                    True,
                    f"after a restart the first identical request waits {format_duration(first)}, later ones {format_duration(later)}",
                )
            )
    waiting = signs.waits(e)
    checks.append(Check(None if waiting.holds is None else not waiting.holds, waiting.words))
    checks += [signs.generates(e), signs.gets_cpu(e)]
    return Examination(e.share((Part.QUEUE,), COLD_START.metrics), tuple(checks))


COLD_START = Hypothesis(
    name="cold_start",
    title="Cold start",
    statement="Requests soon after a start are slow: weights, compilation, graphs or caches are not warm yet.",
    metrics=("ttft", "e2e"),
    probes=("prompt_ladder", "repeat"),
    refutation="The second identical request after a restart is as slow as the first.",
    examine=_examine,
)
