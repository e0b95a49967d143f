"""``setpoint eval`` as a user types it."""

import json
import subprocess
from pathlib import Path

import pytest
from tests.cli import command
from tests.quality.suites import answers_to, suite_text, words_suite

from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Fault, FaultKind, Said, Script, said_key

CARD = """
apiVersion: setpoint/v1
kind: Workload
name: faq
contract: {unit: answer, api: chat}
traffic:
  class: interactive
  arrivals: {process: poisson, rate: 20/s}
  prompt_tokens: 24
  output_tokens: 6
  duration: 20s
  warmup_requests: 2
promises: ["quality(words) >= 60%", "p50 ttft <= 2 s"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "words.jsonl").write_text(suite_text(), encoding="utf-8")
    (tmp_path / "card.yaml").write_text(CARD, encoding="utf-8")
    return tmp_path


def setpoint(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command.setpoint(folder, *arguments, COLUMNS="120")


def test_a_promise_is_met_missed_or_undecided_by_the_exit_code(folder: Path) -> None:
    suite = words_suite()
    for wrong, code in ((0, 0), (8, 3), (16, 1)):
        spoiled = {task.id: "no" for task in suite.tasks[:wrong]}
        with fake_engine(Script(answers=answers_to(suite, spoiled))) as engine:
            done = setpoint(folder, "eval", "card.yaml", "--url", engine.url, "--suite", "words.jsonl", "--json")
        assert done.returncode == code, done.stderr
        answer = json.loads(done.stdout)
        assert answer["scores"][0]["score"] == pytest.approx(1 - wrong / 20)
        assert answer["verdicts"][0]["promise"] == "quality (words) ≥ 60.0%"
        assert answer["exit_code"] == code


def test_without_a_promise_there_is_a_score_and_no_verdict(folder: Path) -> None:
    with fake_engine(Script(answers=answers_to(words_suite()))) as engine:
        done = setpoint(folder, "eval", engine.url, "--suite", "words.jsonl", "--answers", "answers.jsonl")
        compared = setpoint(
            folder, "eval", engine.url, "--suite", "words.jsonl", "--baseline", "latest", "--delta", "20%"
        )
        shown = setpoint(folder, "report", "latest", "-o", "report.md")
    assert done.returncode == 3
    assert "Nothing was promised" in done.stdout
    kept = [json.loads(line) for line in (folder / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
    assert {line["answer"]["text"] for line in kept} >= {"amber0", "jetty9"}
    assert compared.returncode == 0, compared.stderr
    assert "Changed: nothing (A against A)" in compared.stdout
    assert shown.returncode in (0, 3), shown.stderr
    assert "Quality of the answers" in (folder / "report.md").read_text(encoding="utf-8")


def test_two_runs_are_compared(folder: Path) -> None:
    suite = words_suite()
    spoiled = {task.id: "no" for task in suite.tasks[:16]}
    for wrong in ({}, spoiled):
        with fake_engine(Script(answers=answers_to(suite, wrong))) as engine:
            setpoint(folder, "eval", engine.url, "--suite", "words.jsonl")
    newest, oldest = [run["id"] for run in json.loads(setpoint(folder, "runs", "--json").stdout)]
    done = setpoint(folder, "eval", "compare", oldest, newest, "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)["suites"][0]
    assert (found["worse"], found["better"], found["state"]) == (16, 0, "missed")
    assert setpoint(folder, "eval", "compare", newest).returncode == 2


def test_the_card_names_a_suite_beside_it_and_assess_asks_it(folder: Path) -> None:
    with fake_engine(Script(answers=answers_to(words_suite()) | {"": Said(text="any words")})) as engine:
        done = setpoint(folder, "assess", "card.yaml", "--url", engine.url, "--budget", "25s", "--json")
        shown = setpoint(folder, "report", "latest", "-o", "report.json")
    answer = json.loads(done.stdout)
    assert "quality (words) ≥ 60.0% is met." in answer["report"]["headline"], done.stderr
    assert answer["exit_code"] == done.returncode
    assert len(answer["runs"]) >= 2
    assert shown.returncode in (0, 1, 3), shown.stderr
    again = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert again["headline"] == answer["report"]["headline"]


def test_a_suite_that_calls_itself_otherwise_than_the_promise_is_refused(folder: Path) -> None:
    (folder / "words.jsonl").write_text(suite_text().replace('"suite": "words"', '"suite": "terms"'), encoding="utf-8")
    done = setpoint(folder, "eval", "card.yaml", "--url", "http://127.0.0.1:9")
    assert done.returncode == 2
    assert "calls itself 'terms' and the card promises quality(words)" in done.stderr


def test_under_load_is_one_record_with_both(folder: Path) -> None:
    with fake_engine(Script(answers=answers_to(words_suite()) | {"": Said(text="any words at all")})) as engine:
        done = setpoint(
            folder, "eval", "card.yaml", "--url", engine.url, "--suite", "words.jsonl", "--under-load", "--json"
        )
    answer = json.loads(done.stdout)
    assert answer["scores"][0]["score"] == 1.0, done.stderr
    assert {v["metric"] for v in answer["verdicts"]} == {"quality", "ttft"}


def test_serving_checks_run_over_real_sockets_and_a_sound_server_passes(folder: Path) -> None:
    fault = Fault(kind=FaultKind.FAIL, first=10_000)
    answers = {"": Said(text=" ".join(["long"] * 60))}
    with fake_engine(Script(answers=answers, faults=(fault,))) as engine:
        done = setpoint(folder, "eval", engine.url, "--suite", "serving", "--json")
    found = {f["name"]: f["state"] for f in json.loads(done.stdout)["serving"]}
    assert found["streaming"] == "met"
    assert found["truncation"] == "met"
    assert found["long_prompt"] == "met"
    assert found["nonce_leak"] == "met"
    assert found["json_contract"] in ("undecided", "missed")
    assert found["cache_salt"] == "undecided"
    assert "tool_contract" in found


def test_a_suite_is_checked_without_a_target(folder: Path) -> None:
    good = setpoint(folder, "eval", "check", "core", "words.jsonl")
    assert good.returncode == 0
    assert good.stdout.count("good") == 2
    (folder / "bad.jsonl").write_text(
        '{"id":"a","prompt":"?","grader":{"name":"exact","expected":"x"},"reference":"y"}', encoding="utf-8"
    )
    bad = setpoint(folder, "eval", "check", "bad.jsonl")
    assert bad.returncode == 1
    refused = setpoint(folder, "eval", "http://127.0.0.1:9", "--suite", "bad.jsonl")
    assert refused.returncode in (2, 4)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing.yaml"], "neither an address"),
        (["http://127.0.0.1:9", "card.yaml"], "takes one address or card"),
        (["http://127.0.0.1:9", "--under-load"], "--under-load needs a card"),
        (["http://127.0.0.1:9", "--duration", "3s"], "--duration is for --under-load"),
        (["http://127.0.0.1:9", "--suite", "cora"], "There is no suite 'cora'"),
        (["check"], "at least one suite"),
    ],
)
def test_wrong_usage_says_what_to_do(folder: Path, arguments: list[str], said: str) -> None:
    done = setpoint(folder, "eval", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_the_key_of_a_scripted_answer_is_that_of_the_last_message() -> None:
    assert said_key("Say amber0.") in answers_to(words_suite())
