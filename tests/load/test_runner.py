"""Whole runs against a fake engine on real sockets."""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import psutil
import pytest
from tests.load.conftest import Make, make_card, numbers, planned

from setpoint.engines.signals import SignalSampler
from setpoint.errors import TargetError
from setpoint.load.progress import Phase, Progress, Tally
from setpoint.load.runner import _Run
from setpoint.load.spec import Ending
from setpoint.metrics.verdict import State
from setpoint.records.exchange import Outcome
from setpoint.records.meta import Status
from setpoint.records.signal import SignalRow
from setpoint.records.target import Dialect, Target
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Fault, FaultKind, Script


def test_every_planned_send_is_an_exchange_and_is_recorded(make_run: Make) -> None:
    card = make_card()
    with fake_engine(Script()) as engine:
        outcome = make_run(card, engine.url)
    rows = outcome.record.exchanges()
    measured = rows.filter(~pl.col("warmup"))
    assert measured.height == planned(outcome).requests == outcome.summary.exchanges
    assert sorted(measured["index"].to_list()) == list(range(planned(outcome).requests))
    assert rows.filter(pl.col("warmup")).height == card.traffic.warmup_requests
    assert outcome.record.meta.status is Status.COMPLETE
    assert outcome.state is not State.MISSED


def test_warm_up_is_before_the_origin_and_never_counted(make_run: Make) -> None:
    slow_start = Fault(kind=FaultKind.SLOW, first=0, last=2, seconds=3.0)
    with fake_engine(Script(faults=(slow_start,))) as engine:
        outcome = make_run(make_card(), engine.url)
    rows = outcome.record.exchanges()
    warm = rows.filter(pl.col("warmup"))
    assert (warm["scheduled_s"] < 0).all()
    assert (numbers(warm, "first_visible_s") - numbers(warm, "scheduled_s")).max() >= 3.0
    longest = outcome.summary.distributions["ttft"].maximum
    assert longest is not None
    assert longest < 3.0  # none of them shows the slow start
    assert any("first request of the warm-up waited" in note for note in outcome.record.meta.notes)


def test_open_loop_sends_go_on_while_the_server_is_frozen(make_run: Make) -> None:
    """The measured part freezes for good: sends are still made at their planned times, and count as failed."""
    card = make_card(warmup_requests=0)
    with fake_engine(Script(faults=(Fault(kind=FaultKind.FREEZE),))) as engine:
        outcome = make_run(card, engine.url, drain_s=0.5)
    rows = outcome.record.exchanges()
    lag = (rows["started_s"] - rows["scheduled_s"]).to_numpy()
    assert rows.height == planned(outcome).requests
    assert np.quantile(lag, 0.9) < 0.2
    assert set(rows["outcome"]) == {"cancelled"}
    assert outcome.state is not State.MET


def test_latency_counts_from_the_scheduled_send(make_run: Make) -> None:
    """One slot, slow answers: waiting belongs to the latency, so no omission hides the queue."""
    card = make_card(arrivals={"process": "constant", "rate": "20/s"}, duration="1s", warmup_requests=1)
    with fake_engine(Script(slots=1, decode_s=0.02)) as engine:
        outcome = make_run(card, engine.url)
    rows = outcome.record.exchanges().filter(~pl.col("warmup")).sort("index")
    ttft = (rows["first_visible_s"] - rows["scheduled_s"]).to_numpy()
    assert ttft[-1] > ttft[0] + 0.5
    assert outcome.summary.window.growing


def test_closed_loop_never_has_more_in_flight_than_users(make_run: Make) -> None:
    card = make_card(arrivals={"process": "closed", "users": 5}, duration="2s")
    seen: list[Progress] = []
    with fake_engine(Script(decode_s=0.01)) as engine:
        outcome = make_run(card, engine.url, listen=seen.append)
    rows = outcome.record.exchanges().filter(~pl.col("warmup"))
    begun, done = np.sort(rows["started_s"].to_numpy()), np.sort(rows["done_s"].to_numpy())
    in_flight = np.searchsorted(begun, begun, side="right") - np.searchsorted(done, begun, side="left")
    assert in_flight.max() <= 5
    assert rows.height > 30
    assert max(p.in_flight for p in seen) <= 5


