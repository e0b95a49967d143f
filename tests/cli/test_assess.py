"""``setpoint assess`` as a user types it: the whole loop on engines that are faked, and once on the embedded one."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.cli.command import answer, environment, one_message, setpoint
from tests.quality.suites import answers_to, suite_text, words_suite

from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.report.build import build, with_series
from setpoint.report.content import Figure, Report, Table
from setpoint.report.context import context_of
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Said, Script

CARD = """\
apiVersion: setpoint/v1
kind: Workload
name: slow-prefill
contract: {unit: answer, api: chat}
traffic:
  class: interactive
  arrivals: {process: poisson, rate: 8/s}
  prompt_tokens: {min: 60, p50: 100, max: 160}
  output_tokens: 8
  duration: 6s
  warmup_requests: 1
promises:
  - p80 ttft <= 250 ms
"""
QUALITY = "  - quality(words) >= 40%\n"
SLOW_PREFILL = Script(slots=32, prefill_token_s=0.004, answers=answers_to(words_suite()) | {"": Said(text="any words")})

pytestmark = pytest.mark.timeout(240)


def folder_with(path: Path, card: str) -> Path:
    (path / "words.jsonl").write_text(suite_text(), encoding="utf-8")
    (path / "card.yaml").write_text(card, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def assessed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """A folder in which a server with a slow prefill was assessed by its address."""
    folder = folder_with(tmp_path_factory.mktemp("assess"), CARD + QUALITY)
    with fake_engine(SLOW_PREFILL) as engine:
        done = setpoint(folder, "assess", "card.yaml", "--url", engine.url, "--budget", "60s", "--json")
    assert done.returncode in (0, 1, 3), done.stderr
    return folder, answer(done), done.stderr


def parts_of(found: dict[str, Any]) -> dict[str, Any]:
    return {part["name"]: part for part in found["assessment"]["parts"]}


def kept_of(folder: Path) -> list[RunRecord]:
    store = RunStore(folder / ".setpoint" / "runs")
    return [store.open(run.path) for run in store.list()]


def rebuilt(folder: Path, run: str) -> Report:
    runs = folder / ".setpoint" / "runs"
    store = RunStore(runs)
    records = with_series(store, [store.open(run)])
    return build(records, context_of(runs, records))


def test_the_planted_cause_is_named_with_evidence(assessed: tuple[Path, dict[str, Any], str]) -> None:
    folder, found, _ = assessed
    part = parts_of(found)["diagnosis"]
    saved = [json.loads(p.read_text(encoding="utf-8")) for p in folder.glob(".setpoint/runs/*/diagnosis.json")]
    assert len(saved) == 1
    findings = {f["name"]: f for f in saved[0]["findings"]}
    supported = [name for name, f in findings.items() if f["conclusion"] == "supported"]
    assert set(supported) <= {"prefill", "neighbour", "client"}, part  # others may really take this machine's CPU
    prefill = findings["prefill"]
    if "prefill" not in supported:  # then the machine did not let it be judged, and that is said
        assert prefill["conclusion"] == "undecided"
        assert any(words in prefill["reason"] for words in ("waiting for a CPU", "client may have been", "interval"))
    assert part["words"] == saved[0]["headline"]


def test_quality_is_checked_idle_and_under_load(assessed: tuple[Path, dict[str, Any], str]) -> None:
    folder, found, _ = assessed
    store = RunStore(folder / ".setpoint" / "runs")
    graded = [r for r in map(store.open, found["runs"]) if r.meta.quality is not None]
    assert [bool(r.quality()["under_load"].any()) for r in graded] == [False, True]
    assert all(r.quality()["score"].mean() == 1.0 for r in graded)
    assert graded[0].meta.quality is not None
    assert {f["name"] for f in graded[0].meta.quality["serving"]} >= {"streaming", "nonce_leak"}
    words = parts_of(found)["quality"]["words"]
    assert "contracts of the server" in words
    assert "words 100.0%" in words
    assert "under" in words


def test_the_experiment_says_why_it_is_not_run(assessed: tuple[Path, dict[str, Any], str]) -> None:
    part = parts_of(assessed[1])["experiment"]
    assert part["stage"] == "not run"
    assert part["words"]
    assert part["takes"] or "nothing" in part["words"]


def test_progress_and_the_division_of_the_budget_are_shown(assessed: tuple[Path, dict[str, Any], str]) -> None:
    _, found, said = assessed
    for name in ("search: ", "diagnosis: ", "quality: "):
        assert name in said
    parts = parts_of(found)
    assert list(parts) == ["search", "diagnosis", "quality", "experiment"]
    assert found["assessment"]["budget_s"] == 60
    assert sum(p["spent_s"] for p in parts.values()) < 60 + 40  # a busy machine prepares and drains slowly


def test_the_report_is_rebuilt_from_records_alone(assessed: tuple[Path, dict[str, Any], str]) -> None:
    folder, found, _ = assessed
    report = rebuilt(folder, found["runs"][-1])
    assert report.headline == found["report"]["headline"]
    assert report.points[0].text == parts_of(found)["diagnosis"]["words"]
    assert json.loads(json.dumps([p.name for p in report.points])) == [p["name"] for p in found["report"]["points"]]
    titles = [b.title for s in report.sections for b in s.blocks if isinstance(b, Table | Figure)]
    for title in (
        "How the budget of 60.0 s was spent",
        "All hypotheses",
        "Breaches by cause",
        "Quality of the answers",
    ):
        assert title in titles, titles
    assert "Contracts of the server" in titles
    loads = {v.run for v in report.verdicts}
    under_load = [
        r for r in found["runs"] if "quality" in str(RunStore(folder / ".setpoint/runs").open(r).meta.quality)
    ]
    assert not loads & set(under_load)  # questions beside a load are no rung of the ladder


def test_an_engine_is_started_and_stopped_here_and_what_is_not_wanted_is_not_run(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, CARD.replace("250 ms", "1 s"))
    flags = ("--engine", "fake", "--flag", "slots=2", "--flag", "decode_s=0.02", "--no-quality", "--no-experiment")
    done = setpoint(folder, "assess", "card.yaml", *flags, "--budget", "28s")
    assert done.returncode in (0, 1, 3), done.stderr
    assert "report: " in done.stdout
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(folder) in " ".join(p.info["cmdline"] or ())]
    kept = kept_of(folder)
    assessment = context_of(folder / ".setpoint" / "runs", kept).assessment
    assert assessment is not None
    assert {p.name: p.words for p in assessment.parts if p.allotted_s == 0} == {
        "quality": "not wanted (--no-quality)",
        "experiment": "not wanted (--no-experiment)",
    }
    assert not [r for r in kept if r.meta.quality is not None]
    page = next((folder / ".setpoint" / "reports").glob("*.html")).read_text(encoding="utf-8")
    assert "<svg" in page
    assert setpoint(folder, "report", "latest", "-o", "again.html").returncode == 0
    again = (folder / "again.html").read_text(encoding="utf-8")
    assert again.replace(str(folder) + "/", "") == page.replace(str(folder) + "/", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-o", "report.txt"), "End its name in .html, .md, .json."),
        (("-o", "card.yaml/report.html"), "No report can be written to card.yaml/report.html."),
        (("--engine", "fake", "--flag", "slot=2"), "no flag 'slot'. It has, for example, slots"),
    ],
)
def test_what_cannot_succeed_is_refused_before_anything_is_measured(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    folder = folder_with(tmp_path, CARD)
    done = setpoint(folder, "assess", "card.yaml", "--budget", "60s", *arguments)
    assert done.returncode == 2
    assert said in one_message(done)
    assert not (folder / ".setpoint" / "runs").exists()


# Ctrl-C


def interrupted(folder: Path, arguments: Sequence[str], when: str, after_s: float) -> tuple[int, str, str]:
    """Runs until a line says ``when``, and ``after_s`` later presses Ctrl-C as a terminal does."""
    child = subprocess.Popen(
        [sys.executable, "-m", "setpoint", "assess", "card.yaml", *arguments], cwd=folder, env=environment(),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert child.stderr is not None
    said = ""
    for line in child.stderr:
        said += line
        if when in line:
            break
    time.sleep(after_s)
    members = psutil.Process(child.pid).children(recursive=True)
    os.killpg(child.pid, signal.SIGINT)
    out, rest = child.communicate(timeout=60)
    _, alive = psutil.wait_procs(members, timeout=10)
    assert not alive
    return child.returncode, out, said + rest


@pytest.mark.parametrize(
    ("part", "when", "budget"),
    [("search", "looking at the target", "30s"), ("diagnosis", "probe: ", "60s"), ("quality", "quality: ", "30s")],
)
def test_ctrl_c_in_any_part_leaves_readable_records_and_a_report(
    tmp_path: Path, part: str, when: str, budget: str
) -> None:
    folder = folder_with(tmp_path, CARD + QUALITY)
    with fake_engine(SLOW_PREFILL) as engine:
        code, out, said = interrupted(folder, ("--url", engine.url, "--budget", budget), when, 2.0)
    assert code == 130, said
    assert "Traceback" not in said
    assert "report: " in out
    kept = kept_of(folder)
    assert all(r.meta.status != "running" for r in kept)
    assessment = context_of(folder / ".setpoint" / "runs", kept).assessment
    assert assessment is not None
    parts = {p.name: p for p in assessment.parts}
    assert parts[part].stage == "interrupted"
    later = list(parts)[list(parts).index(part) + 1 :]
    assert all(parts[name].stage == "not run" for name in later)
    assert rebuilt(folder, kept[0].id).headline


@pytest.mark.engine
def test_the_embedded_engine_is_assessed_in_one_short_budget(tmp_path: Path) -> None:
    card = CARD.replace("8/s", "2/s").replace("{min: 60, p50: 100, max: 160}", "44").replace("250 ms", "20 s")
    folder = folder_with(tmp_path, card)
    done = setpoint(folder, "assess", "card.yaml", "--budget", "32s", "--json")
    assert done.returncode in (0, 1, 3), done.stderr
    found = answer(done)
    assert set(parts_of(found)) == {"search", "diagnosis", "quality", "experiment"}
    assert Path(folder / found["html"]).stat().st_size < 2_000_000
    assert found["report"]["headline"]
