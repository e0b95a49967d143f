"""Quality of a target, idle or under the card's load: joins ``quality`` with ``load`` and ``engines``."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from setpoint.assess.bench import Bench
from setpoint.assess.target import OpenTarget
from setpoint.client.client import Client
from setpoint.errors import UsageError
from setpoint.load.runner import Outcome
from setpoint.metrics.quality import score_suites
from setpoint.quality.evaluation import PATIENCE, EvalSpec, Evaluation, controls_of, evaluate, facts_of, pins_of
from setpoint.quality.questions import Keep, Questions, Sampling
from setpoint.quality.suite import Suite, promised_suite
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.records.writer import RunWriter
from setpoint.workload.card import Workload


def suites_of(card: Workload, folder: Path) -> list[Suite]:
    """The suites that a card's quality promises name; ``core`` where one names none.

    Args:
        card: The card.
        folder: Where it lies: own suites are ``<name>.jsonl`` beside it.

    Raises:
        SuiteError: there is no such suite.
    """
    names = [p.suite or "core" for p in card.promises if p.metric == "quality"]
    return [promised_suite(name, folder) for name in dict.fromkeys(names)]


def evaluate_idle(
    opened: OpenTarget,
    store: RunStore,
    suites: Sequence[Suite],
    *,
    sampling: Sampling | None = None,
    card: Workload | None = None,
    serving: bool = False,
    distributions: bool = False,
    series: Series | None = None,
    heard: Callable[[int, int], None] = lambda _done, _all: None,
    note: Callable[[str], None] = lambda _: None,
    keep: Keep | None = None,
) -> Evaluation:
    """An evaluation of a target that serves nothing else."""
    spec = EvalSpec(
        target=opened.target,
        suites=suites,
        sampling=sampling or Sampling(),
        engine=opened.pins,
        card=card,
        serving=serving,
        distributions=distributions,
        series=series,
        heard=heard,
        note=note,
        keep=keep,
    )
    name = card.name if card is not None else "eval-" + "-".join(s.name for s in suites) if suites else "eval-serving"
    return evaluate(spec, store.create(name))


def evaluate_under_load(
    bench: Bench,
    suites: Sequence[Suite],
    *,
    sampling: Sampling | None = None,
    rate_per_s: float | None = None,
    users: int | None = None,
    duration_s: float | None = None,
    heard: Callable[[int, int], None] = lambda _done, _all: None,
    keep: Keep | None = None,
) -> Outcome:
    """One run of the card's load with the suite's questions beside it, in one record.

    The graded answers are those that were produced under the load; the load ends with the last of them, and questions
    that it did not last for are unmeasured.

    Raises:
        UsageError: there is nothing to ask.
    """
    if not suites:
        raise UsageError("There is no suite to ask under load.", fix="Name one with --suite.")
    controls = controls_of(suites)
    drawn = sampling or Sampling(concurrency=1)
    questions = Questions(suites, drawn, heard=heard, keep=keep)
    length_s = duration_s or bench.card.traffic.duration

    async def beside(origin_s: float, writer: RunWriter) -> None:
        client = Client(bench.opened.target, timeouts=PATIENCE, origin_s=origin_s)
        writer.update(pins=writer.meta.pins | pins_of(suites, drawn))
        try:
            await questions.ask(client, writer.quality, until_s=length_s, under_load=True)
        finally:
            await asyncio.shield(client.close())
            writer.update(quality=facts_of(controls, score_suites(RunRecord(writer.path).quality())))

    return bench.one(rate_per_s=rate_per_s, users=users, duration_s=duration_s, beside=beside)