def test_turns_carry_the_answers_received_and_wait_for_them(make_run: Make) -> None:
    card = make_card(
        arrivals={"process": "constant", "rate": "4/s"},
        conversation={"turns": 3, "think_time": "0.1s"},
        duration="1s",
    )
    with fake_engine(Script(decode_s=0.005)) as engine:
        outcome = make_run(card, engine.url)
    rows = outcome.record.exchanges().filter(~pl.col("warmup")).sort("session", "turn")
    whole = 0
    for _, turns in rows.group_by("session"):
        scheduled, done = turns["scheduled_s"].to_numpy(), turns["done_s"].to_numpy()
        assert turns["turn"].to_list() == list(range(turns.height))
        whole += turns.height == 3
        if turns.height < 3:  # only a turn that falls beyond the send window is never scheduled
            assert done[-1] + 0.1 > 1.0
        assert scheduled[1:] == pytest.approx(done[:-1] + 0.1, abs=1e-6)
        prompts = turns["prompt_tokens"].to_numpy()
        assert np.all(np.diff(prompts) >= 24 + 6 - 8)
    assert whole >= 2


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_share_one_schedule(make_run: Make, workers: int) -> None:
    with fake_engine(Script()) as engine:
        outcome = make_run(make_card(), engine.url, workers=workers)
    rows = outcome.record.exchanges().filter(~pl.col("warmup"))
    assert set(rows["worker"]) == set(range(workers))
    assert sorted(rows["index"].to_list()) == list(range(planned(outcome).requests))


@pytest.mark.parametrize("dialect", [Dialect.CHAT, Dialect.COMPLETIONS, Dialect.MESSAGES, Dialect.EMBEDDINGS])
def test_every_dialect(make_run: Make, dialect: Dialect) -> None:
    api = {Dialect.MESSAGES: "messages", Dialect.COMPLETIONS: "completions", Dialect.EMBEDDINGS: "embeddings"}
    contract: dict[str, object] = {"unit": "answer", "api": api.get(dialect, "chat")}
    if dialect is Dialect.EMBEDDINGS:
        contract |= {"streaming": False, "response": "vector", "modality": "embedding"}
    card = make_card(contract=contract, promises=["p80 e2e <= 5s"])
    with fake_engine(Script()) as engine:
        outcome = make_run(card, engine.url, dialect=dialect)
    assert outcome.summary.answered == outcome.summary.exchanges > 50
    assert outcome.state is not State.MISSED
    assert {o for o, n in outcome.summary.outcomes.items() if n} <= {"complete", "length"}


def test_lengths_are_forced_where_the_engine_allows_it_and_the_pins_say_so(make_run: Make) -> None:
    with fake_engine(Script(output_tokens=3)) as engine:
        forced = make_run(make_card(), engine.url)
    with fake_engine(Script(output_tokens=3, honours_ignore_eos=False)) as engine:
        free = make_run(make_card(), engine.url)
    assert forced.record.meta.pins["output_lengths"] == "forced"
    assert set(forced.record.exchanges()["completion_tokens"]) == {6}
    assert free.record.meta.pins["output_lengths"] == "free"
    assert set(free.record.exchanges()["completion_tokens"]) == {3}


def test_prompts_have_the_planned_length_template_included(make_run: Make) -> None:
    with fake_engine(Script(template_tokens=11)) as engine:
        outcome = make_run(make_card(), engine.url)
    rows = outcome.record.exchanges().filter(~pl.col("warmup"))
    assert set(rows["prompt_tokens"]) == {24}


def test_prompts_never_hit_the_prefix_cache_by_accident(make_run: Make) -> None:
    with fake_engine(Script(prefix_cache=True)) as engine:
        first = make_run(make_card(prompt_tokens=64), engine.url)
        second = make_run(make_card(prompt_tokens=64), engine.url)  # the same seed again
    for outcome in (first, second):
        assert set(outcome.record.exchanges()["cached_tokens"].fill_null(0)) == {0}


def test_a_shared_prefix_is_shared(make_run: Make) -> None:
    card = make_card(prompt_tokens=96, prefix={"tokens": 64, "groups": 1, "share": 1.0})
    with fake_engine(Script(prefix_cache=True)) as engine:
        outcome = make_run(card, engine.url)
    rows = outcome.record.exchanges().filter(~pl.col("warmup")).sort("done_s")
    assert numbers(rows, "cached_tokens")[-10:].min() >= 32


