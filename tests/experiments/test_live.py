"""Experiments on an engine that is really started: the fake one."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.command import answer, one_message, setpoint
from tests.quality.suites import suite_text

from setpoint.cli import run
from setpoint.errors import UsageError
from setpoint.experiments.record import ExperimentStore
from setpoint.records.store import RunStore
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script

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
        (("--change", "card.traffic.prefix.position=front"), "no shared part to move"),
        (("--change", "engine.slots=2", "--quality-idle"), "go with --quality"),
        (("--change", "engine.slots=2", "--quality", "cora"), "There is no suite"),
        (("--change", "engine.slots=2", "--resume", "latest"), "is no experiment"),
        (("--change", "engine.slots=2,4", "--search", "--resume", "latest"), "A search is not resumed"),
        (("--change", "engine.slots=2", "--base-url", "http://127.0.0.1:9"), "go with --candidate-url"),
        (("--candidate-url", "http://127.0.0.1:9"), "needs --base-url and --variable"),
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
    tight = CARD.replace("p80 ttft <= 5 s", "p80 ttft <= 500 ms")
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


@pytest.fixture(scope="module")
def combined(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Two flags at once, and the answers: one block of real runs."""
    folder = tmp_path_factory.mktemp("combined")
    (folder / "card.yaml").write_text(CARD, encoding="utf-8")
    (folder / "words.jsonl").write_text(suite_text(4), encoding="utf-8")
    done = setpoint(
        folder, "experiment", "run", "card.yaml", "--engine", "fake", "--flag", "slots=1", "--flag", "decode_s=0.02",
        "--change", "engine.slots=8", "--change", "engine.decode_s=0.002", "--combined", "--rate", "6/s", "--blocks",
        "1", "--duration", "1s", "--quality", "words.jsonl", "--quality", "distributions", "--json",
    )  # fmt: skip
    assert done.returncode in (1, 3), done.stderr
    return folder, answer(done)["experiment"]


def test_a_combined_run_names_all_of_its_changes(combined: tuple[Path, dict[str, Any]]) -> None:
    _, found = combined
    assert found["before"] == {"engine_flags.slots": "1", "engine_flags.decode_s": "0.02"}
    assert found["after"] == {"engine_flags.slots": "8", "engine_flags.decode_s": "0.002"}
    assert found["analysis"]["compared"][0]["change"] < -0.3


def test_the_answers_of_both_arms_are_asked_under_the_load_and_compared(combined: tuple[Path, dict[str, Any]]) -> None:
    folder, found = combined
    (comparison,) = found["quality"]  # the fake engine has no log-probabilities
    assert [s["suite"] for s in comparison["suites"]] == ["words"]
    store = RunStore(folder / ".setpoint/runs")
    suites = [r for r in found["quality_runs"] if r["kind"] == "suites"]
    assert [r["arm"] for r in suites] == ["A", "B"]
    for made in suites:
        record = store.open(made["run"])
        assert record.quality()["under_load"].all()
        assert record.exchanges(["index"]).height > 0
    assert found["agreement"]["answers"] == 4
    assert found["agreement"]["same"] == 1.0  # both count, and count alike
    assert found["conclusion"]["judgement"] == "undecided"
    shown = setpoint(folder, "experiment", "show")
    assert "On the whole UNDECIDED" in shown.stdout
    assert "4 answers of both arms: 100% are the same text" in shown.stdout


def test_the_layout_of_prompts_is_a_variable_and_the_cache_shows_it(folder: Path) -> None:
    card = CARD.replace("prompt_tokens: 24", "prompt_tokens: 224\n  prefix: {tokens: 160, position: behind}")
    (folder / "card.yaml").write_text(card, encoding="utf-8")
    done = setpoint(
        folder, "experiment", "run", "card.yaml", "--engine", "fake", "--flag", "prefix_cache=true", "--flag",
        "prefill_token_s=0.001", "--rate", "8/s", "--change", "card.traffic.prefix.position=front", "--blocks", "1",
        "--duration", "1s", "--json",
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    found = answer(done)["experiment"]
    assert (found["before"], found["after"]) == (
        {"prompt_layout": "shared part behind"}, {"prompt_layout": "shared part front"},
    )  # fmt: skip
    cached = next(b for b in found["beside"] if b["name"] == "prompt tokens from the cache")
    assert cached["a"] < 0.1
    assert cached["b"] > 0.4
    assert found["analysis"]["compared"][0]["change"] < -0.2


def test_an_experiment_that_was_left_goes_on_with_the_block_that_is_missing(folder: Path) -> None:
    command = ("experiment", "run", "card.yaml", *SLOW, "--change", "engine.slots=8", "--duration", "1s", "--json")
    assert setpoint(folder, *command, "--blocks", "2").returncode == 3
    store = ExperimentStore(folder / ".setpoint/experiments")
    whole = store.open("latest")
    store.save(msgspec.structs.replace(whole, status="incomplete", runs=whole.runs[:6]))
    done = setpoint(folder, *command, "--blocks", "2", "--resume", "latest")
    assert done.returncode == 3, done.stderr
    found = store.open("latest")
    assert (found.id, found.status) == (whole.id, "complete")
    assert found.runs[:4] == whole.runs[:4]
    assert len(found.runs) == 8
    assert {r.run for r in found.runs[4:]}.isdisjoint({r.run for r in whole.runs})
    assert found.analysis is not None
    assert sorted(r.block for r in found.runs if r.block is not None) == [0] * 4 + [1] * 4
    assert "is complete" in one_message(setpoint(folder, *command, "--blocks", "2", "--resume", "latest"))
    store.save(msgspec.structs.replace(found, status="incomplete"))
    other = setpoint(folder, *command, "--blocks", "2", "--seed", "9", "--resume", "latest")
    assert "was something else: seed: 1 then, 9 now" in one_message(other)


SERVERS = ("experiment", "run", "card.yaml", "--blocks", "1", "--duration", "1s", "--json")


def test_two_servers_are_arms_where_they_differ_in_the_named_variable_alone(folder: Path) -> None:
    with fake_engine(Script(context_tokens=4096)) as a, fake_engine(Script(context_tokens=8192)) as b:
        arms = ("--base-url", a.url, "--candidate-url", b.url)
        done = setpoint(folder, *SERVERS, *arms, "--variable", "reported.max_model_len")
        other = setpoint(folder, *SERVERS, *arms, "--variable", "engine_version")
    assert done.returncode == 3, done.stderr
    found = answer(done)["experiment"]
    assert found["before"] == {"reported.max_model_len": "4096"}
    assert found["after"] == {"reported.max_model_len": "8192"}
    assert any("Neither target reports" in note and "hardware" in note for note in found["notes"])
    assert "".join(r["arm"] for r in found["runs"]) in ("ABBA", "BAAB")
    assert "differ in more than engine_version: reported.max_model_len: 4096 against 8192" in one_message(other)


def test_what_servers_do_not_report_is_told_and_two_equal_ones_are_refused(folder: Path) -> None:
    with fake_engine(Script(slots=1)) as a, fake_engine(Script(slots=8)) as b:
        arms = ("--base-url", a.url, "--candidate-url", b.url, "--variable", "told.policy")
        equal = setpoint(folder, *SERVERS, *arms)
        told = setpoint(folder, *SERVERS, *arms, "--base-pin", "policy=random", "--candidate-pin", "policy=prefix")
    assert "do not differ in told.policy" in one_message(equal)
    assert answer(told)["experiment"]["after"] == {"told.policy": "prefix"}
