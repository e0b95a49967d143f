"""Quality of the answers that are produced while the card's load is on the target."""

from pathlib import Path

import pytest
from tests.load.conftest import make_card
from tests.quality.suites import engine_for, words_suite

from setpoint.assess.bench import Bench
from setpoint.assess.evaluation import evaluate_idle, evaluate_under_load
from setpoint.assess.target import OpenTarget
from setpoint.engines.signals import SignalSampler
from setpoint.metrics.verdict import State
from setpoint.quality.compare import compare
from setpoint.quality.questions import Sampling
from setpoint.quality.suite import Suite
from setpoint.records.meta import Status
from setpoint.records.store import RunStore
from setpoint.records.target import Target
from setpoint.report.build import build
from setpoint.report.content import Table
from setpoint.report.under_load import against_idle, own_answers
from setpoint.testing.script import Fault, FaultKind

PROMISES = ["quality(words) >= 50%", "p50 ttft <= 2s"]


def bench_of(folder: Path, target: Target, **traffic: object) -> Bench:
    card = make_card(promises=PROMISES, **traffic)
    opened = OpenTarget(target, {"engine": "fake"}, SignalSampler(target, None), None, local=False)
    return Bench(card=card, folder=".", opened=opened, store=RunStore(folder / "runs"))


@pytest.fixture
def suite() -> Suite:
    return words_suite()


def test_the_promise_is_judged_from_answers_given_under_load_in_the_same_record(tmp_path: Path, suite: Suite) -> None:
    with engine_for(suite, decode_s=0.002) as target:
        bench = bench_of(tmp_path, target, duration="20s")
        outcome = evaluate_under_load(bench, [suite])
    record = outcome.record
    rows = record.quality()
    assert record.meta.status is Status.COMPLETE
    assert rows.height == 20
    assert rows["under_load"].all()
    sends = record.exchanges(["started_s", "warmup"])
    assert sends.filter(~sends["warmup"]).height > 0
    quality = next(v for v in outcome.verdicts if v.metric == "quality")
    assert (quality.state, quality.share) == (State.MET, 1.0)
    assert record.meta.quality is not None
    assert record.meta.quality["suites"]["words"]["controls"]["positive"] == 1.0
    tables = {b.title: b for b in build([record]).sections[4].blocks if isinstance(b, Table)}
    assert tables["Quality of the answers"].rows[0][1].text == "under load"
    assert own_answers(record)[0] is State.MET


def test_a_server_that_errs_only_under_load_is_found(tmp_path: Path, suite: Suite) -> None:
    """Idle it answers all; later, every second request fails: the idle score would hide it."""
    fault = Fault(kind=FaultKind.BUSY, first=24, every=2)
    with engine_for(suite, decode_s=0.05, faults=(fault,)) as target:
        bench = bench_of(tmp_path, target, duration="20s", arrivals={"process": "poisson", "rate": "60/s"})
        idle = evaluate_idle(bench.opened, bench.store, [suite], card=bench.card)
        loaded = evaluate_under_load(bench, [suite], sampling=Sampling(concurrency=1))
    assert [v.state for v in idle.verdicts] == [State.MET]
    quality = next(v for v in loaded.verdicts if v.metric == "quality")
    assert quality.state is State.UNDECIDED
    assert "coverage too low" in quality.reason


def test_questions_that_the_load_did_not_last_for_are_unmeasured(tmp_path: Path, suite: Suite) -> None:
    with engine_for(suite, decode_s=0.3) as target:
        bench = bench_of(tmp_path, target, duration="4s", arrivals={"process": "poisson", "rate": "2/s"})
        outcome = evaluate_under_load(bench, [suite], duration_s=4.0)
    rows = outcome.record.quality()
    unsent = rows.filter(rows["score"].is_null())
    assert rows.height == 20
    assert 0 < unsent.height < 20
    assert set(unsent["reason"]) == {"not sent: the load ended before"}
    assert next(v for v in outcome.verdicts if v.metric == "quality").state is State.UNDECIDED


def test_idle_and_loaded_answers_can_be_compared(tmp_path: Path, suite: Suite) -> None:
    drawn = Sampling(concurrency=1)
    with engine_for(suite) as target:
        bench = bench_of(tmp_path, target, duration="20s")
        idle = evaluate_idle(bench.opened, bench.store, [suite], card=bench.card, sampling=drawn)
        loaded = evaluate_under_load(bench, [suite], sampling=drawn)
        load = bench.one(duration_s=1.0).record
    found = compare(idle.record, loaded.record, delta=0.2)
    assert [d.pin for d in found.changes] == ["load"]
    assert found.suites[0].state is State.MET
    assert found.suites[0].same_answers == 1.0
    [against] = against_idle([idle.record], [loaded.record])
    assert (against.tasks, against.difference) == (20, 0.0)
    report = build([load, idle.record, loaded.record])
    tables = {b.title: b for s in report.sections for b in s.blocks if isinstance(b, Table)}
    [row] = tables["Under load against idle"].rows
    assert [cell.text for cell in row][:5] == [
        "words",
        "undecided",
        "20",
        "100.0%",
        "100.0%",
    ]  # 20 equal pairs show no 5%


def test_what_is_asked_in_another_way_is_not_paired(tmp_path: Path, suite: Suite) -> None:
    with engine_for(suite) as target:
        bench = bench_of(tmp_path, target, duration="20s")
        idle = evaluate_idle(bench.opened, bench.store, [suite], sampling=Sampling(concurrency=4))
        loaded = evaluate_under_load(bench, [suite], sampling=Sampling(concurrency=1))
    assert against_idle([idle.record], [loaded.record]) == []


def test_answers_that_break_only_under_load_are_told_from_the_loads_own(tmp_path: Path, suite: Suite) -> None:
    fault = Fault(kind=FaultKind.TRUNCATE, first=8)
    with engine_for(suite, faults=(fault,), decode_s=0.02) as target:
        bench = bench_of(tmp_path, target, duration="20s")
        record = evaluate_under_load(bench, [suite]).record
    state, words = own_answers(record)
    assert state is State.MISSED
    assert "truncated" in words
    tables = {b.title: b for b in build([record]).sections[4].blocks if isinstance(b, Table)}
    assert [row[1].text for row in tables["Contracts of the server"].rows] == ["missed"]


def test_a_load_and_an_evaluation_make_one_report(tmp_path: Path, suite: Suite) -> None:
    with engine_for(suite) as target:
        bench = bench_of(tmp_path, target, duration="3s")
        load = bench.one().record
        alone = build([load])
        idle = evaluate_idle(bench.opened, bench.store, [suite], card=bench.card).record
    assert alone.state is State.UNDECIDED
    assert "setpoint eval CARD measures it" in alone.headline
    report = build([load, idle])
    assert "quality (words) ≥ 50.0% is met." in report.headline
    criteria = next(b for b in report.sections[4].blocks if isinstance(b, Table))
    assert [row[3].text for row in criteria.rows if row[0].text == "quality"] == ["met"]
    assert {r.id for r in report.records} == {load.id, idle.id}
