"""Quality of a target, idle or under the card's load: joins ``quality`` with ``load`` and ``engines``."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from setpoint.assess.bench import Bench
from setpoint.assess.target import OpenTarget
from setpoint.client.client import Client
from setpoint.client.limits import PhaseTimeouts
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

LEAST_PATIENCE_S = 30.0


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
    budget_s: float | None = None,
) -> Evaluation:
    """An evaluation of a target that serves nothing else; within a budget, of a random sample of the tasks."""
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
        budget_s=budget_s,
        timeouts=PATIENCE if budget_s is None else patience_within(budget_s),
    )
    name = card.name if card is not None else "eval-" + "-".join(s.name for s in suites) if suites else "eval-serving"
    return evaluate(spec, store.create(name))


def patience_within(budget_s: float) -> PhaseTimeouts:
    """How long one answer is waited for when all of them have a budget: an evaluation ends at most this much later."""
    longest_s = max(budget_s / 2, LEAST_PATIENCE_S)
    return PhaseTimeouts(
        first_token_s=min(longest_s, PATIENCE.first_token_s), gap_s=min(longest_s, PATIENCE.gap_s), total_s=longest_s
    )


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
    series: Series | None = None,
    sample: bool = False,
) -> Outcome:
    """One run of the card's load with the suite's questions beside it, in one record.

    The graded answers are those that were produced under the load; the load ends with the last of them, and questions
    that it did not last for are unmeasured, or with ``sample`` no part of the evaluation: what was asked is a random
    sample of the tasks.

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
        patience = patience_within(length_s) if sample else PATIENCE
        client = Client(bench.opened.target, timeouts=patience, origin_s=origin_s)
        writer.update(pins=writer.meta.pins | pins_of(suites, drawn))
        try:
            await questions.ask(client, writer.quality, until_s=length_s, under_load=True, sample=sample)
        finally:
            await asyncio.shield(client.close())
            rows = RunRecord(writer.path).quality()
            writer.update(quality=facts_of(controls, score_suites(rows)))

    return bench.one(rate_per_s=rate_per_s, users=users, duration_s=length_s, beside=beside, series=series)
