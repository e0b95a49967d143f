"""A run from creation to close, and what a reader sees at each moment between."""

from pathlib import Path

import polars as pl
import pytest
from tests.records.rows import exchange

from setpoint.errors import RecordError
from setpoint.records.meta import Status
from setpoint.records.signal import SignalRow, SignalState
from setpoint.records.store import RunStore


def test_a_finished_run_holds_what_was_written(tmp_path: Path) -> None:
    writer = RunStore(tmp_path).create("Support chat")
    for worker in (0, 1):
        journal = writer.journal(worker)
        for i in range(worker, 10, 2):
            journal.append(exchange(i))
    reading = SignalRow(time_s=1.0, signal="requests_waiting", value=3.0, state=SignalState.OK, source="x")
    writer.signals([reading])
    writer.log("started", rate_per_s=2.0)
    record = writer.finish(summary={"n": 10}, verdicts=[{"promise": "p", "state": "met"}])

    assert record.complete
    assert record.meta.summary == {"n": 10}
    assert list(record.iter_exchanges()) == [exchange(i) for i in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]
    assert record.exchanges()["index"].to_list() == list(range(10))
    assert record.signals().to_dicts() == [
        {"time_s": 1.0, "signal": "requests_waiting", "value": 3.0, "state": "ok", "source": "x"}
    ]
    assert [e["event"] for e in record.log()] == ["started"]
    assert sorted(p.name for p in record.path.iterdir()) == [
        "exchanges.parquet",
        "log.jsonl",
        "run.json",
        "signals.parquet",
    ]


def test_a_run_is_readable_while_it_is_written(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    writer = store.create("chat")
    writer.journal(0).append(exchange(0))
    record = store.open("latest")
    assert record.meta.status is Status.RUNNING
    assert not record.complete
    assert list(record.iter_exchanges()) == [exchange(0)]
    assert record.exchanges().height == 1
    assert record.signals().height == 0
    writer.abort("Ctrl-C")
    closed = store.open("latest")
    assert (closed.meta.status, closed.meta.reason) == (Status.INCOMPLETE, "Ctrl-C")
    assert list(closed.iter_exchanges()) == [exchange(0)]


def test_journal_and_parquet_give_the_same_frame(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    writer = store.create("chat")
    for i in (3, 1, 2):
        writer.journal(0).append(exchange(i, chunks=i))
    before = store.open("latest").exchanges()
    after = writer.finish().exchanges()
    assert before.equals(after)
    assert before.schema == after.schema
    assert isinstance(before, pl.DataFrame)


def test_a_closed_run_takes_nothing_more(tmp_path: Path) -> None:
    writer = RunStore(tmp_path).create("chat")
    writer.finish()
    with pytest.raises(RecordError, match="is closed"):
        writer.log("late")


def test_a_signal_has_a_value_exactly_when_it_is_ok() -> None:
    for state in SignalState:
        for value in (0.0, None):
            if (state is SignalState.OK) == (value is not None):
                assert SignalRow(time_s=0, signal="s", value=value, state=state, source="").value == value
            else:
                with pytest.raises(ValueError, match="only ok has a value"):
                    SignalRow(time_s=0, signal="s", value=value, state=state, source="")


def test_what_json_cannot_hold_is_refused_and_the_run_goes_on(tmp_path: Path) -> None:
    writer = RunStore(tmp_path).create("chat")
    with pytest.raises(RecordError, match="log event odd"):
        writer.log("odd", thing=object())
    with pytest.raises(RecordError, match="cannot be written as JSON"):
        writer.update(pins={"thing": object()})
    assert writer.finish(pins={"model": "m"}).meta.pins == {"model": "m"}
