"""Each breach of a promise to the part of its request that took the most."""

from collections import Counter
from dataclasses import dataclass

import numpy as np

from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.parts import Part
from setpoint.metrics.table import Floats

CAUSES: dict[Part, str] = {
    Part.CLIENT: "client",
    Part.CONNECT: "network",
    Part.NETWORK: "network",
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
        parts, values = _columns(evidence, symptom.metric)
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


def _columns(evidence: Evidence, metric: str) -> tuple[list[Part], Floats]:
    """Parts that a metric is made of, and their seconds, one column an exchange."""
    parts = evidence.parts
    first = [] if metric in OF_STREAM else list(parts.first)
    stream = [] if metric in OF_FIRST else [p for p in parts.gaps if p is not Part.UNKNOWN or p not in first]
    columns = [parts.first[p] for p in first] + [parts.of_stream(p) for p in stream]
    return [*first, *stream], np.stack(columns) if columns else np.zeros((0, len(evidence.subject.table)))
