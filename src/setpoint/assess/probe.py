"""Diagnosis of a live target: the card's own traffic, then the probes that can still decide something."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from setpoint.assess.bench import Bench
from setpoint.assess.target import OpenTarget
from setpoint.diagnosis.diagnosis import FILE, Diagnosis, diagnose
from setpoint.diagnosis.evidence import Evidence
from setpoint.diagnosis.observation import Observation
from setpoint.diagnosis.probe import Conditions, Probe
from setpoint.diagnosis.probes import PROBES
from setpoint.errors import EngineError, TargetError, UsageError
from setpoint.load.runner import Outcome, run
from setpoint.load.spec import LoadSpec
from setpoint.records.files import replace_bytes
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord
from setpoint.workload.card import Replay

SUBJECT_SHARE = 0.4  # of the budget
LEAST_SUBJECT_S = 5.0
LEAST_PATIENCE_S = 5.0


@dataclass(slots=True)
class Diagnosed:
    """What a diagnosis of a live target came to.

    Attributes:
        diagnosis: The verdicts.
        records: The subject first, then the probes.
        not_run: Probes that would decide more and were not run, with the reason.
        interrupted: Whether the user ended it.
    """

    diagnosis: Diagnosis
    records: list[RunRecord]
    not_run: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False


def diagnose_target(bench: Bench, *, budget_s: float, direct: OpenTarget | None = None) -> Diagnosed:
    """Runs the card's traffic, then probes until every hypothesis is decided or the budget is spent.

    Args:
        bench: Card, target and where records go.
        budget_s: Bound on all measurement.
        direct: The engine itself, where the bench's target is a gateway in front of it.

    Raises:
        UsageError: the card sends nothing.
        TargetError: the target does not answer.
    """
    deadline_s = time.monotonic() + budget_s
    series = f"diagnose-{secrets.token_hex(3)}"
    length_s = min(bench.card.traffic.duration, max(SUBJECT_SHARE * budget_s, LEAST_SUBJECT_S))
    outcome = bench.one(duration_s=length_s, series=Series(id=series, kind="diagnose", step=0))
    if outcome.interrupted:
        found = diagnose(Evidence(Observation.from_record(outcome.record)))
        save(found, outcome.record)
        return Diagnosed(found, [outcome.record], interrupted=True)
    left_s = deadline_s - time.monotonic()
    return explain(bench, outcome.record, (), budget_s=left_s, series=series, direct=direct)


def explain(
    bench: Bench,
    subject: RunRecord,
    others: Sequence[RunRecord],
    *,
    budget_s: float,
    series: str,
    load: float | None = None,
    direct: OpenTarget | None = None,
) -> Diagnosed:
    """Explains a run that was just made: probes until every hypothesis is decided or the budget is spent.

    Args:
        bench: Card, target and where records go.
        subject: The run; the diagnosis is kept beside it, also when the user ends it.
        others: Other runs against the same target, as evidence.
        budget_s: Bound on all probes.
        series: That the probes belong to.
        load: Of the subject: session starts a second, or users; the card's own unless given.
        direct: The engine itself, where the bench's target is a gateway in front of it.
    """
    deadline_s = time.monotonic() + budget_s
    records, runs = [subject, *others], [Observation.from_record(r) for r in (subject, *others)]
    conditions = conditions_of(bench, runs[0], load)
    out = Diagnosed(diagnose(Evidence(runs[0], tuple(runs[1:]))), records)
    tried: set[str] = set()
    try:
        while not out.interrupted:
            probe = _next(out, bench, conditions, tried, deadline_s - time.monotonic(), direct)
            if probe is None:
                break
            tried.add(probe.name)
            bench.note(f"probe: {probe.title.lower()}")
            place = Series(id=series, kind="diagnose", step=len(records))
            try:
                made = run_probe(bench, probe, conditions, place, direct)
            except (TargetError, EngineError) as error:
                out.not_run[probe.name] = error.message
                continue
            records.append(made.record)
            runs.append(Observation.from_record(made.record))
            out.interrupted = made.interrupted
            out.diagnosis = diagnose(Evidence(runs[0], tuple(runs[1:])))
            bench.note(out.diagnosis.headline)
    except KeyboardInterrupt:
        out.interrupted = True
    save(out.diagnosis, subject)
    return out


def save(diagnosis: Diagnosis, subject: RunRecord) -> None:
    """Keeps verdicts and service model beside the run that they are about.

    Raises:
        RecordError: the file system refused.
    """
    replace_bytes(subject.path / FILE, msgspec.json.format(msgspec.json.encode(diagnosis.to_dict()), indent=2) + b"\n")


def _next(
    out: Diagnosed,
    bench: Bench,
    conditions: Conditions,
    tried: set[str],
    left_s: float,
    direct: OpenTarget | None,
) -> Probe | None:
    """The next probe worth running; notes why the others are not."""
    wanted = out.diagnosis.wanted
    if direct is not None and out.diagnosis.broken:  # whoever names the engine's own address wants the two compared
        asked = (*wanted, "prompt_ladder", "direct")
        ran = {r.meta.pins.get("probe") for r in out.records}
        wanted = tuple(name for name in PROBES if name in asked and name not in ran)
    if any(f.name == "wedged" for f in out.diagnosis.supported) and not _alive(out.records):
        wanted = ("canary",)  # an engine that is still wedged answers no other
    for name in wanted:
        if name in tried:
            continue
        probe = PROBES[name]
        if probe.direct and direct is None:
            out.not_run[name] = "the engine's own address is not known (--direct URL)"
        elif probe.restarts and bench.opened.restart is None:
            out.not_run[name] = "unsupported: the engine was not started here, and is not ours to restart"
        elif (cost_s := probe.cost_s(bench.card, conditions)) > left_s:
            out.not_run[name] = f"it takes about {cost_s:.0f} s, and {max(left_s, 0):.0f} s are left of the budget"
        else:
            out.not_run.pop(name, None)
            return probe
    return None


def _alive(records: list[RunRecord]) -> bool:
    """Whether a canary was sent and answered: an engine that stood still for a while can be probed further."""
    canaries = [r for r in records if r.meta.pins.get("probe") == "canary"]
    return any(Observation.from_record(r).table.answered.any() for r in canaries)


def run_probe(
    bench: Bench, probe: Probe, conditions: Conditions, series: Series, direct: OpenTarget | None = None
) -> Outcome:
    """One probe as a run of its own.

    Raises:
        TargetError: the target does not answer.
        EngineError: it was restarted and did not come back.
        UsageError: the probe needs a restart, or the engine's own address, and there is none.
    """
    opened = bench.opened
    if probe.direct:
        if direct is None:
            raise UsageError("The engine's own address is not known.", fix="Give --direct URL.")
        opened = direct
    if probe.restarts:
        if opened.restart is None:
            raise UsageError("The engine was not started here.", fix="Let Setpoint start it.")
        opened.restart()
    schedule = probe.schedule(bench.card, conditions)
    longest = max(t.output_tokens for s in schedule.sessions for t in s.turns)
    spec = LoadSpec(
        card=bench.card.model_copy(update={"promises": ()}),  # nothing is promised under a probe
        schedule=schedule,
        target=opened.target,
        label=f"probe {probe.name}",
        engine={**opened.pins, "probe": probe.name},
        warmup_requests=probe.warmup_requests,
        workers=1,
        timeouts=bench.timeouts,
        drain_s=probe.deadline_s or max(LEAST_PATIENCE_S, 4 * conditions.answer_s(longest)),
        series=series,
        alive=opened.alive,
    )
    writer = bench.store.create(bench.card.name)
    return run(spec, writer, listen=bench.listen, sampler=opened.sampler)


def conditions_of(bench: Bench, subject: Observation, load: float | None = None) -> Conditions:
    """Planned from the fastest of what was seen: a probe meets less company than the subject did."""
    waits = subject.wait_s[~np.isnan(subject.wait_s)]
    gaps = subject.table.gap_s
    arrivals = bench.card.traffic.arrivals
    own = load or bench.own_load
    rate = None if bench.closed else subject.rate_per_s if isinstance(arrivals, Replay) and load is None else own
    return Conditions(
        wait_s=float(np.quantile(waits, 0.25)) if len(waits) else 1.0,
        step_s=float(np.quantile(gaps, 0.5)) if len(gaps) else 0.05,
        rate_per_s=rate,
        users=int(own) if bench.closed else None,
        streams=int(subject.in_flight.at(subject.table.scheduled_s).max(initial=0)) + 1,
        slots=subject.slots,
        seed=bench.seed,
        folder=bench.folder,
    )
