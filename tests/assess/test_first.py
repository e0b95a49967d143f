"""The first experiment of an assessment: what is tried, why not, and what Ctrl-C leaves."""

import os
import signal

import pytest
from tests.load.conftest import make_card

from setpoint.assess import assessment, experiment
from setpoint.assess.assessment import Assessed, Assessment, _Work
from setpoint.assess.bench import Bench
from setpoint.assess.probe import Diagnosed, explain
from setpoint.assess.target import TargetOptions, open_target
from setpoint.experiments.record import ExperimentStore
from setpoint.load.progress import Phase, Progress
from setpoint.load.runner import Outcome
from setpoint.load.search import Search, Step
from setpoint.records.assessment import AssessmentRecord, Stage, read_assessment
from setpoint.records.store import RunStore
from setpoint.report.build import build
from setpoint.report.content import Table
from setpoint.report.context import context_of

CARD = make_card(
    arrivals={"process": "poisson", "rate": "30/s"}, duration="2s", prompt_tokens=24, output_tokens=6,
    warmup_requests=1, promises=["p80 ttft <= 60 ms"],
)  # fmt: skip
SLOW = TargetOptions(engine="fake", flags={"slots": "1", "decode_s": "0.02"})


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Assessed, Outcome, Diagnosed]:
    """One load that one slot cannot serve, and its diagnosis without probes."""
    folder = tmp_path_factory.mktemp("first")
    store = RunStore(folder / "runs")
    asked = Assessed(CARD, folder, SLOW, store, ExperimentStore(folder / "experiments"), budget_s=60.0)
    with open_target(CARD, SLOW) as opened:
        bench = Bench(card=CARD, folder=str(folder), opened=opened, store=store)
        outcome = bench.one(rate_per_s=30.0)
        return asked, outcome, explain(bench, outcome.record, (), budget_s=0.0, series="s", load=30.0)


@pytest.fixture
def missed(measured: tuple[Assessed, Outcome, Diagnosed]) -> tuple[Assessed, Assessment, Diagnosed]:
    """A search that tried this load alone."""
    asked, outcome, diagnosed = measured
    step = Step(30.0, outcome, None, 5.0, long=True)
    search = Search("s", (step,), "sessions/s", None, step, finished=True, advice="", interrupted=False)
    return asked, Assessment(search, [outcome.record], AssessmentRecord(series="s", budget_s=60.0)), diagnosed


def test_a_budget_that_is_too_small_names_the_change_and_what_it_takes(
    missed: tuple[Assessed, Assessment, Diagnosed],
) -> None:
    asked, found, diagnosed = missed
    _Work(asked).try_first(found, diagnosed)
    part = found.record.parts[-1]
    assert part.stage is Stage.NOT_RUN
    assert "engine.slots=2" in part.words
    assert "about 4 min" in part.takes
    assert f"--plan {found.records[0].id}" in part.takes
    assert read_assessment(found.records[0].path) == found.record


def test_an_engine_reached_by_url_is_not_changed_from_here(missed: tuple[Assessed, Assessment, Diagnosed]) -> None:
    asked, found, diagnosed = missed
    remote = Assessed(
        asked.card,
        asked.folder,
        TargetOptions(url="http://127.0.0.1:9"),
        asked.store,
        asked.experiments,
        budget_s=900.0,
    )
    _Work(remote).try_first(found, diagnosed)
    part = found.record.parts[-1]
    assert (part.stage, "engine.slots=2" in part.words) == (Stage.NOT_RUN, True)
    assert "cannot be changed from here" in part.takes


def test_it_is_run_where_the_budget_allows_and_ctrl_c_leaves_it_readable(
    missed: tuple[Assessed, Assessment, Diagnosed], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, found, diagnosed = missed
    monkeypatch.setattr(assessment, "EXPERIMENT_S", 1.0)
    monkeypatch.setattr(experiment, "OVERHEAD_S", 1.0)
    monkeypatch.setattr(experiment, "LEAST_DURATION_S", 0.5)
    runs = len(asked.store.ids())

    def press(moment: Progress) -> None:
        if moment.phase is Phase.MEASURE and len(asked.store.ids()) == runs + 2:
            os.kill(os.getpid(), signal.SIGINT)

    listening = Assessed(asked.card, asked.folder, SLOW, asked.store, asked.experiments, budget_s=60.0, listen=press)
    _Work(listening).try_first(found, diagnosed)
    assert found.interrupted
    part = found.record.parts[-1]
    assert part.stage is Stage.INTERRUPTED
    assert found.experiment is not None
    record = asked.experiments.open(found.experiment.id)
    assert (record.status, record.reason, record.changes) == ("incomplete", "interrupted", ["engine.slots=2"])
    assert record.load == "30.0 sessions/s"
    assert len(record.runs) == 2
    context = context_of(asked.store.root, found.records)
    assert [e.id for e in context.experiments] == [record.id]
    tables = [b for b in build(found.records, context).sections[3].blocks if isinstance(b, Table)]
    assert [t.title for t in tables] == ["What to try next", "What was tried"]
