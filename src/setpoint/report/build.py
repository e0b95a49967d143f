"""Records into the content of a report."""

from collections.abc import Iterator, Sequence

from setpoint.diagnosis.diagnosis import Diagnosis
from setpoint.errors import UsageError
from setpoint.metrics.capacity import highest_met, lowest_missed, overall_state, undecided_between
from setpoint.metrics.quality import score_suites
from setpoint.metrics.verdict import State, Verdict
from setpoint.records.assessment import Stage
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.report import sections
from setpoint.report.content import LoadVerdicts, Point, RecordFacts, Report, VerdictRow
from setpoint.report.context import Context
from setpoint.report.experiments import experiment_words
from setpoint.report.hypothesis import diagnosis_of
from setpoint.report.quality import is_evaluation, quality_words
from setpoint.report.step import Step, in_order
from setpoint.units import format_duration, format_number, format_share

MOST_CAUSES = 2
UNSEEN = "not observed"


def build(records: Sequence[RunRecord], context: Context | None = None) -> Report:
    """The report on one run, or on the runs of a series.

    Args:
        records: The runs.
        context: What is known beside them; None is nothing.

    Raises:
        UsageError: no record, or records of different cards.
    """
    if not records:
        raise UsageError("There is no run to report on.")
    cards = {r.meta.card_name for r in records}
    if len(cards) > 1:
        raise UsageError(f"These runs are of different cards: {', '.join(sorted(cards))}.", fix="Report on one card.")
    records = sorted(records, key=lambda r: r.meta.created)  # as they were made: the same evidence in the same order
    probes = [r for r in records if r.meta.pins.get("probe") is not None]
    graded = [r for r in records if r.meta.quality is not None or is_evaluation(r)]
    plain = [r for r in records if r not in probes and r not in graded]
    loads = plain or [r for r in graded if not is_evaluation(r)]  # questions beside a load are a load of their own
    evaluations = [r for r in graded if r not in loads]
    steps = in_order(loads or evaluations, evaluations)
    if not steps:
        raise UsageError("These runs are probes of a diagnosis.", fix="Report on the run that they explain.")
    all_steps = [*steps, *(in_order(evaluations) if loads else []), *in_order(probes)]
    pivots = _pivots(steps)
    newest = max(records, key=lambda r: r.meta.created)
    target = newest.meta.target
    context, found = context or Context(), diagnosis_of(steps, probes)
    return Report(
        title=f"{newest.meta.card_name} on {target.get('model', 'an unknown model')}",
        created=newest.meta.created[:19].replace("T", " ") + " UTC",
        headline=" ".join(
            [*([_headline(steps)] if loads else []), *_quality(steps, evaluations), *_incomplete(all_steps)]
        ),
        state=_state(steps) if loads else steps[-1].state,
        verdicts=tuple(_load_verdicts(s) for s in pivots if loads or s.verdicts),
        points=tuple(_points(found, graded, context)) if loads else (),
        sections=sections.all_sections(steps, pivots, found, evaluations, context),
        records=tuple(_record_facts(s) for s in all_steps),
    )


def _points(found: Diagnosis, graded: Sequence[RunRecord], context: Context) -> Iterator[Point]:
    """The bottleneck with its evidence, quality, and what was tried or is to be tried."""
    yield Point("suspect", found.headline)
    for finding in found.supported[:MOST_CAUSES]:
        seen = [line for line in finding.evidence if not line.startswith(UNSEEN)]
        yield Point("evidence", f"{finding.title}: {'; '.join(seen)}")
    for words in quality_words(graded):
        yield Point("quality", words)
    for experiment in context.experiments[:1]:
        yield Point("tried", experiment_words(experiment))
    for part in context.assessment.parts if context.assessment is not None else ():
        if part.takes or part.stage is not Stage.DONE:
            takes = f" To say more: {part.takes.rstrip('.')}." if part.takes else ""
            yield Point("open", f"{part.name} {part.stage}: {part.words.rstrip('.')}.{takes}")


def _state(steps: Sequence[Step]) -> State:
    """Of the loads, and of quality promises, which hold at any load."""
    quality = {v.state for v in steps[-1].verdicts if v.metric == "quality"}
    found = overall_state(steps)
    if State.MISSED in quality:
        return State.MISSED
    return State.UNDECIDED if State.UNDECIDED in quality and found is State.MET else found


def _quality(steps: Sequence[Step], evaluations: Sequence[RunRecord]) -> list[str]:
    """One sentence a quality promise; scores where nothing was promised."""
    promised = [v for v in steps[-1].verdicts if v.metric == "quality"]
    if promised:
        return [
            f"{v.promise} is {v.state}." if v.state is not State.UNDECIDED else f"{v.promise} is undecided: {v.reason}."
            for v in promised
        ]
    scores: dict[str, list[float | None]] = {}
    for score in (s for r in evaluations for s in score_suites(r.quality())):
        scores.setdefault(score.suite, []).append(score.score)
    return [
        f"Suite {suite} scores {' and '.join(map(format_share, known))}, and nothing was promised."
        if (known := [s for s in found if s is not None])
        else f"Suite {suite} could not be measured."
        for suite, found in scores.items()
    ] or (["Nothing was graded; see the contracts of the server."] if evaluations else [])  # fmt: skip


