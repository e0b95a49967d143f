"""``setpoint init`` and ``setpoint card`` as a user types them."""

import json
from pathlib import Path

import pytest
from tests.cli.command import ROOT, setpoint, spawned

from setpoint.workload.card import json_schema
from setpoint.workload.reading import load_card
from setpoint.workload.templates import USE_CASES, template

TRACES = ROOT / "tests" / "workload" / "traces"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.mark.parametrize("use_case", USE_CASES)
def test_init_prints_a_card(folder: Path, use_case: str) -> None:
    done = setpoint(folder, "init", use_case)
    assert (done.returncode, done.stdout, done.stderr) == (0, template(use_case), "")


def test_init_writes_a_file_that_checks(folder: Path) -> None:
    done = spawned(folder, "init", "chat", "--output", "card.yaml")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "wrote card.yaml\n"
    checked = spawned(folder, "card", "check", "card.yaml")
    assert (checked.returncode, checked.stderr) == (0, "")
    assert checked.stdout == (
        "card.yaml: a good card. Promises: p95 TTFT ≤ 800 ms, p95 TPOT ≤ 60.0 ms, answered ≥ 99.0%\n"
    )


def test_init_overwrites_only_when_told_to(folder: Path) -> None:
    (folder / "card.yaml").write_text("mine", encoding="utf-8")
    refused = setpoint(folder, "init", "rag", "-o", "card.yaml")
    assert refused.returncode == 2
    assert "card.yaml exists" in refused.stderr
    assert "--force" in refused.stderr
    assert (folder / "card.yaml").read_text(encoding="utf-8") == "mine"
    forced = setpoint(folder, "init", "rag", "-o", "card.yaml", "--force")
    assert forced.returncode == 0
    assert (folder / "card.yaml").read_text(encoding="utf-8") == template("rag")


@pytest.mark.parametrize(("output", "reason"), [("missing/card.yaml", "no such file or directory"), (".", "exists")])
def test_init_says_why_it_cannot_write(folder: Path, output: str, reason: str) -> None:
    done = setpoint(folder, "init", "chat", "-o", output)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_init_of_an_unknown_use_case(folder: Path) -> None:
    done = setpoint(folder, "init", "chess")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Choose one of: chat, coding-agent, rag, batch-extraction, embeddings." in done.stderr


BAD = template("chat").replace("rate: 2/s", "rate: two").replace("streaming", "streeming")


def test_check_explains_every_mistake_on_stderr(folder: Path) -> None:
    (folder / "card.yaml").write_text(BAD, encoding="utf-8")
    done = setpoint(folder, "card", "check", "card.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    streaming, rate = (
        next(i for i, line in enumerate(BAD.splitlines(), 1) if word in line) for word in ("streem", "two")
    )
    typo = "contract.streeming: found an unknown field, expected streaming (did you mean it?)"
    value = 'traffic.arrivals.rate: found \'two\', expected a rate such as "2/s" or "90/min"'
    assert lines == [f"setpoint: card.yaml:{streaming}: {typo}", f"card.yaml:{rate}: {value}"]


def test_check_for_a_machine(folder: Path) -> None:
    (folder / "good.yaml").write_text(template("rag"), encoding="utf-8")
    good = setpoint(folder, "card", "check", "good.yaml", "--json")
    read = load_card(folder / "good.yaml")
    assert good.returncode == 0
    assert json.loads(good.stdout) == {"ok": True, "name": read.name, "digest": read.digest(), "card": read.to_dict()}
    (folder / "bad.yaml").write_text(BAD, encoding="utf-8")
    bad = setpoint(folder, "card", "check", "bad.yaml", "--json")
    answer = json.loads(bad.stdout)
    assert (bad.returncode, bad.stderr, answer["ok"]) == (2, "", False)
    assert [m["field"] for m in answer["mistakes"]] == ["contract.streeming", "traffic.arrivals.rate"]
    assert set(answer["mistakes"][0]) == {"file", "line", "field", "found", "expected"}


def test_check_of_a_name_with_brackets_prints_the_name(folder: Path) -> None:
    (folder / "[red]card.yaml").write_text(template("rag"), encoding="utf-8")
    done = setpoint(folder, "card", "check", "[red]card.yaml")
    assert done.stdout.startswith("[red]card.yaml: a good card.")


@pytest.mark.parametrize(("name", "reason"), [("missing.yaml", "no such file"), (".", "is a directory")])
def test_check_of_what_cannot_be_read(folder: Path, name: str, reason: str) -> None:
    done = setpoint(folder, "card", "check", name)
    assert (done.returncode, done.stdout) == (2, "")
    assert reason in done.stderr
    assert done.stderr.count("\n") == 1


def test_check_looks_for_the_trace_that_a_card_replays(folder: Path) -> None:
    lines = template("rag").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("  arrivals:"))
    lines[at] = "  arrivals: {process: replay, trace: azure.csv}"
    (folder / "cards").mkdir()
    (folder / "cards" / "card.yaml").write_text("\n".join(lines), encoding="utf-8")
    missing = setpoint(folder, "card", "check", "cards/card.yaml")
    assert missing.returncode == 2
    assert "cards/azure.csv" in missing.stderr
    (folder / "cards" / "azure.csv").write_bytes((TRACES / "azure.csv").read_bytes())
    assert setpoint(folder, "card", "check", "cards/card.yaml").returncode == 0


@pytest.mark.parametrize("name", ["azure.csv", "mooncake.jsonl", "agent", "access.jsonl"])
def test_from_trace_prints_a_card_and_what_it_could_not_know(folder: Path, name: str) -> None:
    done = setpoint(folder, "card", "from-trace", str(TRACES / name))
    assert done.returncode == 0
    assert "SECRET" not in done.stdout + done.stderr
    assert "unknown: what was promised: add promises" in done.stderr
    (folder / "derived.yaml").write_text(done.stdout, encoding="utf-8")
    assert setpoint(folder, "card", "check", "derived.yaml").returncode == 0


def test_from_trace_to_a_file_and_for_a_machine(folder: Path) -> None:
    done = setpoint(folder, "card", "from-trace", str(TRACES / "azure.csv"), "-o", "a.yaml", "--json")
    answer = json.loads(done.stdout)
    assert done.returncode == 0
    assert set(answer) == {"card", "facts", "unknown"}
    assert load_card(folder / "a.yaml").to_dict() == answer["card"]
    refused = setpoint(folder, "card", "from-trace", str(TRACES / "azure.csv"), "-o", "a.yaml")
    assert refused.returncode == 2
    assert "a.yaml exists" in refused.stderr


def test_from_trace_of_what_is_no_trace(folder: Path) -> None:
    (folder / "notes.txt").write_text("private words\n", encoding="utf-8")
    done = setpoint(folder, "card", "from-trace", "notes.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "setpoint: The trace 'notes.txt' holds no request (line 1: not JSON).\n"


def test_schema_prints_the_schema(folder: Path) -> None:
    done = setpoint(folder, "card", "schema")
    assert (done.returncode, json.loads(done.stdout)) == (0, json_schema())


@pytest.mark.parametrize(
    "arguments", [("init",), ("card", "check"), ("card", "chek", "x"), ("card", "check", "x", "--jsn")]
)
def test_wrong_usage_is_exit_code_2(folder: Path, arguments: tuple[str, ...]) -> None:
    done = setpoint(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: setpoint" in done.stderr


def test_init_as_json_holds_the_card_twice(folder: Path) -> None:
    done = setpoint(folder, "init", "rag", "--json")
    body = json.loads(done.stdout)
    assert body["card"]["name"]
    assert body["yaml"] == template("rag")
