"""The first experiment of an assessment: what is tried, why not, and what Ctrl-C leaves."""

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.load.conftest import make_card

from setpoint.assess import assessment, experiment
from setpoint.assess.arms import Arms
from setpoint.assess.assessment import Assessed, Assessment, _Work
from setpoint.assess.bench import Bench
from setpoint.assess.probe import Diagnosed, explain
from setpoint.assess.target import TargetOptions, open_target
from setpoint.experiments.analysis import Block
from setpoint.experiments.change import parse_changes
from setpoint.experiments.record import ExperimentStore
from setpoint.experiments.verdict import Judgement
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
SHORT = CARD.model_copy(update={"traffic": CARD.traffic.model_copy(update={"duration": 0.5})})
SLOW = TargetOptions(engine="fake", flags={"slots": "1", "decode_s": "0.01"})


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
    assert "--budget 10m or more" in part.takes
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


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake engine starts at once and answers within milliseconds: shorter runs say as much."""
    monkeypatch.setattr(assessment, "EXPERIMENT_S", 1.0)
    monkeypatch.setattr(experiment, "OVERHEAD_S", 1.0)
    monkeypatch.setattr(experiment, "LEAST_DURATION_S", 0.4)


@pytest.mark.usefixtures("quick")
@pytest.mark.timeout(240)
def test_a_budget_that_suffices_brings_a_verdict_of_five_blocks_into_assessment_and_report(
    missed: tuple[Assessed, Assessment, Diagnosed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the client is fit to judge on this machine is left out: a busy one would have blocks made again."""
    monkeypatch.setattr(experiment, "_doubt", lambda _: None)
    asked, found, diagnosed = missed
    enough = replace(asked, card=SHORT, budget_s=150.0)
    _Work(enough).try_first(found, diagnosed)
    part = found.record.parts[-1]
    record = found.experiment
    assert record is not None
    assert record.analysis is not None
    assert (record.status, record.blocks) == ("complete", 5)
    assert [sum(r.block == block for r in record.runs) for block in range(5)] == [4] * 5
    assert record.conclusion is not None
    assert part.words.startswith(f"engine.slots=2 (more requests at once): {record.conclusion.judgement}")
    if record.conclusion.judgement is Judgement.UNDECIDED:  # runs of one arm differ on a busy machine, and that is said
        assert "--blocks 12" in part.takes
    else:
        assert (record.conclusion.judgement, part.stage) == (Judgement.BETTER, Stage.DONE)
    kept = read_assessment(found.records[0].path)
    assert kept is not None
    assert (kept.experiment, kept.parts[-1]) == (record.id, part)
    context = context_of(asked.store.root, found.records)
    tables = {b.title: b for b in build(found.records, context).sections[3].blocks if isinstance(b, Table)}
    assert str(record.conclusion.judgement) in [cell.text for cell in tables["What was tried"].rows[0]]


@pytest.mark.parametrize(("budget_s", "wanted"), [(600.0, 6), (None, 5)])
def test_within_a_budget_a_block_that_is_left_out_is_made_again(
    budget_s: float | None, wanted: int, tmp_path: Path
) -> None:
    arms = Arms(
        card=SHORT, folder=".", options=SLOW, store=RunStore(tmp_path / "runs"),
        experiments=ExperimentStore(tmp_path / "experiments"), changes=parse_changes("engine.slots=2"),
        budget_s=budget_s,
    )  # fmt: skip
    work = experiment._Work(arms, search=False)
    assert work.wanted == 5
    work.blocks += [Block((), (), ()), Block((), (), ("sends were late",))]
    assert work.wanted == wanted


@pytest.mark.parametrize(
    ("overhead_s", "expected_s"), [(5.0, 5.0), (8.0, 4.0), (9.5, 5.0)], ids=["they fit", "shorter", "they never fit"]
)
def test_runs_get_shorter_where_each_takes_longer_beside_its_sends_than_was_thought(
    overhead_s: float, expected_s: float
) -> None:
    assert experiment.fitting_s(5.0, left_s=192.0, runs=16, overhead_s=overhead_s) == pytest.approx(expected_s)


@pytest.mark.usefixtures("quick")
def test_it_is_run_where_the_budget_allows_and_ctrl_c_leaves_it_readable(
    missed: tuple[Assessed, Assessment, Diagnosed],
) -> None:
    asked, found, diagnosed = missed
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
    assert context.experiments[0].id == record.id
    tables = [b for b in build(found.records, context).sections[3].blocks if isinstance(b, Table)]
    assert [t.title for t in tables] == ["What to try next", "What was tried"]
