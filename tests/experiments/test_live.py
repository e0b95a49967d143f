"""Experiments on an engine that is really started: the fake one."""

import json
from pathlib import Path

import pytest
from tests.cli.command import answer, one_message, setpoint

from setpoint.cli import run
from setpoint.errors import UsageError
from setpoint.experiments.record import ExperimentStore
from setpoint.records.store import RunStore

CARD = """\
apiVersion: setpoint/v1
kind: Workload
name: quick
contract: {unit: answer, api: chat}
traffic:
  class: interactive
  arrivals: {process: poisson, rate: 24/s}
  prompt_tokens: 24
  output_tokens: 6
  duration: 2s
  warmup_requests: 1
promises:
  - p80 ttft <= 5 s
  - answered >= 80%
"""
SLOW = ("--engine", "fake", "--flag", "slots=1", "--flag", "decode_s=0.02")


pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "card.yaml").write_text(CARD, encoding="utf-8")
    return tmp_path


def test_a_search_screens_values_and_confirms_the_best_in_fresh_blocks(folder: Path) -> None:
    done = setpoint(
        folder, "experiment", "run", "card.yaml", *SLOW, "--change", "engine.slots=8,2", "--search", "--blocks", "1",
        "--duration", "1s", "--price-per-hour", "2", "--json",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr  # one block is undecided, however clear
    found = answer(done)["experiment"]
    assert set(found["screened"]) == {"as it is", "8", "2"}
    assert len(found["screened"]["as it is"]) == 2  # it lost both rounds and was dropped
    screening = [r for r in found["runs"] if r["block"] is None]
    confirming = [r for r in found["runs"] if r["block"] is not None]
    store = RunStore(folder / ".setpoint/runs")
    seeds = [{store.open(r["run"]).meta.pins["schedule_seed"] for r in runs} for runs in (screening, confirming)]
    assert not seeds[0] & seeds[1]

    assert found["analysis"]["judgement"] == "undecided"
    assert "of at least 5" in found["analysis"]["reason"]
    assert (found["before"], found["after"]) == ({"engine_flags.slots": "1"}, {"engine_flags.slots": "8"})
    runs = [store.open(r["run"]) for r in confirming]
    assert "".join(r["arm"] for r in confirming) in ("ABBA", "BAAB")
    assert len({r.meta.pins["schedule_digest"] for r in runs}) == 1
    assert {r.meta.series.id for r in runs if r.meta.series is not None} == {found["id"]}
    assert found["analysis"]["compared"][0]["change"] < -0.3  # eight slots instead of one under overload
    cost = next(b for b in found["beside"] if b["name"].startswith("cost"))
    assert cost["a"] > cost["b"] > 0

    shown = setpoint(folder, "experiment", "show")
    assert shown.returncode == 3, shown.stderr
    assert "engine_flags.slots: 1 → 8" in shown.stdout
    assert "A/A control" in shown.stdout
    report = setpoint(folder, "report", runs[0].id, "--json")
    assert report.returncode == 0, report.stderr
    assert len(answer(report)["records"]) == 1  # the other arm is another target


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--change", "slots=2"), "engine.FLAG=VALUE"),
        (("--change", "engine.slots=2", "--change", "engine.decode_s=0.1"), "One variable at a time"),
        (("--change", "engine.slots=2,4"), "--search"),
        (("--change", "engine.slots=2", "--change", "model=b", "--combined"), "A model is changed alone"),
        (("--change", "engine.slots=2", "--search"), "several values"),
        ((), "Give either --change"),
        (("--plan", "latest"), "no run in"),
        (("--change", "engine.slots=2", "--metric", "p42 speed"), "Choose one of"),
        (("--change", "engine.slots=2", "--budget", "20s"), "--budget"),
        (("--change", "engine.slots=2", "--rate", "2/s", "--concurrency", "2"), "open loop or closed loop"),
    ],
)
def test_mistakes_are_told_in_one_sentence_before_anything_runs(
    folder: Path, arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = folder / "runs"
    command = ["experiment", "run", str(folder / "card.yaml"), "--engine", "fake", "--runs", str(runs), *arguments]
    assert run(command) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert says in captured.err
    assert not runs.exists()


def test_a_damaged_or_unknown_experiment_is_told(folder: Path) -> None:
    store = ExperimentStore(folder / "experiments")
    with pytest.raises(UsageError, match="no experiment"):
        store.open("latest")
    path = store.path_of(store.new_id("card"))
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"id": 3}))
    done = setpoint(folder, "experiment", "show", "--runs", "runs")
    assert done.returncode == 4
    assert "is damaged" in one_message(done)


def test_a_plan_ranks_rows_for_a_recorded_run_and_its_top_row_can_be_run(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tight = CARD.replace("p80 ttft <= 5 s", "p80 ttft <= 20 ms")
    (folder / "card.yaml").write_text(tight, encoding="utf-8")
    bench = setpoint(folder, "bench", "card.yaml", *SLOW, "--duration", "1s", "--json")
    assert bench.returncode in (1, 3), bench.stderr
    done = setpoint(folder, "experiment", "plan", "latest", "--json")
    assert done.returncode == 0, done.stderr
    found = answer(done)
    assert any(p["change"] == "engine.slots=2" for p in found["proposals"])
    assert all(p["refuted_by"] for p in found["proposals"])
    assert run(["experiment", "plan", "latest", "--runs", str(folder / ".setpoint/runs")]) == 0
    assert "Would be refuted by: " in capsys.readouterr().out
    command = ["experiment", "run", str(folder / "card.yaml"), "--runs", str(folder / ".setpoint/runs")]
    assert run([*command, "--engine", "fake", "--plan", "latest", "--budget", "20s"]) == 2
    told = capsys.readouterr().err
    first = next(p for p in found["proposals"] if p["change"] is not None)
    assert told.startswith(f"{first['change']}: {first['title']}")
    assert "--budget allows" in told
