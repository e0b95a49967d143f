"""What to try for a diagnosis: rows of the playbook, ranked by the time that they are expected to save.

A row's expected gain is its relief (a share of its bottleneck's time) times the share that the bottleneck has in the
time of the requests that break a promise. Rows for supported bottlenecks come before rows for undecided ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.diagnosis.diagnosis import Diagnosis
from setpoint.diagnosis.hypothesis import Conclusion, Finding
from setpoint.diagnosis.service_model import ServiceModel
from setpoint.experiments.change import ENGINE, LAYOUT, Change, pinned_flag
from setpoint.experiments.playbook import UNDECIDED, Knob, Technique, playbook
from setpoint.records.pins import PROMPT_LAYOUT
from setpoint.units import format_duration

FACTORS = {"double": 2.0, "halve": 0.5}


@dataclass(frozen=True, slots=True)
class Proposal:
    """One row for one diagnosis.

    Attributes:
        name: Of the technique.
        title: Likewise.
        bottleneck: The hypothesis that it would relieve most.
        conclusion: What the diagnosis says of it.
        change: What ``--change`` takes; None where it is not one flag of this engine, or its value is not pinned.
        gain_share: Expected share of the time of the requests that break a promise.
        gain_s: The same in mean seconds a request; None where the diagnosis has no seconds.
        expected: In words.
        price: What may get worse, with the service model's figure where it has one.
        quality_check: What must be checked about the answers.
        backfires: Signs that it does harm.
        refuted_by: What would refute it.
        source: What the expectation rests on.
    """

    name: str
    title: str
    bottleneck: str
    conclusion: str
    change: str | None
    gain_share: float
    gain_s: float | None
    expected: str
    price: str
    quality_check: str
    backfires: tuple[str, ...]
    refuted_by: str
    source: str


def rank(found: Diagnosis, pins: Mapping[str, Any]) -> tuple[Proposal, ...]:
    """Rows of the playbook for a diagnosis, the largest expected gain first.

    Args:
        found: The diagnosis.
        pins: Of its subject: engine and flags.
    """
    findings = (*found.supported, *found.undecided) if found.broken else ()
    rows = []
    for technique in playbook():
        fitting = [_propose(technique, f, found.model, pins) for f in findings if f.name in technique.relief]
        if fitting:
            rows.append(max(fitting, key=_order))
    if not found.supported:
        rows += [_without_cause(t, pins) for t in playbook() if UNDECIDED in t.relief]
        rows.sort(key=lambda p: (p.bottleneck == UNDECIDED, *_order(p)), reverse=True)
        return tuple(rows)
    return tuple(sorted(rows, key=_order, reverse=True))


def _order(proposal: Proposal) -> tuple[bool, float]:
    return proposal.conclusion == Conclusion.SUPPORTED, proposal.gain_share


def _propose(technique: Technique, finding: Finding, model: ServiceModel, pins: Mapping[str, Any]) -> Proposal:
    relief, price = technique.relief[finding.name], technique.trade_off
    knob = technique.knobs.get(str(pins.get("engine")))
    change = _layout_change(technique, pins) if knob is None else change_for(knob, pins)
    if technique.formula == "slots" and change is not None:
        assert knob is not None
        before = _number(pinned_flag(pins, knob.flag))
        after = _number(change.value)
        if before and after:
            relief = slots_relief(finding.name, before, after, relief)
            price = _slots_price(model, before, after, price)
    share = 0.0 if finding.share is None else max(finding.share.value, 0.0)
    seconds = None if finding.seconds is None else relief * finding.seconds
    saved = (
        f"{relief * share:.0%} of the time of what breaks {finding.promise}" if finding.promise else technique.effect
    )
    if seconds is not None and finding.promise:
        saved += f" (about {format_duration(seconds)} a request)"
    return Proposal(
        name=technique.name,
        title=technique.title,
        bottleneck=finding.name,
        conclusion=str(finding.conclusion),
        change=None if change is None else str(change),
        gain_share=relief * share,
        gain_s=seconds,
        expected=f"{saved}: {technique.effect}" if finding.promise else technique.effect,
        price=price,
        quality_check=technique.quality_check,
        backfires=technique.backfires,
        refuted_by=f"{technique.refuted_by}. The bottleneck itself: {finding.refutation}",
        source=technique.source,
    )


def _without_cause(technique: Technique, pins: Mapping[str, Any]) -> Proposal:
    knob = technique.knobs.get(str(pins.get("engine")))
    change = _layout_change(technique, pins) if knob is None else change_for(knob, pins)
    return Proposal(
        name=technique.name,
        title=technique.title,
        bottleneck=UNDECIDED,
        conclusion=UNDECIDED,
        change=None if change is None else str(change),
        gain_share=technique.relief[UNDECIDED],
        gain_s=None,
        expected=technique.effect,
        price=technique.trade_off,
        quality_check=technique.quality_check,
        backfires=technique.backfires,
        refuted_by=technique.refuted_by,
        source=technique.source,
    )


def change_for(knob: Knob, pins: Mapping[str, Any]) -> Change | None:
    """The change that a knob means for a pinned engine; None where it needs a value that is not pinned."""
    factor = FACTORS.get(knob.value)
    if factor is None:
        return Change(ENGINE + knob.flag, knob.value) if pinned_flag(pins, knob.flag) != knob.value else None
    before = _number(pinned_flag(pins, knob.flag))
    if before is None:
        return None
    after = max(round(before * factor), 1)
    return None if after == before else Change(ENGINE + knob.flag, str(after))


def _layout_change(technique: Technique, pins: Mapping[str, Any]) -> Change | None:
    """The shared part to the front, where the pins say that it stands behind."""
    behind = str(pins.get(PROMPT_LAYOUT, "")).endswith("behind")
    return Change(LAYOUT, "front") if technique.change == LAYOUT and behind else None


def slots_relief(bottleneck: str, before: float, after: float, default: float) -> float:
    """Share of a bottleneck's time that another number of slots is expected to remove.

    A wait for a slot is proportional to 1 / slots while steps stay as fast; what company adds to a step is proportional
    to the other streams, slots - 1.
    """
    if bottleneck == "queueing" and after > before:
        return 1 - before / after
    if bottleneck == "batch" and after < before and before > 1:
        return 1 - (after - 1) / (before - 1)
    return default


def _slots_price(model: ServiceModel, before: float, after: float, words: str) -> str:
    if after <= before or model.step_s_per_stream is None:
        return words
    added = (after - before) * model.step_s_per_stream.value
    return f"{words}; by the service model up to {format_duration(added)} more a token when all slots are in use"


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
