"""The three decisions of docs/plan.md: their commands run, and lead where the page says."""

import json
import re
import shutil
import subprocess
import sys
from typing import Any

import pytest
from tests.cli.command import ROOT, environment
from tests.models.folders import FOLDER

PAGE = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Each command's exit code, and of a plan its JSON."""
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(FOLDER, folder / "models")
    found: dict[str, Any] = {}
    for command in COMMANDS:
        planned = command.startswith("setpoint plan")
        script = f'setpoint() {{ {sys.executable} -m setpoint "$@"; }}; {command}{" --json" if planned else ""}'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode in (0, 1, 3), (command, done.stderr)
        found[command] = json.loads(done.stdout) if planned else done.returncode
    return found


def of(answers: dict[str, Any], *words: str) -> Any:  # noqa: ANN401 - a document
    return next(found for command, found in answers.items() if all(word in command for word in words))


def states(document: Any) -> dict[str, str]:  # noqa: ANN401
    return {one["placement"]: one["state"] for one in document["placements"]}


def test_every_decision_has_commands() -> None:
    assert len(COMMANDS) == 8


def test_two_cards_and_a_70b_model(answers: dict[str, Any]) -> None:
    found = of(answers, "chat.yaml --model models/Llama")
    by_name = states(found)
    assert found["placements"][0]["placement"] == "H100-SXM:1 TP1 int4, KV fp8"
    assert by_name["H100-SXM:1 TP1 int4, KV fp8"] == by_name["H100-SXM:2 TP2 fp8, KV fp8"] == "met"
    assert by_name["H100-SXM:2 TP2 fp8, KV auto"] == "undecided"
    assert {r["kind"] for r in found["rejected"] if "TP2 bf16" in r["placement"]} == {"count"}
    cost = [f"{one['cost_usd']['per_unit']['expected']:.3g}" for one in found["placements"]]
    assert "0.000275 against 0.000137 USD" in PAGE
    assert {"0.000275", "0.000137"} <= set(cost)
    alone = of(answers, "plan --model models/Llama")
    assert any("TP2 bf16" in r["placement"] and r["kind"] == "memory" for r in alone["rejected"])


def test_a_mixture_of_experts(answers: dict[str, Any]) -> None:
    one, two = (of(answers, f"gpt-oss-120b --hardware H100-SXM:{n}") for n in (1, 2))
    assert one["state"] != "met"
    assert one["placements"][0]["memory"]["fit"] == "uncertain"
    assert two["state"] == "met"
    assert two["placements"][0]["placement"] == "H100-SXM:2 TP2 mxfp4, KV auto"


def test_a_long_context_agent(answers: dict[str, Any]) -> None:
    hybrid, dense = of(answers, "Qwen3.5-27B"), of(answers, "agent.yaml", "Llama")
    assert hybrid["state"] == "met"
    assert dense["state"] == "missed"
    assert {r["kind"] for r in dense["rejected"]} == {"context"}
    held = {one["placement"]: one["memory"]["sessions"][-1]["count"]["expected"] for one in hybrid["placements"]}
    for weights in ("int4", "fp8"):
        ratio = held[f"H200-SXM:1 TP1 {weights}, KV fp8"] / held[f"H200-SXM:1 TP1 {weights}, KV auto"]
        assert 1.7 < ratio < 2.2
