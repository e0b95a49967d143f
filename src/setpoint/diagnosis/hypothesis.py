"""What a hypothesis is, and how its examination becomes a verdict.

A hypothesis is supported when every check it needs holds and its share of the broken exchanges' time is material, with
the lower end of its interval; refuted when a check fails or the upper end is not material; else undecided, and it
names the probes that would decide.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from setpoint.diagnosis.evidence import Evidence, Share
from setpoint.diagnosis.interval import Interval
from setpoint.diagnosis.parts import Part
from setpoint.units import format_share

MATERIAL = 0.2  # of the time of the exchanges that break a promise: less, and its removal would be hard to see


BUSY_CLIENT = 0.8  # of a core: above, it reads answers late


class Conclusion(StrEnum):
    """What can be said about a hypothesis."""

    SUPPORTED = "supported"
    UNDECIDED = "undecided"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Check:
    """One condition that must hold if the hypothesis is true.

    Attributes:
        holds: None when it was not observed.
        words: The condition with its numbers.
        needed: Whether nothing can be supported while it is unobserved.
        spoils: Whether its failure makes the measurement unfit to judge, rather than the hypothesis false.
    """

    holds: bool | None
    words: str
    needed: bool = False
    spoils: bool = False


@dataclass(frozen=True, slots=True)
class Examination:
    """What the evidence says about one hypothesis.

    Attributes:
        share: Of the broken exchanges' time; None when it cannot be told.
        checks: Conditions.
        least: Exchanges that the share must rest on: the interval of one has no width. A state that the engine as a
            whole is seen in needs no more than one.
    """

    share: Share | None
    checks: tuple[Check, ...]
    least: int = 2


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A suspected bottleneck.

    Attributes:
        name: As in records, e.g. ``queueing``.
        title: As printed.
        statement: What is the case if it is true.
        metrics: Promises that it can break.
        probes: Those that can refute it, the most telling first.
        refutation: What would refute it, in one sentence.
        examine: Its reading of the evidence.
    """

    name: str
    title: str
    statement: str
    metrics: tuple[str, ...]
    probes: tuple[str, ...]
    refutation: str
    examine: Callable[[Evidence], Examination]


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict.

    Attributes:
        name: Of the hypothesis.
        title: Likewise.
        statement: Likewise.
        refutation: Likewise.
        conclusion: Supported, refuted or undecided.
        reason: Why, in one sentence.
        share: Of the broken exchanges' time; None when it cannot be told.
        seconds: The same in mean seconds.
        promise: The broken promise that it explains; None when it explains none.
        evidence: Its checks in words.
        probes: Probes that were not run and would decide.
    """

    name: str
    title: str
    statement: str
    refutation: str
    conclusion: Conclusion
    reason: str
    share: Interval | None
    seconds: float | None
    promise: str | None
    evidence: tuple[str, ...]
    probes: tuple[str, ...]


def conclude(hypothesis: Hypothesis, evidence: Evidence) -> Finding:
    """Examines one hypothesis."""
    concerned = [s for s in evidence.broken if s.metric in hypothesis.metrics]
    if not concerned:
        kept = ", ".join(s.promise for s in evidence.symptoms if s.metric in hypothesis.metrics)
        why = f"it could only break promises that are kept here: {kept}" if kept else "no promise that it could break"
        return _finding(hypothesis, Examination(None, ()), Conclusion.REFUTED, why, ())
    seen = hypothesis.examine(evidence)
    missing = tuple(name for name in hypothesis.probes if evidence.probe(name) is None)
    conclusion, why = _weigh(seen)
    doubt = client_doubt(evidence)
    if doubt is not None and conclusion is Conclusion.SUPPORTED and hypothesis.name != "client":
        why = f"the client may have been the cause: {doubt}"
        return _finding(hypothesis, seen, Conclusion.UNDECIDED, why, ())
    return _finding(hypothesis, seen, conclusion, why, missing if conclusion is Conclusion.UNDECIDED else ())


def client_doubt(evidence: Evidence) -> str | None:
    """Why nobody else may be accused; None when the client is above suspicion.

    A certificate that is not good makes verdicts near a limit undecided. An explanation asks how much of the broken
    exchanges' time the client itself took: its lag is measured for each of them; its floor and its CPU bound the rest.
    """
    client = evidence.subject.client
    if not client or client.get("good", True):
        return None
    own = evidence.share((Part.CLIENT, Part.CONNECT), ("ttft", "e2e"))
    floor = client.get("floor") or {}
    delay_s = float(floor.get("ttft_p99_s") or 0.0)
    limits = [s.limit_s for s in evidence.broken if s.limit_s is not None and s.metric in ("ttft", "e2e")]
    busy = float(client.get("cpu_share", 0.0)) > BUSY_CLIENT
    slow = bool(limits) and delay_s > MATERIAL * min(limits)
    late = own is not None and own.interval.high >= MATERIAL / 2
    return "; ".join(str(r) for r in client.get("reasons", ())) if busy or slow or late else None


def _weigh(seen: Examination) -> tuple[Conclusion, str]:
    failed = next((c for c in seen.checks if c.holds is False and not c.spoils), None)
    if failed is not None:
        return Conclusion.REFUTED, failed.words
    share = seen.share
    alone = share is not None and share.interval.samples < seen.least
    if share is not None and share.interval.high < MATERIAL and not alone:
        return (
            Conclusion.REFUTED,
            f"it takes {_percent(share.interval)} of the time of what breaks {share.symptom.promise}",
        )
    unknown = next((c for c in seen.checks if c.holds is None and c.needed), None)
    if unknown is not None:
        return Conclusion.UNDECIDED, f"not known: {unknown.words}"
    if share is None:
        return Conclusion.UNDECIDED, "its share of the time cannot be told from these runs"
    words = f"it takes {_percent(share.interval)} of the time of what breaks {share.symptom.promise}"
    spoilt = next((c for c in seen.checks if c.holds is False and c.spoils), None)
    if spoilt is not None:
        return Conclusion.UNDECIDED, f"cannot be judged: {spoilt.words}"
    if alone:
        return Conclusion.UNDECIDED, f"{words}: one exchange says nothing about the next"
    if share.interval.low >= MATERIAL:
        return Conclusion.SUPPORTED, words
    return Conclusion.UNDECIDED, f"{words}; at least {format_share(MATERIAL)} would be material"


def _percent(share: Interval) -> str:
    return f"{share.value:.0%} (95% interval {share.low:.0%} to {share.high:.0%}, {share.samples:,} exchanges)"


def _finding(
    hypothesis: Hypothesis, seen: Examination, conclusion: Conclusion, why: str, probes: tuple[str, ...]
) -> Finding:
    return Finding(
        name=hypothesis.name,
        title=hypothesis.title,
        statement=hypothesis.statement,
        refutation=hypothesis.refutation,
        conclusion=conclusion,
        reason=why,
        share=None if seen.share is None else seen.share.interval,
        seconds=None if seen.share is None else seen.share.seconds,
        promise=None if seen.share is None else seen.share.symptom.promise,
        evidence=tuple(f"{_MARK[c.holds]} {c.words}" for c in seen.checks),
        probes=probes,
    )


_MARK = {True: "holds:", False: "does not hold:", None: "not observed:"}
