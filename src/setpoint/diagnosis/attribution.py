"""Each breach of a promise to the part of its request that took the most.

What a request costs alone (overhead, prefill, decode steps) is blamed only where that alone breaks the promise: else
the breach came with something else, however long the steps are beside it.
"""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.parts import Part
from setpoint.diagnosis.symptoms import Symptom
from setpoint.metrics.table import Floats, Ints

CAUSES: dict[Part, str] = {
    Part.CLIENT: "client",
    Part.CONNECT: "network",
    Part.NETWORK: "gateway or network",
    Part.OVERHEAD: "overhead",
    Part.PREFILL: "prefill",
    Part.CACHE_MISS: "cache miss",
    Part.CONTENTION: "prefill",
    Part.QUEUE: "queue",
    Part.SILENT: "silence",
    Part.REASONING: "reasoning",
    Part.STEP: "decode",
    Part.BATCH: "decode",
    Part.STALL_PREFILL: "decode stall",
    Part.STALL: "decode stall",
    Part.STALL_PREEMPTION: "preemption",
    Part.UNKNOWN: "unknown",
}
ALONE = (Part.OVERHEAD, Part.PREFILL, Part.STEP)
OF_FIRST = ("ttft",)
OF_STREAM = ("tpot", "itl")


@dataclass(frozen=True, slots=True)
class Attribution:
    """The breaches of one promise.

    Attributes:
        promise: In words.
        broken: Exchanges that break it.
        exchanges: All that were looked at: every one, or an even sample of a long run.
        causes: Breaches by cause, the most frequent first; a failed exchange is an error, whatever it waited for.
    """

    promise: str
    broken: int
    exchanges: int
    causes: tuple[tuple[str, int], ...]


def attribute(evidence: Evidence) -> tuple[Attribution, ...]:
    """One a promise that some exchange breaks."""
    good = evidence.subject.client.get("good", True)
    causes = CAUSES if good else CAUSES | {Part.CONNECT: "client"}  # late in one thing, late in the other
    out = []
    for symptom in evidence.symptoms:
        rows = np.flatnonzero(symptom.broken & evidence.parts.sampled)
        if not len(rows):
            continue
        parts, values = _columns(evidence, symptom)
        own = np.array([part in ALONE for part in parts])
        kept = values[own].sum(axis=0) <= _allowed_s(evidence, symptom)
        values = np.where(own[:, None] & kept[None, :], -1.0, values)
        failed = evidence.subject.table.failed
        counts: Counter[str] = Counter()
        for row in rows:
            if failed[row] or symptom.limit_s is None:
                counts["error"] += 1
            else:
                counts[causes[parts[int(np.argmax(values[:, row]))]]] += 1
        out.append(
            Attribution(symptom.promise, len(rows), int(evidence.parts.sampled.sum()), tuple(counts.most_common()))
        )
    return tuple(out)


def _columns(evidence: Evidence, symptom: Symptom) -> tuple[list[Part], Floats]:
    """Parts that a metric is made of, and their seconds, one column an exchange; of ITL, in the gaps that break it."""
    parts = evidence.parts
    first = [] if symptom.metric in OF_STREAM else list(parts.first)
    stream = [] if symptom.metric in OF_FIRST else [p for p in parts.gaps if p is not Part.UNKNOWN or p not in first]
    long = _long_gaps(evidence, symptom)
    count = len(evidence.subject.table)
    columns = [parts.first[p] for p in first]
    columns += [_sums(parts.gap_owner, parts.gaps[p] * long, count) for p in stream]
    return [*first, *stream], np.stack(columns) if columns else np.zeros((0, count))


def _sums(owner: Ints, values: Floats, count: int) -> Floats:
    return np.bincount(owner, weights=values, minlength=count).astype(np.float64)


def _allowed_s(evidence: Evidence, symptom: Symptom) -> Floats:
    """Seconds that the promise leaves each exchange for the parts of its metric."""
    table, limit_s = evidence.subject.table, symptom.limit_s or 0.0
    if symptom.metric == "tpot":
        return np.asarray(limit_s * np.maximum(table.output_tokens - 1, 0.0))
    if symptom.metric == "itl":
        return limit_s * _sums(evidence.parts.gap_owner, _long_gaps(evidence, symptom), len(table))
    return np.full(len(table), limit_s)


def _long_gaps(evidence: Evidence, symptom: Symptom) -> Floats:
    """1 for each gap that counts, else 0: of ITL those beyond the limit."""
    gaps = evidence.parts.gap_s
    if symptom.metric != "itl" or symptom.limit_s is None:
        return np.ones(len(gaps))
    return (gaps > symptom.limit_s).astype(np.float64)
