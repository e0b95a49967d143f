"""The plan in a report: kept by card and model, shown beside what was measured."""

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.models.folders import LLAMA_70B, QWEN_MOE

from setpoint.errors import RecordError
from setpoint.hardware import parse_fleet
from setpoint.metrics.verdict import Origin
from setpoint.models.resolve import model_from
from setpoint.records.plans import find_plan, plan_path, save_plan
from setpoint.records.store import RunStore
from setpoint.report.build import build
from setpoint.report.content import Facts
from setpoint.report.context import context_of
from setpoint.report.plan import plan_facts
from setpoint.report.plan_document import plan_document
from setpoint.sizing.engine import engine_of
from setpoint.sizing.need import need_of
from setpoint.sizing.placement import Question
from setpoint.sizing.planner import plan_placements
from setpoint.workload.reading import parse_card
from setpoint.workload.templates import template

GOLDEN = Path(__file__).parents[1] / "records" / "golden" / "v1" / "closed"
CARD = parse_card(template("chat").encode(), "card.yaml")


def document(folder: Path, hardware: str) -> dict[str, object]:
    question = Question(model_from(folder), engine_of("vllm", "0.27.0"), (parse_fleet(hardware),), need=need_of(CARD))
    made = plan_document(plan_placements(question), CARD, "2026-12-01T10:00:00+00:00", top=2)
    return msgspec.json.decode(msgspec.json.encode(made))  # type: ignore[no-any-return]


def test_figures_carry_their_origin() -> None:
    facts = {fact.name: fact for fact in plan_facts(document(QWEN_MOE, "H100-SXM:1")).facts}
    assert facts["memory of one accelerator"].origin is Origin.LOGGED
    assert facts["TTFT, mean"].origin is Origin.COMPUTED
    assert "to" in facts["TTFT, mean"].value
    assert facts["verdict of the plan"].value == "met"
    assert facts["USD per unit of work"].value


def test_a_plan_without_a_placement_says_why() -> None:
    facts = {fact.name: fact.value for fact in plan_facts(document(LLAMA_70B, "T4:1")).facts}
    assert facts["placements"].startswith("none; rejected for memory")


def test_the_report_of_a_run_has_the_plan_of_its_card_and_model(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    run = runs / "20261201-100000-golden-abcdef"
    shutil.copytree(GOLDEN, run)
    meta = msgspec.json.decode((run / "run.json").read_bytes())
    (run / "run.json").write_bytes(msgspec.json.encode(meta | {"verdicts": []}))
    record = RunStore(runs).open(str(run))
    assert context_of(runs, [record]).plan is None
    model = str(record.meta.target["model"])
    save_plan(plan_path(runs, record.meta.card_name, f"org/{model}"), document(QWEN_MOE, "H100-SXM:1"))
    context = context_of(runs, [record])
    titles = [b.title for b in build([record], context).sections[1].blocks if isinstance(b, Facts)]
    assert titles == ["The plan"]
    assert not [b for b in build([record]).sections[1].blocks if isinstance(b, Facts)]


@pytest.mark.parametrize("content", ["{", "[]", '{"schema_version": 99}'])
def test_a_plan_that_cannot_be_read_is_an_error(tmp_path: Path, content: str) -> None:
    path = plan_path(tmp_path / "runs", "card", "org/Model-7B")
    assert path.name == "card-model-7b.json"
    path.parent.mkdir()
    path.write_text(content)
    with pytest.raises(RecordError, match="no plan that this version reads"):
        find_plan(tmp_path / "runs", "card", "Model-7B")
