"""All hypotheses examined and ranked."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from setpoint.diagnosis.attribution import Attribution, attribute
from setpoint.diagnosis.budget import Budget, budget
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.hypotheses import HYPOTHESES
from setpoint.diagnosis.hypothesis import Conclusion, Finding, conclude
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.probes import PROBES
from setpoint.diagnosis.service_model import ServiceModel
from setpoint.records.record import RunRecord

SCHEMA_VERSION = 2  # 2: a line of the budget may be unmeasured, and says by what it was measured
FILE = "diagnosis.json"
_ORDER = (Conclusion.SUPPORTED, Conclusion.UNDECIDED, Conclusion.REFUTED)


@dataclass(frozen=True, slots=True)
class BrokenPromise:
    """A promise to be explained.

    Attributes:
        promise: In words.
        certain: Whether it is missed beyond the noise of the sample.
        reason: The verdict's sentence.
    """

    promise: str
    certain: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a diagnosis came to.

    Attributes:
        subject: Run that is explained.
        runs: All runs that it rests on.
        headline: In one sentence.
        broken: Promises to be explained.
        findings: All hypotheses: supported ones by their share, then undecided ones, then refuted ones.
        attribution: Of the subject's breaches.
        budget: Of the subject; None without an end-to-end promise.
        model: Of the target.
        schema_version: Of the JSON form.
    """

    subject: str
    runs: tuple[str, ...]
    headline: str
    broken: tuple[BrokenPromise, ...]
    findings: tuple[Finding, ...]
    attribution: tuple[Attribution, ...]
    budget: Budget | None
    model: ServiceModel
    schema_version: int = SCHEMA_VERSION

    @property
    def supported(self) -> tuple[Finding, ...]:
        """What is supported, the largest share first."""
        return tuple(f for f in self.findings if f.conclusion is Conclusion.SUPPORTED)

    @property
    def undecided(self) -> tuple[Finding, ...]:
        """What could not be decided."""
        return tuple(f for f in self.findings if f.conclusion is Conclusion.UNDECIDED)

    @property
    def main(self) -> Finding | None:
        """The main hypothesis: the first supported, else the first undecided; None when nothing is broken."""
        found = (*self.supported, *self.undecided)
        return found[0] if found else None

    @property
    def wanted(self) -> tuple[str, ...]:
        """Probes that would decide more, the most worth running first."""
        named = {name for f in self.undecided for name in f.probes}
        return tuple(name for name in PROBES if name in named)

    def to_dict(self) -> dict[str, Any]:
        """As JSON holds it."""
        built: dict[str, Any] = msgspec.to_builtins(self)
        return built


def diagnose(evidence: Evidence) -> Diagnosis:
    """Examines every hypothesis and ranks them."""
    findings = sorted((conclude(h, evidence) for h in HYPOTHESES.values()), key=_rank)
    broken = tuple(BrokenPromise(s.promise, s.certain, s.verdict.reason) for s in evidence.broken)
    return Diagnosis(
        subject=evidence.subject.run,
        runs=tuple(o.run for o in (evidence.subject, *evidence.others)),
        headline=_headline(broken, findings),
        broken=broken,
        findings=tuple(findings),
        attribution=attribute(evidence),
        budget=budget(evidence),
        model=evidence.model,
    )


def diagnose_records(subject: RunRecord, others: Sequence[RunRecord]) -> Diagnosis:
    """From records alone.

    Raises:
        RecordError: one of them cannot be read.
    """
    return diagnose(Evidence(Observation.from_record(subject), tuple(Observation.from_record(r) for r in others)))


def _rank(finding: Finding) -> tuple[int, float]:
    return _ORDER.index(finding.conclusion), -(finding.share.value if finding.share is not None else 0.0)


def _headline(broken: Sequence[BrokenPromise], findings: Sequence[Finding]) -> str:
    if not broken:
        return "No promise is broken in this run: there is no bottleneck to explain."
    named = ", ".join(b.promise for b in broken)
    doubt = "" if any(b.certain for b in broken) else " (not yet for certain)"
    supported = [f for f in findings if f.conclusion is Conclusion.SUPPORTED]
    if supported:
        causes = " and ".join(f"{f.title} ({f.reason})" for f in supported[:3])
        return f"{named} broken{doubt}: {causes}."
    open_ = [f.title for f in findings if f.conclusion is Conclusion.UNDECIDED]
    if open_:
        return f"{named} broken{doubt}: undecided between {', '.join(open_)}."
    return f"{named} broken{doubt}: every known hypothesis is refuted."
