"""Content that repeats is computed again: the prefix cache is off, or defeated by routing or prompt layout."""

import numpy as np

from setpoint.diagnosis import signs
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypothesis import Check, Examination, Hypothesis
from setpoint.diagnosis.parts import Part, reusable_tokens
from setpoint.metrics.table import Floats
from setpoint.units import format_number, format_share

WORKS = 0.5  # a cache that serves, or saves, less than this share does not work


def _examine(e: Evidence) -> Examination:
    reusable = reusable_tokens(e.subject)
    possible = float(reusable.sum())
    if possible == 0:
        return Examination(None, (Check(False, "no prompt of the card repeats anything"),))
    saving, cost = e.model.cache_saving_s_per_token, e.model.prefill_s_per_token
    saved = None if saving is None or cost is None or cost.value <= 0 else saving.value / cost.value
    # Shared and unique prompts were sent in turn: what takes the CPU from the engine takes it from both.
    off = saved is not None and saving is not None and cost is not None and saving.high < WORKS * cost.value
    hit = _hit_share(e, reusable)
    mean = format_number(possible / len(reusable))
    if hit is not None:
        words = f"{format_share(hit)} of the {mean} repeated tokens a prompt come from the cache"
        checks = [Check(hit < WORKS, words, needed=True)]
    else:
        words = f"how many of the {mean} repeated tokens a prompt come from the cache: the target does not say"
        checks = [Check(True if off else None, words, needed=True)]
    if saved is None:
        checks.append(Check(None, "whether a prompt whose beginning was seen before costs less"))
    else:
        works = "the cache works alone: routing, layout or eviction defeats it"
        where = "there is no cache at work" if off else works if saved >= WORKS else "not enough pairs to tell a cache"
        checks.append(Check(True, f"alone, a repeated token saves {saved:.0%} of its prefill: {where}"))
    checks.append(signs.host_is_quick(e))
    if not off:
        checks.append(signs.gets_cpu(e))
    return Examination(e.share((Part.CACHE_MISS,), PREFIX_CACHE.metrics), tuple(checks))


def _hit_share(e: Evidence, reusable: Floats) -> float | None:
    """Share of the repeated tokens that the target took from its cache; None where it does not say."""
    cached = e.subject.table.cached_tokens
    told = ~np.isnan(cached)
    possible = float(reusable[told].sum())
    if possible:
        return float(np.minimum(cached[told], reusable[told]).sum()) / possible
    hits = e.subject.growth("prefix_cache_hits")
    return None if hits is None or told.any() else min(hits[0] / float(reusable.sum()), 1.0)


PREFIX_CACHE = Hypothesis(
    name="prefix_cache",
    title="Prefix cache missing or defeated",
    statement="Prompts repeat what was computed before, and it is computed again.",
    metrics=("ttft", "e2e"),
    probes=("prompt_ladder", "prefix_pair"),
    refutation="The target takes the repeated tokens from its cache already.",
    examine=_examine,
)
