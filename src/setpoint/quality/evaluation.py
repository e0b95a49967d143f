"""One evaluation from controls to record."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
import uvloop

import setpoint
from setpoint.client.client import Client
from setpoint.client.limits import PhaseTimeouts
from setpoint.errors import RecordError, SetpointError
from setpoint.metrics.quality import SuiteScore, judge_quality, score_suites
from setpoint.metrics.verdict import State, Verdict
from setpoint.quality.controls import Controls, demand_controls
from setpoint.quality.distributions import take
from setpoint.quality.questions import Keep, Questions, Sampling
from setpoint.quality.serving.check import Finding
from setpoint.quality.serving.registry import run_checks
from setpoint.quality.suite import Suite
from setpoint.records.environment import environment
from setpoint.records.meta import Series, target_facts
from setpoint.records.record import RunRecord
from setpoint.records.target import Target
from setpoint.records.writer import RunWriter
from setpoint.workload.card import Workload

PATIENCE = PhaseTimeouts(first_token_s=180.0, gap_s=120.0, total_s=900.0)
SERVING_SHARE = 0.4  # of a budget


@dataclass(frozen=True, slots=True)
class EvalSpec:
    """One evaluation to be made.

    Attributes:
        target: Where to ask.
        suites: What to ask; may be empty when only serving checks are wanted.
        sampling: How answers are drawn.
        engine: Facts about the engine for the pins.
        card: Its quality promises are judged; None judges nothing.
        serving: Run the serving checks too.
        distributions: Take token distributions too.
        series: What this run is a part of.
        timeouts: Phase limits.
        heard: Told how many of how many answers are done.
        note: Told a sentence now and then.
        keep: Given every answer; records hold none.
        budget_s: Bound on everything: the serving checks may take ``SERVING_SHARE`` of it, and as many tasks are
            asked, in random order, as the rest allows. None asks all.
    """

    target: Target
    suites: Sequence[Suite]
    sampling: Sampling = field(default_factory=Sampling)
    engine: Mapping[str, Any] = field(default_factory=dict)
    card: Workload | None = None
    serving: bool = False
    distributions: bool = False
    series: Series | None = None
    timeouts: PhaseTimeouts = PATIENCE
    heard: Callable[[int, int], None] = lambda _done, _all: None
    note: Callable[[str], None] = lambda _: None
    keep: Keep | None = None
    budget_s: float | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation came to.

    Attributes:
        record: The closed record.
        scores: One a suite.
        verdicts: One a quality promise of the card.
        findings: Of the serving checks.
    """

    record: RunRecord
    scores: tuple[SuiteScore, ...]
    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]


def evaluate(spec: EvalSpec, writer: RunWriter) -> Evaluation:
    """Makes one evaluation of an idle target and closes its record.

    Args:
        spec: The evaluation.
        writer: Of its record; closed when this returns or raises.

    Raises:
        SuiteError: the controls of a suite fail; nothing was asked.
        TargetError: the target cannot be reached.
    """
    try:
        controls = controls_of(spec.suites)
        writer.update(
            card={} if spec.card is None else spec.card.to_dict(),
            target=target_facts(spec.target),
            series=spec.series,
            environment=environment(),
            pins=dict(spec.engine)
            | {"model": spec.target.model, "dialect": spec.target.dialect.value, "load": "idle"}
            | {"client_version": setpoint.__version__}
            | pins_of(spec.suites, spec.sampling),
        )
        findings, notes = uvloop.run(_ask(spec, writer))
        rows = RunRecord(writer.path).quality()
        verdicts = judge_all(spec.card, rows)
        scores = tuple(score_suites(rows))
        record = writer.finish(
            quality=facts_of(controls, scores, findings),
            verdicts=[msgspec.to_builtins(v) for v in verdicts],
            notes=notes,
        )
    except BaseException as error:
        if not writer.closed:
            reason = str(error) if isinstance(error, SetpointError) else type(error).__name__
            with contextlib.suppress(RecordError):  # the first failure is the one to tell
                writer.abort("interrupted" if isinstance(error, KeyboardInterrupt) else reason)
        raise
    return Evaluation(record, scores, tuple(verdicts), tuple(findings))


def controls_of(suites: Sequence[Suite]) -> dict[str, Controls]:
    """The controls of each suite, by name.

    Raises:
        SuiteError: some fail.
    """
    return {suite.name: demand_controls(suite) for suite in suites}


def pins_of(suites: Sequence[Suite], sampling: Sampling) -> dict[str, Any]:
    """What must be equal for two evaluations to be comparable, the target apart."""
    drawn = asdict(sampling)
    concurrency = drawn.pop("concurrency")
    return {"suites": {s.name: s.digest for s in suites}, "sampling": drawn | {"concurrency": concurrency}}


def facts_of(
    controls: Mapping[str, Controls], scores: Sequence[SuiteScore], findings: Sequence[Finding] = ()
) -> dict[str, Any]:
    """What ``run.json`` says of an evaluation, beside the rows; a suite of another tool has no controls."""
    return {
        "suites": {
            s.suite: asdict(s)
            | {"coverage": s.coverage}
            | ({"controls": _plain(controls[s.suite])} if s.suite in controls else {})
            for s in scores
        },
        "serving": [msgspec.to_builtins(f) for f in findings],
    }


def sampled(suites: Sequence[Suite], rows: Any, sampling: Sampling) -> list[str]:  # noqa: ANN401 - a Polars frame
    """A sentence for each suite of which only a part was asked."""
    out = []
    for suite in suites:
        planned = len(suite.tasks) * sampling.epochs
        asked = rows.filter(rows["suite"] == suite.name).height
        if asked < planned:
            out.append(f"{asked} of {planned} answers to the suite {suite.name} were asked for, drawn at random.")
    return out


def judge_all(card: Workload | None, rows: Any) -> list[Verdict]:  # noqa: ANN401 - a Polars frame
    """The verdicts on the quality promises of a card."""
    promises = () if card is None else card.promises
    return [judge_quality(p, rows) for p in promises if p.metric == "quality"]


async def _ask(spec: EvalSpec, writer: RunWriter) -> tuple[list[Finding], list[str]]:
    client = Client(spec.target, timeouts=spec.timeouts, origin_s=time.monotonic())
    findings: list[Finding] = []
    notes: list[str] = []
    try:
        if spec.serving:
            share_s = None if spec.budget_s is None else spec.budget_s * (SERVING_SHARE if spec.suites else 1.0)
            findings = await run_checks(client, lambda f: spec.note(f"{f.name}: {f.state}, {f.reason}"), share_s)
        if spec.distributions:
            spec.note("taking token distributions, twice")
            missing = await take(client, writer.distributions)
            if missing is not None:
                notes.append(f"Token distributions were not taken: {missing}.")
                spec.note(notes[-1])
        if spec.suites:
            questions = Questions(spec.suites, spec.sampling, heard=spec.heard, keep=spec.keep)
            await questions.ask(client, writer.quality, until_s=spec.budget_s, sample=spec.budget_s is not None)
            notes += sampled(spec.suites, RunRecord(writer.path).quality(), spec.sampling)
    finally:
        await client.close()
    return findings, notes


def _plain(controls: Controls) -> dict[str, Any]:
    return asdict(controls) | {"faults": list(controls.faults)}


def overall(verdicts: Sequence[Verdict], findings: Sequence[Finding]) -> list[State]:
    """Every state that decides the exit code."""
    return [v.state for v in verdicts] + [f.state for f in findings]
