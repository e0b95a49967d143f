"""What stands beside speed, from the rows and signals of both arms."""

from pathlib import Path

import msgspec
import pytest
from tests.metrics.rows import exchange

from setpoint.experiments.beside import beside_speed
from setpoint.records.exchange import Outcome
from setpoint.records.record import RunRecord
from setpoint.records.signal import SignalRow, SignalState
from setpoint.records.store import RunStore


def run(folder: Path, *, cached: int, accepted: int | None, memory: float, lost: int = 0) -> RunRecord:
    writer = RunStore(folder).create("beside")
    rows = [
        msgspec.structs.replace(
            exchange(i, outcome=Outcome.ERROR if i < lost else Outcome.COMPLETE, completion_tokens=4),
            cached_tokens=cached, draft_tokens=None if accepted is None else 10, accepted_tokens=accepted,
        )
        for i in range(10)
    ]  # fmt: skip
    for row in rows:
        writer.journal(0).append(row)
    known = {"engine_memory": (memory / 2, memory), "kv_usage": (0.2, 0.6), "preemptions": (3.0, 5.0)}
    writer.signals(
        SignalRow(time_s=time_s, signal=name, state=SignalState.OK, value=values[i], source="engine")
        for name, values in known.items()
        for i, time_s in enumerate((0.5, 8.0))
    )
    return writer.finish()


def test_acceptance_cache_memory_preemptions_failures_and_cost_are_told_of_both_arms(tmp_path: Path) -> None:
    a = [run(tmp_path, cached=8, accepted=9, memory=2e9), run(tmp_path, cached=8, accepted=7, memory=4e9)]
    b = [run(tmp_path, cached=16, accepted=2, memory=1e9, lost=5)]
    found = {row.name: row for row in beside_speed(a, b, price_per_hour=3.6)}
    told = {name: [row.a, row.b] for name, row in found.items()}
    assert told["accepted of drafted tokens"] == pytest.approx([0.8, 0.2])
    assert told["prompt tokens from the cache"] == pytest.approx([0.25, 0.5])
    assert told["peak memory of the engine"] == [3e9, 1e9]
    assert told["peak share of the KV cache in use"] == [0.6, 0.6]
    assert told["preemptions a run"] == [2.0, 2.0]
    assert told["unanswered requests"] == [0.0, 0.5]
    cost = found["cost of a million output tokens"]
    assert cost.a is not None
    assert cost.b is not None
    assert cost.b > cost.a  # the same price for half of the answers
    assert found["peak memory of the engine"].shown(3e9) != "unknown"


def test_what_nobody_reports_is_unknown_and_not_zero(tmp_path: Path) -> None:
    writer = RunStore(tmp_path).create("beside")
    for i in range(4):
        writer.journal(0).append(exchange(i))
    bare = writer.finish()
    found = {row.name: row for row in beside_speed([bare], [bare])}
    for name in ("accepted of drafted tokens", "prompt tokens from the cache", "peak memory of the engine"):
        assert (found[name].a, found[name].shown(found[name].a)) == (None, "unknown")
    assert found["cost of a million output tokens"].a is None
