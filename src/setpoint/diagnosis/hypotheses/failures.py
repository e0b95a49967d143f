"""The target fails requests instead of serving them."""

from setpoint.diagnosis.evidence import Evidence, Share
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.interval import Interval
from setpoint.metrics.proportion import wilson
from setpoint.units import format_share


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
    open_ = count - int(table.answered.sum())
    part = failed / open_ if open_ else 0.0
    low, high = wilson(part, max(open_, 1))
    return Examination(Share(Interval(part, low, high, open_), symptom, 0.0), (check,))


FAILURES = Hypothesis(
    name="failures",
    title="Failures",
    statement="The target refuses or fails requests; they are not served slowly.",
    metrics=("answered", "availability"),
    probes=("half_load",),
    refutation="The failures stop at half the load: then load is the cause.",
    examine=_examine,
)