def with_series(store: RunStore, records: list[RunRecord]) -> list[RunRecord]:
    """The records, and all others of the series that they belong to.

    But for an experiment's: its arms are different targets.
    """
    wanted = {r.meta.series.id for r in records if r.meta.series is not None and r.meta.series.kind != "experiment"}
    if not wanted:
        return records
    known = {r.id for r in records}
    more = [x for x in store.list() if x.series is not None and x.series.id in wanted and x.id not in known]
    return records + [store.open(x.path) for x in more]


def _pivots(steps: Sequence[Step]) -> list[Step]:
    """The runs that the answer rests on."""
    met, missed = highest_met(steps), lowest_missed(steps)
    found = [s for s in (met, missed) if s is not None]
    if found:
        return found
    return [max(steps, key=lambda s: s.summary.exchanges)]


def _headline(steps: Sequence[Step]) -> str:
    met, missed = highest_met(steps), lowest_missed(steps)
    if not any(s.verdicts for s in steps):
        return "The card promises nothing, so there is nothing to judge."
    if met is not None:
        per_s = met.summary.goodput.per_s
        goodput = f" (goodput {format_number(per_s)} requests/s)" if per_s is not None else ""
        answer = f"Serves {met.words} within every promise{goodput}"
        if missed is None:
            return f"{answer}; no higher load was missed for certain."
        return f"{answer}; at {missed.words} {_broken(missed)}.{_left_open(steps)}"
    if missed is not None:
        return f"Does not keep its promises at {missed.words}: {_broken(missed)}.{_left_open(steps)}"
    best = max(steps, key=lambda s: s.summary.exchanges)
    why = next((v for v in best.verdicts if v.state is State.UNDECIDED), None)
    reason = f"{why.promise}: {why.reason}" if why is not None else best.record.meta.reason or "nothing was measured"
    more = max((v.more_samples or 0 for v in best.verdicts), default=0)
    takes = f" About {more:,} more requests at this load would decide it." if more else ""
    return f"Undecided at {best.words}. {reason}.{takes}"


def _incomplete(steps: Sequence[Step]) -> list[str]:
    """What ended a run before its time, in its first line; the whole of it is with the records."""
    reasons = dict.fromkeys(str(s.record.meta.reason).splitlines()[0] for s in steps if s.record.meta.reason)
    return [f"Incomplete: {reason.rstrip('.')}." for reason in reasons]


def _left_open(steps: Sequence[Step]) -> str:
    between = undecided_between(steps)
    return f" Undecided at {', '.join(s.words for s in between)}." if between else ""


def _broken(step: Step) -> str:
    verdict = next(v for v in step.verdicts if v.state is State.MISSED)
    share = (
        ""
        if verdict.share is None
        else f" ({format_share(verdict.share)} within, {format_share(verdict.required)} promised)"
    )
    return f"{verdict.promise} is missed{share}"


def _load_verdicts(step: Step) -> LoadVerdicts:
    return LoadVerdicts(step.words, step.record.id, step.state, tuple(verdict_row(v) for v in step.verdicts))


def verdict_row(verdict: Verdict) -> VerdictRow:
    """A verdict as shown."""
    interval = (
        "unknown"
        if verdict.low is None or verdict.high is None
        else f"{format_share(verdict.low)} to {format_share(verdict.high)}"
    )
    effective = f"{verdict.effective_samples:,.0f} effective"
    return VerdictRow(
        promise=verdict.promise,
        state=verdict.state,
        share="unknown" if verdict.share is None else format_share(verdict.share),
        interval=interval,
        required=format_share(verdict.required),
        observed=_observed(verdict),
        samples=f"{verdict.samples:,} ({effective})",
        reason=verdict.reason,
    )


def _observed(verdict: Verdict) -> str:
    if verdict.limit is None:
        return "–"  # noqa: RUF001 - a dash: shares have no quantile
    return "n too small" if verdict.observed is None else format_duration(verdict.observed)


def _record_facts(step: Step) -> RecordFacts:
    meta = step.record.meta
    status = str(meta.status) if meta.reason is None else f"{meta.status}: {meta.reason}"
    return RecordFacts(
        id=step.record.id,
        path=str(step.record.path),
        load=step.words,
        status=status,
        reproduce=_reproduce(step),
        pins=dict(meta.pins),
    )


def _reproduce(step: Step) -> str:
    """The command that makes such a run again; the card is in run.json."""
    meta, schedule = step.record.meta, step.record.meta.schedule
    if meta.pins.get("probe") is not None:
        return f"setpoint diagnose {meta.target.get('base_url', 'URL')} --card {meta.card_name}.yaml"
    parts = ["setpoint bench", f"{meta.card_name}.yaml"]
    if is_evaluation(step.record):
        parts = ["setpoint eval", *([f"{meta.card_name}.yaml"] if meta.card else [])]
        parts += [f"--suite {name}" for name in meta.pins.get("suites", {})]
    engine = meta.pins.get("engine")
    if engine and meta.pins.get("engine_flags") is not None:
        parts.append(f"--engine {engine}")
        parts += [f"--flag {name}={value}" for name, value in dict(meta.pins["engine_flags"]).items()]
    else:
        parts.append(f"--url {meta.target.get('base_url', 'URL')}")
    if schedule is not None:
        label = str(meta.pins.get("load", ""))
        if schedule.concurrency is not None:
            parts.append(f"--concurrency {schedule.concurrency}")
        elif label.endswith("sessions/s"):
            parts.append(f"--rate {label.removesuffix(' sessions/s').replace(',', '')}/s")
        parts += [f"--duration {schedule.duration_s:.0f}s", f"--seed {schedule.seed}"]
    return " ".join(parts)
