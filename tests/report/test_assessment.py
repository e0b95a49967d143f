"""What a report tells of an assessment and of experiments, from files alone."""

import json
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from tests.load.conftest import make_card
from tests.records.rows import exchange
from tests.report.conftest import Write, streamed

from setpoint.experiments.analysis import Block, analyse
from setpoint.experiments.record import ArmRun, ExperimentRecord, ExperimentStore
from setpoint.metrics.table import ExchangeTable
from setpoint.records.assessment import AssessmentRecord, Part, Stage, save_assessment
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord
from setpoint.report.build import build
from setpoint.report.content import Figure, Report, Table
from setpoint.report.context import context_of
from setpoint.report.html import render_html
from setpoint.report.markdown import render_markdown

CARD = make_card(promises=["p90 ttft <= 500 ms", "p90 e2e <= 600 ms", "answered >= 90%"])
PARTS = [
    Part(name="search", stage=Stage.DONE, words="2 loads tried", allotted_s=30, spent_s=20),
    Part(name="experiment", stage=Stage.NOT_RUN, words="engine.slots=8 is the first", allotted_s=9, spent_s=0,
         takes="about 4 min"),
]  # fmt: skip


@pytest.fixture
def series(write_run: Write) -> list[RunRecord]:
    place = [Series(id="goodput-1", kind="goodput", step=i) for i in range(2)]
    records = [
        write_run(10, 0.1, card=CARD, series=place[0]),
        write_run(40, 0.9, card=CARD, series=place[1]),
    ]
    save_assessment(AssessmentRecord(series="goodput-1", budget_s=60, parts=PARTS), records[0].path)
    return records


def keep_experiment(run: RunRecord, **changes: object) -> ExperimentRecord:
    """An experiment of seven clear blocks, of which the first run is this one."""
    slow, fast = (ExchangeTable.from_exchanges(streamed(60, 10, s)) for s in (0.4, 0.2))
    store = ExperimentStore(run.path.parents[1] / "experiments")
    record = ExperimentRecord(
        id=store.new_id(run.meta.card_name), created="2026-01-01T00:00:00", status="complete",
        card_name=run.meta.card_name, card=run.meta.card, changes=["engine.slots=8"],
        before={"engine_flags.slots": "4"}, after={"engine_flags.slots": "8"}, blocks=7, seed=1, orders=["ABBA"] * 7,
        load="10/s", duration_s=6.0, runs=[ArmRun(run=run.id, block=0, arm="A", position=0, load_average=0.1)],
        analysis=analyse(CARD, [Block((slow, slow), (fast, fast))] * 7),
    )  # fmt: skip
    record = msgspec.structs.replace(record, **changes)
    store.save(record)
    return record


def of_files(records: list[RunRecord]) -> Report:
    return build(records, context_of(records[0].path.parent, records))


def tables(report: Report, section: int) -> dict[str, Table]:
    return {b.title: b for b in report.sections[section].blocks if isinstance(b, Table)}


def test_how_the_budget_was_spent_and_what_stayed_open_is_told(series: list[RunRecord]) -> None:
    report = of_files(series)
    spent = tables(report, 0)["How the budget of 60.0 s was spent"]
    assert [[cell.text for cell in row][:3] for row in spent.rows] == [
        ["search", "done", "20.0 s of 30.0 s"],
        ["experiment", "not run", "0 s of 9.00 s"],
    ]
    assert [p.name for p in report.points if p.name == "open"] == ["open"]
    assert "To say more: about 4 min." in next(p.text for p in report.points if p.name == "open")
    assert "about 4 min" in render_markdown(report)


def test_an_experiment_on_the_same_target_is_listed_with_effect_interval_and_record(series: list[RunRecord]) -> None:
    record = keep_experiment(series[0])
    report = of_files(series)
    row = tables(report, 3)["What was tried"].rows[0]
    assert row[0].text == "engine_flags.slots: 4 → 8"
    assert row[1].text == "better"
    assert row[3].text.startswith("-50.0% [")
    assert row[-1].text == record.id
    assert "tried" in [p.name for p in report.points]


def test_an_experiment_on_another_target_is_not(series: list[RunRecord], write_run: Write) -> None:
    keep_experiment(write_run(10, 0.1, card=CARD, pins={"model": "another"}))
    assert "What was tried" not in tables(of_files(series), 3)


def test_an_unfinished_experiment_has_no_verdict_and_says_why(series: list[RunRecord]) -> None:
    keep_experiment(series[0], analysis=None, status="incomplete", reason="interrupted")
    row = tables(of_files(series), 3)["What was tried"].rows[0]
    assert (row[1].text, row[3].text) == ("undecided", "interrupted")


def test_breaches_and_budget_have_a_picture(series: list[RunRecord]) -> None:
    figures = [b for b in of_files(series).sections[2].blocks if isinstance(b, Figure)]
    assert [f.title for f in figures] == ["Breaches by cause", "Latency budget"]
    assert all(f.svg.startswith("<svg") and f.origin == "computed" for f in figures)


def test_questions_beside_a_load_are_no_step_of_the_ladder(series: list[RunRecord], write_run: Write) -> None:
    beside = write_run(20, 0.1, card=CARD)
    run = beside.path / "run.json"
    meta = json.loads(run.read_text(encoding="utf-8"))
    run.write_text(json.dumps(meta | {"quality": {"suites": {}, "serving": []}}), encoding="utf-8")
    report = build([*series, RunRecord(beside.path)])
    assert [v.load for v in report.verdicts] == ["10.0 requests/s", "40.0 requests/s"]
    assert build([RunRecord(beside.path)]).verdicts[0].load == "20.0 requests/s"


@pytest.mark.browser
def test_on_a_phone_no_sentence_stands_in_a_narrow_column(series: list[RunRecord], tmp_path: Path) -> None:
    keep_experiment(series[0])
    page = tmp_path / "report.html"
    probe = """<script>addEventListener("load",()=>{const cells=[...document.querySelectorAll("td")];
    document.title="probe "+JSON.stringify({wide:document.documentElement.scrollWidth,view:innerWidth,
    narrow:cells.filter(c=>c.textContent.length>60&&c.getBoundingClientRect().width<250).length})})</script></head>"""
    page.write_text(render_html(of_files(series)).replace("</head>", probe), encoding="utf-8")
    done = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         "--window-size=500,900", "--virtual-time-budget=5000", "--dump-dom", f"file://{page}"],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    found = re.search(r"<title>probe (.*?)</title>", done.stdout)
    assert found, done.stderr[-500:]
    seen = json.loads(found[1].replace("&quot;", '"'))
    assert seen["narrow"] == 0
    assert seen["wide"] <= seen["view"]


def test_no_exchange_is_no_picture(write_run: Write) -> None:
    report = build([write_run(1, 0.1, rows=[exchange(0)], card=CARD)])
    assert report.sections[2].blocks
