"""Content that repeats is computed again: the prefix cache is off, or defeated by routing or prompt layout."""

import numpy as np

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part, reusable_tokens
from setpoint.units import format_number, format_share


def _examine(e: Evidence) -> Examination:
    reusable = reusable_tokens(e.subject)
    possible = float(reusable.sum())
    if possible == 0:
        return Examination(None, (Check(False, "no prompt of the card repeats anything"),))
    cached = e.subject.table.cached_tokens
    hit = float(np.minimum(np.nan_to_num(cached), reusable).sum()) / possible
    told = "" if not np.isnan(cached).all() else ", as far as the target says"
    mean = format_number(possible / len(reusable))
    checks = [
        Check(
            hit < 0.5,
            f"{format_share(hit)} of the {mean} repeated tokens a prompt come from the cache{told}",
            needed=True,
        )
    ]
    saving, cost = e.model.cache_saving_s_per_token, e.model.prefill_s_per_token
    if saving is None or cost is None:
        checks.append(Check(None, "whether a prompt whose beginning was seen before costs less"))
    else:
        share = saving.value / cost.value if cost.value > 0 else 0.0
        where = (
            "there is no cache at work"
            if share < 0.5
            else "the cache works alone: routing, layout or eviction defeats it"
        )
        checks.append(Check(True, f"alone, a repeated token saves {share:.0%} of its prefill: {where}"))
    checks += [signs.host_is_quick(e), signs.gets_cpu(e)]
    return Examination(e.share((Part.CACHE_MISS,), PREFIX_CACHE.metrics), tuple(checks))


PREFIX_CACHE = Hypothesis(
    name="prefix_cache",
    title="Prefix cache missing or defeated",
    statement="Prompts repeat what was computed before, and it is computed again.",
    metrics=("ttft", "e2e"),
    probes=("prompt_ladder", "prefix_pair"),
    refutation="The target takes the repeated tokens from its cache already.",
    examine=_examine,
)
