"""Host or tokenizer bound: the front end computes while the GPU waits."""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence, Share
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.interval import Interval
from setpoint.diagnosis.parts import Part
from setpoint.units import format_share


def _examine(e: Evidence) -> Examination:
    found = signs.host_share(e)
    if found is None:
        words = (
            "CPU time says nothing, because this engine computes on the CPU, and no clock of its own clears its host side"
            if e.subject.computes_on_cpu
            else "the host's CPU time of lone requests beside the GPU's activity"
        )
        return Examination(
            e.share((Part.PREFILL, Part.OVERHEAD, Part.CONTENTION, Part.QUEUE), HOST.metrics),
            (Check(None, words, needed=True),),
        )
    words = f"the host computes for at most {format_share(found)} of the time of lone requests"
    checks = (
        Check(found >= signs.BUSY_CORE / 2, words if found < signs.BUSY_CORE / 2 else f"{words}, and the GPU idles", needed=True),
        signs.gets_cpu(e), signs.generates(e),
    )  # fmt: skip
    step = e.share(
        (Part.PREFILL, Part.CACHE_MISS, Part.OVERHEAD, Part.CONNECT, Part.NETWORK, Part.CONTENTION, Part.QUEUE),
        HOST.metrics,
    )
    if step is None:
        return Examination(None, checks)
    part = step.interval
    share = Interval(part.value * found, part.low * found, part.high * found, part.samples)
    return Examination(Share(share, step.symptom, step.seconds * found), checks)


HOST = Hypothesis(
    name="host",
    title="Host or tokenizer",
    statement="The engine's host side (tokenizer, front end, scheduler) computes while the GPU waits for it.",
    metrics=("ttft", "e2e"),
    probes=("prompt_ladder",),
    refutation="A second front-end process leaves the time to first token as it is.",
    examine=_examine,
)
