"""A report from records alone: its answer, its six sections, its forms."""

import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from tests.load.conftest import make_card
from tests.records.rows import exchange
from tests.report.conftest import Write, streamed

from setpoint.errors import UsageError
from setpoint.metrics.verdict import State
from setpoint.records.exchange import Outcome
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.report.build import build, with_series
from setpoint.report.content import Report, Table
from setpoint.report.html import render_html
from setpoint.report.markdown import render_markdown
from setpoint.report.step import Step, one_per_load
from setpoint.report.text import render_text
from setpoint.report.write import write_report

GOLDEN = Path(__file__).parents[1] / "records" / "golden" / "v1"
VOID = {"meta", "link", "br", "img", "input", "hr", "path", "line", "rect", "circle", "polyline", "polygon"}


@pytest.fixture
def series(write_run: Write) -> list[RunRecord]:
    """A search: met at 10/s, undecided at 20/s, missed at 40/s."""
    place = [Series(id="goodput-1", kind="goodput", step=i) for i in range(4)]
    return [
        write_run(10, 0.1, series=place[0]),
        write_run(20, 0.2, count=8, series=place[1]),
        write_run(40, 0.9, series=place[2]),
        write_run(10, 0.1, count=20, series=place[3]),
    ]


def text_of(report: Report, width: int = 100) -> str:
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123 - rich's way
    with console.file:
        console.print(render_text(report, width=width))
    return console.export_text()


def test_the_headline_names_the_highest_met_and_the_lowest_missed_load(series: list[RunRecord]) -> None:
    report = build(series)
    assert report.state is State.MET
    assert report.headline.startswith("Serves 10.0 requests/s within every promise")
    assert "at 40.0 requests/s p90 TTFT ≤ 500 ms is missed" in report.headline
    assert "Undecided at 20.0 requests/s" in report.headline
    assert [(v.load, v.state) for v in report.verdicts] == [
        ("10.0 requests/s", State.MET),
        ("40.0 requests/s", State.MISSED),
    ]


def test_there_are_six_sections_in_order_and_none_is_empty(series: list[RunRecord]) -> None:
    report = build(series)
    assert [s.title for s in report.sections] == [
        "Workload assumptions and what is not measured",
        "Targets and baseline",
        "Main bottleneck hypothesis",
        "Ranked experiments",
        "Acceptance criteria",
        "Vendors, models and versions",
    ]
    assert all(s.blocks for s in report.sections)


def test_every_figure_has_an_origin_and_a_source(series: list[RunRecord]) -> None:
    body = build(series).to_dict()
    for section in body["sections"]:
        for block in section["blocks"]:
            if block["kind"] == "table":
                assert block["origin"]
                assert block["source"]
            if block["kind"] == "facts":
                assert all(f["origin"] and f["source"] for f in block["facts"])
            if block["kind"] == "figure":
                assert block["source"]


def test_of_two_runs_at_one_load_the_longer_is_drawn_and_both_are_listed(series: list[RunRecord]) -> None:
    steps = [Step(r) for r in series]
    assert [s.record.id for s in one_per_load(steps)] == [r.id for r in series[:3]]
    loads = build(series).sections[1].blocks[0]
    assert isinstance(loads, Table)
    assert [row[0].text for row in loads.rows] == ["10.0 requests/s"] * 2 + ["20.0 requests/s", "40.0 requests/s"]


def test_areas_that_nobody_measured_are_undecided_and_say_what_would_decide_them(series: list[RunRecord]) -> None:
    table = build(series).sections[4].blocks[0]
    assert isinstance(table, Table)
    areas = {row[0].text: row for row in table.rows}
    assert set(areas) == {"tail latency", "reliability", "quality", "security", "cost"}
    for area in ("quality", "security", "cost"):
        assert areas[area][3].state is State.UNDECIDED
        assert "would decide it" in areas[area][4].text


def test_one_step_brings_the_whole_series(series: list[RunRecord], write_run: Write) -> None:
    other = write_run(5, 0.1)
    store = RunStore(series[0].path.parent)
    assert {r.id for r in with_series(store, [series[1]])} == {r.id for r in series}
    assert with_series(store, [other]) == [other]


def test_a_run_that_was_cut_off_is_reported_as_such(write_run: Write) -> None:
    report = build([write_run(10, 0.1, reason="the engine died\nlast line")])
    assert "Incomplete: the engine died." in report.headline
    assert report.records[0].status.startswith("incomplete")


def test_a_run_that_was_never_closed_is_judged_with_doubt(write_run: Write) -> None:
    report = build([write_run(10, 0.1, closed=False)])
    assert report.state is State.UNDECIDED
    assert any("incomplete" in row.reason for row in report.verdicts[0].rows)


@pytest.mark.parametrize("name", ["closed", "crashed"])
def test_golden_records_of_every_version_can_be_reported(name: str) -> None:
    report = build([RunRecord(GOLDEN / name)])
    assert len(render_html(report)) > 1000
    assert render_markdown(report).startswith("# golden on tiny")


def test_a_card_without_promises_has_nothing_to_judge(write_run: Write) -> None:
    report = build([write_run(10, 0.1, card=make_card(promises=[]))])
    assert report.state is State.UNDECIDED
    assert "promises nothing" in report.headline


