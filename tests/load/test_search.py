"""The search and its early ends, against fake engines of known capacity."""

from pathlib import Path

import pytest
from tests.load.conftest import make_card

from setpoint.assess.bench import Bench
from setpoint.assess.target import TargetOptions, open_target
from setpoint.load.look import EarlyEnd
from setpoint.load.messages import Brief, Tick
from setpoint.load.progress import Tally
from setpoint.load.search import Search
from setpoint.metrics.capacity import highest_met, lowest_missed
from setpoint.metrics.verdict import State
from setpoint.records.exchange import Outcome
from setpoint.records.store import RunStore
from setpoint.report.build import build
from setpoint.report.step import Step
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Fault, FaultKind, Script
from setpoint.workload.card import Workload


def search(card: Workload, script: Script, folder: Path, budget_s: float, **options: object) -> Search:
    with fake_engine(script) as engine, open_target(card, TargetOptions(url=engine.url)) as opened:
        bench = Bench(card=card, folder=".", opened=opened, store=RunStore(folder))
        return bench.search(budget_s=budget_s, **options)  # type: ignore[arg-type]


@pytest.mark.timeout(180)
def test_brackets_the_capacity_of_a_fake_engine(tmp_path: Path) -> None:
    """Four slots of 6 tokens at 10 ms: 4 / 0.06 s = 66 requests a second; far below it all is well, above it grows."""
    card = make_card(
        arrivals={"process": "poisson", "rate": "30/s"}, promises=["p90 ttft <= 300 ms", "answered >= 90%"]
    )
    found = search(card, Script(slots=4, decode_s=0.01), tmp_path, budget_s=75)
    assert found.state is State.MET
    assert found.met is not None
    assert found.missed is not None
    assert found.met.load < 75
    assert found.missed.load > 45
    assert found.met.load < found.missed.load
    report = build([s.outcome.record for s in found.steps])
    assert report.state is State.MET
    steps = [Step(s.outcome.record) for s in found.steps]
    met, missed = highest_met(steps), lowest_missed(steps)  # the report finds the same two from the records alone
    assert met is not None
    assert missed is not None
    assert met.record.id == found.met.outcome.record.id
    assert missed.record.id == found.missed.outcome.record.id
    series = [s.outcome.record.meta.series for s in found.steps]
    assert all(s is not None and s.id == found.series for s in series)


def test_a_target_that_fails_misses_at_every_load(tmp_path: Path) -> None:
    faults = (Fault(kind=FaultKind.FAIL, first=4, every=2),)
    card = make_card(warmup_requests=0, promises=["p90 ttft <= 60 s", "answered >= 90%"])
    found = search(card, Script(faults=faults), tmp_path, budget_s=18)
    assert found.met is None
    assert found.state is State.MISSED
    assert "Even the lowest load tried misses" in found.advice


def test_a_budget_too_small_to_decide_leaves_it_undecided_and_says_what_it_takes(tmp_path: Path) -> None:
    card = make_card(arrivals={"process": "poisson", "rate": "1/s"}, promises=["p99 ttft <= 500 ms"])
    found = search(card, Script(), tmp_path, budget_s=14)
    assert found.state is State.UNDECIDED
    assert "undecided" in found.advice or "budget" in found.advice


@pytest.mark.timeout(240)
def test_users_in_closed_loop_can_be_searched(tmp_path: Path) -> None:
    """An answer takes 240 ms: users beyond the four slots wait for a share of that, eight of them for all of it."""
    card = make_card(
        arrivals={"process": "closed", "users": 2}, duration="20s", promises=["p90 ttft <= 240 ms", "answered >= 90%"]
    )
    found = search(card, Script(slots=4, decode_s=0.04), tmp_path, budget_s=100)
    assert found.unit == "users"
    assert found.met is not None
    assert found.met.load in range(2, 8)
    assert found.missed is not None
    assert found.missed.load > 4


def brief(index: int, ttft_s: float, outcome: Outcome = Outcome.COMPLETE) -> Brief:
    return Brief(index, index, index * 0.1, index * 0.1 + 1, 0.0, outcome, ttft_s, 0.01, 0.01, 6)


def tally_of(numbers: list[tuple[float, int]]) -> Tally:
    tally = Tally()
    for time_s, in_flight in numbers:
        tally.add(Tick(worker=0, time_s=time_s, started=0, in_flight=in_flight, cpu_s=0.0, stall_s=0.0, done=[]))
    return tally


def test_a_step_ends_when_its_verdict_is_certain() -> None:
    card = make_card()
    steady = tally_of([(i / 4, 3) for i in range(40)])
    assert EarlyEnd(card, 40)(steady, [brief(i, 0.1) for i in range(30)]) is None
    met = EarlyEnd(card, 40)(steady, [brief(i, 0.1) for i in range(200)])
    assert met is not None
    assert "every promise is met" in met.reason
    assert met.drain_s is None
    missed = EarlyEnd(card, 40)(steady, [brief(i, 0.9) for i in range(30)])
    assert missed is not None
    assert "missed for certain" in missed.reason
    assert missed.drain_s == 1.0  # as long as the longest limit, at least a second
    failed = [brief(i, 0.1, Outcome.ERROR if i % 2 else Outcome.COMPLETE) for i in range(60)]
    assert "missed for certain" in str(EarlyEnd(card, 40)(steady, failed))


def test_only_answers_before_the_first_open_one_are_judged() -> None:
    """The fast ones finish first: judging them alone would flatter the target."""
    late_is_open = [brief(i, 0.1) for i in range(1, 300)]
    assert EarlyEnd(make_card(), 40)(tally_of([(i / 4, 3) for i in range(40)]), late_is_open) is None


def test_a_backlog_that_grows_is_saturation_and_a_large_steady_one_is_not() -> None:
    card = make_card()
    growing = tally_of([(i / 4, i * 8) for i in range(60)])
    steady = tally_of([(i / 4, 300) for i in range(60)])
    settling = tally_of([(i / 4, min(i * 30, 400)) for i in range(60)])
    assert "does not keep up" in str(EarlyEnd(card, 40)(growing, []))
    assert EarlyEnd(card, 40)(steady, []) is None
    assert EarlyEnd(card, 40)(settling, []) is None


def test_a_promise_that_a_brief_cannot_judge_is_never_met_early() -> None:
    card = make_card(promises=["p90 ttft <= 500 ms", "p90 itl <= 50 ms"])
    steady = tally_of([(i / 4, 3) for i in range(40)])
    assert EarlyEnd(card, 40)(steady, [brief(i, 0.1) for i in range(2000)]) is None