@pytest.mark.parametrize(
    ("kind", "outcome_name"),
    [
        (FaultKind.TRUNCATE, "truncated"),
        (FaultKind.RESET, "truncated"),
        (FaultKind.ERROR_EVENT, "error"),
        (FaultKind.REJECT, "rejected"),
        (FaultKind.BUSY, "rejected"),
        (FaultKind.FAIL, "error"),
        (FaultKind.GARBAGE, "malformed"),
        (FaultKind.EMPTY, "empty"),
        (FaultKind.REASONING, "reasoning_exhausted"),
    ],
)
def test_a_failing_answer_counts_against_every_promise(make_run: Make, kind: FaultKind, outcome_name: str) -> None:
    fault = Fault(kind=kind, first=3, every=2)
    card = make_card(promises=["p90 ttft <= 60 s", "answered >= 90%"])
    with fake_engine(Script(faults=(fault,))) as engine:
        outcome = make_run(card, engine.url)
    assert outcome.summary.outcomes[outcome_name] > 20
    assert [v.state for v in outcome.verdicts] == [State.MISSED, State.MISSED]


def test_an_engine_that_dies_in_the_middle_ends_the_run_and_keeps_what_was_done(make_run: Make) -> None:
    card = make_card(duration="20s")
    with fake_engine(Script()) as engine:

        def dead() -> str | None:
            try:
                os.kill(engine.pid, 0)
            except OSError:
                return "the engine died"
            return None if _state(engine.pid) != "Z" else "the engine died"

        threading.Timer(1.5, os.kill, (engine.pid, signal.SIGKILL)).start()
        begun = time.monotonic()
        outcome = make_run(card, engine.url, alive=dead)
    assert time.monotonic() - begun < 15
    assert outcome.record.meta.status is Status.INCOMPLETE
    assert outcome.record.meta.reason == "the engine died"
    assert outcome.summary.answered > 10
    assert outcome.state is not State.MET


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def test_a_killed_worker_leaves_a_readable_record(make_run: Make) -> None:
    card = make_card(duration="4s")
    killed = threading.Event()

    def kill_one(moment: Progress) -> None:
        if moment.phase is Phase.MEASURE and moment.started > 20 and not killed.is_set():
            killed.set()
            os.kill(_worker_of(os.getpid()), signal.SIGKILL)

    with fake_engine(Script()) as engine:
        outcome = make_run(card, engine.url, workers=2, listen=kill_one)
    assert killed.is_set()
    meta = outcome.record.meta
    assert meta.status is Status.INCOMPLETE
    assert meta.reason is not None
    assert "SIGKILL" in meta.reason
    rows = outcome.record.exchanges().filter(~pl.col("warmup"))
    assert 20 < rows.height < planned(outcome).requests
    assert outcome.state is not State.MET


def test_a_hopeless_step_does_not_wait_for_its_backlog(make_run: Make) -> None:
    """What the client ended has no value of its own; what had waited past its limit by then has broken it."""
    card = make_card(warmup_requests=0, duration="60s", promises=["p90 ttft <= 200 ms", "answered >= 50%"])

    def hopeless(tally: Tally, _: object) -> Ending | None:
        return Ending("it is hopeless", drain_s=1.0) if tally.started > 30 else None

    with fake_engine(Script(slots=1, decode_s=3.0)) as engine:
        outcome = make_run(card, engine.url, rate_per_s=20.0, look=hopeless)
    rows = outcome.record.exchanges().filter(~pl.col("warmup"))
    assert rows.filter(pl.col("outcome") == Outcome.CANCELLED.value).height > 20
    assert outcome.record.meta.status is Status.COMPLETE
    assert outcome.ended_early == "it is hopeless"
    ttft = outcome.verdicts[0]
    assert ttft.high is not None
    assert ttft.high < ttft.required
    assert outcome.verdicts[1].state is State.UNDECIDED  # nobody knows what would have become of them


def _worker_of(parent: int) -> int:
    children = psutil.Process(parent).children()
    return next(c.pid for c in children if "setpoint.load.worker" in c.cmdline())


