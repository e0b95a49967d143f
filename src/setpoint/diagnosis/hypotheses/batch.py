"""Batch contention: streams slow each other down."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part
from setpoint.units import format_duration


def _examine(e: Evidence) -> Examination:
    added, found = e.model.step_s_per_stream, signs.step_alone(e)
    if added is None:
        checks = [Check(None, "what a further stream adds to a decode step", needed=True)]
    else:
        words = f"each further stream adds {format_duration(added.value)} ({format_duration(added.low)} to {format_duration(added.high)}) to a step"
        checks = [Check(added.low > 0, words, needed=True)]
    if found is not None:
        step_s, limit_s = found
        checks.append(
            Check(
                step_s <= limit_s,
                f"one stream alone takes {format_duration(step_s)} a step, promised {format_duration(limit_s)}",
            )
        )
    checks += [signs.gets_cpu(e), signs.no_preemption(e)]
    return Examination(e.share((Part.BATCH,), BATCH.metrics), tuple(checks))


BATCH = Hypothesis(
    name="batch",
    title="Batch contention",
    statement="Streams share each step: with so many at once it takes longer than promised.",
    metrics=("tpot", "itl", "e2e"),
    probes=("output_ladder", "concurrency_ladder"),
    refutation="A wave of as many streams without prefills keeps the pace.",
    examine=_examine,
)