def test_a_run_in_which_nothing_was_answered(write_run: Write) -> None:
    rows = [
        msgspec.structs.replace(exchange(i, chunks=0, outcome=Outcome.ERROR), first_token_s=None) for i in range(60)
    ]
    report = build([write_run(2, 0.1, rows=rows)])
    assert report.state is State.MISSED
    for form in (render_html(report), render_markdown(report), text_of(report)):
        assert "answered" in form


def test_a_run_of_one_exchange(write_run: Write) -> None:
    assert build([write_run(1, 0.1, count=1)]).state is State.UNDECIDED


def test_users_in_closed_loop(write_run: Write) -> None:
    report = build([write_run(10, 0.1, users=8)])
    assert report.records[0].load == "8 users"
    assert "--concurrency 8" in report.records[0].reproduce


def test_runs_of_different_cards_are_not_one_report(write_run: Write) -> None:
    other = make_card().model_copy(update={"name": "other"})
    with pytest.raises(UsageError, match="different cards: other, test"):
        build([write_run(10, 0.1), write_run(10, 0.1, card=other)])
    with pytest.raises(UsageError, match="no run"):
        build([])


class Page(HTMLParser):
    """Reads a page strictly: every element closed, nothing loaded from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.ids: set[str] = set()
        self.targets: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.loads += [v for k, v in attrs if k in ("src", "srcset", "data", "action") and v]
        href = named.get("href") or ""
        if href.startswith("#"):
            self.targets.add(href[1:])
        elif href and not href.startswith("data:"):
            self.loads.append(href)
        if named.get("id"):
            self.ids.add(str(named["id"]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open, f"</{tag}> closes nothing"
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_is_one_file_that_loads_nothing(series: list[RunRecord]) -> None:
    html = render_html(build(series))
    page = Page()
    page.feed(html)
    assert page.open == []
    assert page.loads == []
    assert "@import" not in html
    assert not re.search(r"url\((?!#)", html)
    assert page.targets <= page.ids
    assert len(html) < 2_000_000
    assert html.count("<svg") >= 6


def test_a_long_run_stays_below_two_megabytes(write_run: Write) -> None:
    record = write_run(100, 0.05, rows=streamed(20_000, 100, 0.05))
    assert len(render_html(build([record]))) < 2_000_000


def test_words_from_records_are_never_markup(write_run: Write) -> None:
    evil = "<script>alert(1)</script>|x"
    record = write_run(10, 0.1, pins={"model": evil, "engine": evil}, reason=evil)
    html = render_html(build([record]))
    assert "<script>alert" not in html
    assert "&lt;script&gt;" in html
    table_rows = [line for line in render_markdown(build([record])).splitlines() if line.startswith("|")]
    assert all(line.count("|") - line.count("\\|") > 2 for line in table_rows)


def test_the_forms_agree(series: list[RunRecord], tmp_path: Path) -> None:
    report = build(series)
    html = write_report(report, tmp_path / "r.html").read_text(encoding="utf-8")
    markdown = write_report(report, tmp_path / "r.md").read_text(encoding="utf-8")
    body = json.loads(write_report(report, tmp_path / "r.json").read_text(encoding="utf-8"))
    assert body["headline"] == report.headline
    assert body["schema_version"] == 1
    page = Page()
    page.feed(html)
    for section in report.sections:
        assert section.title in "".join(page.words)
        assert section.title in markdown
    with pytest.raises(UsageError, match=r"\.html, \.md, \.json"):
        write_report(report, tmp_path / "r.pdf")


@pytest.mark.parametrize("width", [30, 40, 80, 200])
def test_the_terminal_form_fits_its_width(series: list[RunRecord], width: int) -> None:
    lines = text_of(build(series), width).splitlines()
    assert max(len(line) for line in lines) <= width


@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 500])
def test_a_browser_shows_it_without_a_request_or_an_error(series: list[RunRecord], tmp_path: Path, width: int) -> None:
    """Headless Chromium renders the page; nothing sticks out to the side, no script fails, nothing is loaded."""
    html = render_html(build(series))
    probe = """<script>
    const errors=[];addEventListener("error",e=>errors.push(String(e.message)));
    addEventListener("load",()=>{document.title="probe "+JSON.stringify({wide:document.documentElement.scrollWidth,
    view:innerWidth,errors,loaded:performance.getEntriesByType("resource").length,
    pictures:[...document.querySelectorAll("svg")].filter(s=>s.getBoundingClientRect().height>50).length})})
    </script></head>"""
    page = tmp_path / "report.html"
    page.write_text(html.replace("</head>", probe), encoding="utf-8")
    done = subprocess.run(
        ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
         f"--window-size={width},900", "--virtual-time-budget=5000", "--dump-dom", f"file://{page}"],
        capture_output=True, text=True, timeout=90, check=False,
    )  # fmt: skip
    found = re.search(r"<title>probe (.*?)</title>", done.stdout)
    assert found, done.stderr[-500:]
    seen = json.loads(found[1].replace("&quot;", '"'))
    assert seen["errors"] == []
    assert seen["loaded"] == 0
    assert seen["wide"] <= seen["view"]
    assert seen["pictures"] >= 6
