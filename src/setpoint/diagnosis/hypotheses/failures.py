"""The target fails requests instead of serving them.

An answer that the end of a slot's context cuts is one of them: the evidence then names the setting that bounds it.
"""

import numpy as np

from setpoint.diagnosis.evidence import Evidence, Share
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.interval import Interval
from setpoint.metrics.proportion import wilson
from setpoint.units import format_share

AT_THE_END = 0.9  # of the context: templates and special tokens are not all counted
RAISED_BY = {
    "llamacpp": "a larger n_ctx (playbook: more_cache_memory) or a smaller n_parallel (playbook: fewer_slots)",
    "vllm": "a larger max-model-len",
    "sglang": "a larger context-length",
}


def _examine(e: Evidence) -> Examination:
    table = e.subject.table
    symptom = next(s for s in e.broken if s.metric in FAILURES.metrics)
    full, count = int(e.subject.cache_full.sum()), len(table)
    failed = int(table.failed.sum()) - full  # those have a cause of their own: KV pressure
    kinds = ", ".join(f"{n} {o}" for o, n in table.outcomes().items() if o not in ("complete", "length"))
    told = f", and {full} more because the KV cache was full" if full else ""
    check = Check(
        failed > 0,
        f"{format_share(failed / count)} of {count:,} requests failed ({kinds or 'none'}){told}",
        needed=True,
    )
    cut = _cut_short(e)
    open_ = count - int(table.answered.sum())
    part = failed / open_ if open_ else 0.0
    low, high = wilson(part, max(open_, 1))
    return Examination(Share(Interval(part, low, high, open_), symptom, 0.0), (check,) if cut is None else (check, cut))


def _cut_short(e: Evidence) -> Check | None:
    """Why answers were cut before the length asked for, and what gives them more room; None where none was."""
    o = e.subject
    if not o.cut_short.any():
        return None
    used = (o.prompt_tokens + o.table.output_tokens)[o.cut_short]
    low, high = (f"{x:,.0f}" for x in np.quantile(used, (0.0, 1.0)))
    span = low if low == high else f"{low} to {high}"
    seen = f"{int(o.cut_short.sum()):,} answers end with `length` at {span} tokens of prompt and answer together"
    if o.slot_tokens is None:
        return Check(None, f"the context that one request has, which likely cuts answers short: {seen}")
    room, setting = o.slot_tokens
    if used.max() < AT_THE_END * room:
        return Check(True, f"{seen}, far below its context of {room:,} ({setting}): the server caps answers itself")
    raise_it = RAISED_BY.get(str(o.pins.get("engine")), "a longer context")
    return Check(True, f"{seen}: the context of a slot ends there, {room:,} tokens ({setting}); more room: {raise_it}")


FAILURES = Hypothesis(
    name="failures",
    title="Failures",
    statement="The target refuses or fails requests; they are not served slowly.",
    metrics=("answered", "availability"),
    probes=("half_load",),
    refutation="The failures stop at half the load: then load is the cause.",
    examine=_examine,
)