def test_interrupt_ends_the_run_and_keeps_what_was_done(make_run: Make) -> None:
    card = make_card(duration="30s")

    def interrupt(moment: Progress) -> None:
        if moment.phase is Phase.MEASURE and sum(moment.outcomes.values()) > 20 and not sent.is_set():
            sent.set()
            os.kill(os.getpid(), signal.SIGINT)

    sent = threading.Event()
    begun = time.monotonic()
    with fake_engine(Script()) as engine:
        outcome = make_run(card, engine.url, listen=interrupt)
    assert time.monotonic() - begun < 20
    assert outcome.interrupted
    assert outcome.record.meta.status is Status.INCOMPLETE
    assert outcome.summary.answered > 20
    assert outcome.state is not State.MET


def test_signals_are_sampled_on_the_runs_clock(make_run: Make) -> None:
    with fake_engine(Script(slots=1, decode_s=0.01)) as engine:
        target = Target(engine.url, Dialect.CHAT, "fake", metrics_url=f"{engine.url}/metrics")
        sampler = SignalSampler(target, "fake")
        outcome = make_run(make_card(duration="4s"), engine.url, sampler=sampler)
    signals = outcome.record.signals()
    waiting = signals.filter(pl.col("signal") == "requests_waiting")
    assert waiting.height >= 3
    assert numbers(waiting, "value").max() > 1
    assert waiting["time_s"].is_sorted()
    assert numbers(waiting, "time_s").min() > -2


def test_no_answer_to_the_warm_up_is_a_clear_error(make_run: Make) -> None:
    with (
        fake_engine(Script(faults=(Fault(kind=FaultKind.FAIL),))) as engine,
        pytest.raises(TargetError, match="warm-up request was not answered"),
    ):
        make_run(make_card(), engine.url)


def test_a_promise_tighter_than_the_client_itself_is_undecided(make_run: Make) -> None:
    card = make_card(promises=["p90 ttft <= 1 ms"])
    with fake_engine(Script(decode_s=0.0)) as engine:
        outcome = make_run(card, engine.url)
    assert outcome.state is State.UNDECIDED
    assert "client was the bottleneck" in outcome.verdicts[0].reason


def test_tasks_that_have_begun_are_finished_after_the_send_window(make_run: Make) -> None:
    agent = {"tool_turns": 2, "tool_time": "0.4s", "result_tokens": 8}
    card = make_card(
        arrivals={"process": "constant", "rate": "10/s"}, agent=agent, duration="1s", promises=["p50 e2e <= 5 s"]
    )
    with fake_engine() as engine:
        outcome = make_run(card, engine.url)
    rows = outcome.record.exchanges().filter(~pl.col("warmup"))
    assert rows.height == planned(outcome).requests
    assert numbers(rows, "scheduled_s").max() > 1.0
    assert outcome.summary.distributions["task_e2e"].samples == rows["session"].n_unique()


def test_a_task_that_the_end_of_the_run_cuts_off_leaves_a_mark(make_run: Make) -> None:
    agent = {"tool_turns": 2, "tool_time": "30s", "result_tokens": 8}
    card = make_card(arrivals={"process": "constant", "rate": "10/s"}, agent=agent, promises=["p50 e2e <= 5 s"])
    with fake_engine() as engine:
        outcome = make_run(card, engine.url, duration_s=1, drain_s=1)
    rows = outcome.record.exchanges().filter(~pl.col("warmup"))
    assert rows.filter(pl.col("turn") == 1)["outcome"].unique().to_list() == ["cancelled"]
    assert outcome.state is State.UNDECIDED


@pytest.mark.parametrize("turns", range(5))
def test_sampling_ends_also_when_it_is_told_to_in_the_moment_of_a_reading(turns: int) -> None:
    async def sampled() -> bool:
        reading: asyncio.Future[list[SignalRow]] = asyncio.get_running_loop().create_future()

        async def sampler(_: float) -> list[SignalRow]:
            return await reading

        made = object.__new__(_Run)
        made.writer = mock.Mock()
        task = asyncio.create_task(made._sample(sampler, 0.0))
        await asyncio.sleep(0.01)
        reading.set_result([])
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait({task}, timeout=2)
        return task.cancelled()

    assert asyncio.run(sampled())
