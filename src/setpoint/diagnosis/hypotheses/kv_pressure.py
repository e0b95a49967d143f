"""KV pressure: the cache holds less than is admitted, and requests are preempted and computed again, or fail.

vLLM and SGLang preempt. llama.cpp does not: with a cache that its slots share, all running requests end with an error
when it is full; with one divided among them, each is refused, or cut short, at its own part.
"""

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence, Share
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.interval import Interval
from setpoint.diagnosis.parts import Part
from setpoint.metrics.proportion import wilson


def _examine(e: Evidence) -> Examination:
    symptom = next((s for s in e.broken if s.metric in ("answered", "availability")), None)
    full = e.subject.cache_full
    if symptom is not None and full.any():
        failed = int(e.subject.table.failed.sum())
        part = float(full.sum()) / failed
        low, high = wilson(part, failed)
        words = f"{int(full.sum())} of {failed} failed requests ended because the engine's KV cache was full"
        seconds = float((e.subject.table.done_s - e.subject.table.scheduled_s)[full].mean())
        share = Share(Interval(part, low, high, failed), symptom, seconds)
        return Examination(share, (Check(True, words, needed=True),))
    usage = e.subject.peak("kv_usage")
    peak = Check(
        None if usage is None else usage >= signs.KV_FULL,
        "KV usage is unknown" if usage is None else f"KV usage peaks at {usage:.0%}",
    )
    parts = (Part.STALL_PREEMPTION, Part.QUEUE)
    return Examination(
        e.share(parts, KV_PRESSURE.metrics), (signs.preempts(e), peak, signs.generates(e), signs.gets_cpu(e))
    )


KV_PRESSURE = Hypothesis(
    name="kv_pressure",
    title="KV pressure and preemption",
    statement="More is admitted than the KV cache holds: requests are preempted and computed again, or fail.",
    metrics=("ttft", "tpot", "itl", "e2e", "answered", "availability"),
    probes=("prompt_ladder", "output_ladder"),
    refutation="With fewer admitted at once the preemptions or failures stop and the symptom stays.",
    examine=_examine,
)
