"""``setpoint diagnose`` as a user types it."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli import command

from setpoint.testing.planted import PLANTED


def setpoint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command.setpoint(folder, *arguments, COLUMNS="100")


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], int]:
    """A folder in which a fake engine that reasons was diagnosed."""
    folder = tmp_path_factory.mktemp("diagnose")
    plant = PLANTED["reasoning"]
    card = plant.card()
    card["traffic"]["duration"] = "4s"
    (folder / "card.yaml").write_text(yaml.safe_dump(card), encoding="utf-8")
    flags = [word for name, value in plant.script.items() for word in ("--flag", f"{name}={json.dumps(value)}")]
    done = setpoint(folder, "diagnose", "fake", "--card", "card.yaml", "--budget", "40s", "--json", *flags)
    assert done.stdout, done.stderr
    return folder, json.loads(done.stdout), done.returncode


def test_a_cause_is_named_with_exit_code_1(diagnosed: tuple[Path, dict[str, Any], int]) -> None:
    _, answer, code = diagnosed
    assert code == answer["exit_code"] == 1
    first = answer["findings"][0]
    assert (first["name"], first["conclusion"]) == ("reasoning", "supported")
    assert first["share"]["low"] > 0.2
    assert "Hidden reasoning" in answer["headline"]


def test_a_recorded_run_is_explained_from_records_alone(diagnosed: tuple[Path, dict[str, Any], int]) -> None:
    folder, answer, _ = diagnosed
    done = setpoint(folder, "diagnose", answer["subject"], "--json")
    assert done.returncode == 1, done.stderr
    again = json.loads(done.stdout)
    assert again["findings"] == answer["findings"]
    assert (folder / ".setpoint/runs" / answer["subject"] / "diagnosis.json").exists()


def test_the_answer_reads_without_json(diagnosed: tuple[Path, dict[str, Any], int]) -> None:
    folder, answer, _ = diagnosed
    done = setpoint(folder, "diagnose", answer["subject"])
    for words in ("Hidden reasoning", "supported", "refuted", "It would be refuted by this", "decode step, one stream"):
        assert words in done.stdout


def test_a_recorded_run_takes_its_own_card_and_no_other(diagnosed: tuple[Path, dict[str, Any], int]) -> None:
    folder, answer, _ = diagnosed
    assert setpoint(folder, "diagnose", answer["subject"], "--card", "card.yaml").returncode == 1
    text = (folder / "card.yaml").read_text(encoding="utf-8").replace("duration: 4s", "duration: 5s")
    (folder / "other.yaml").write_text(text, encoding="utf-8")
    for options, words in ((["--card", "other.yaml"], "is not the card that"), (["--budget", "9s"], "no probe is run")):
        done = setpoint(folder, "diagnose", answer["subject"], *options)
        assert done.returncode == 2
        assert words in " ".join(done.stderr.split())


def test_the_report_says_the_same(diagnosed: tuple[Path, dict[str, Any], int]) -> None:
    folder, answer, _ = diagnosed
    done = setpoint(folder, "report", answer["subject"], "--json")
    assert done.returncode == 0, done.stderr
    section = json.loads(done.stdout)["sections"][2]
    assert section["title"] == "Main bottleneck hypothesis"
    assert section["blocks"][0]["text"] == answer["headline"]


def test_a_live_target_needs_a_card(tmp_path: Path) -> None:
    done = setpoint(tmp_path, "diagnose", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert "--card" in done.stderr


def test_a_run_that_does_not_exist_is_told(tmp_path: Path) -> None:
    done = setpoint(tmp_path, "diagnose", "nothing")
    assert done.returncode in (2, 4)
    assert "nothing" in done.stderr or "no run" in done.stderr
    assert "Traceback" not in done.stderr
