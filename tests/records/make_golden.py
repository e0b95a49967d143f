"""Writes the golden records of the current schema version; run once a version, then never again for it.

    PYTHONPATH=src:. python tests/records/make_golden.py tests/records/golden/v1

``closed`` is a run that was finished, ``crashed`` one whose writer died: journals only, the last entry torn.
"""

import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from tests.records.rows import exchange

from setpoint.records.exchange import Exchange, Outcome
from setpoint.records.meta import ScheduleFacts, Series
from setpoint.records.signal import SignalRow, SignalState
from setpoint.records.store import RunStore
from setpoint.records.writer import RunWriter


def rows() -> list[Exchange]:
    failed = msgspec.structs.replace(
        exchange(3, chunks=0), outcome=Outcome.REJECTED, status=429, retry_after_s=2.0, finish_reason=None
    )
    reasoning = msgspec.structs.replace(exchange(2), chunk_kinds="rrcc", first_visible_s=1.12, reasoning_tokens=2)
    return [exchange(0), exchange(1, chunks=2), reasoning, failed]


def fill(writer: RunWriter) -> None:
    for i, row in enumerate(rows()):
        writer.journal(i % 2).append(row)
    writer.signals(
        [
            SignalRow(time_s=0.5, signal="requests_waiting", value=2.0, state=SignalState.OK, source="waiting"),
            SignalRow(time_s=0.5, signal="kv_usage", value=None, state=SignalState.UNSUPPORTED, source="llamacpp"),
            SignalRow(time_s=1.0, signal="requests_waiting", value=None, state=SignalState.SCRAPE_FAILED, source=""),
        ]
    )
    writer.log("phase", name="measure", rate_per_s=2.0)
    writer.update(
        card={"name": "golden", "promises": [{"metric": "ttft", "quantile": 0.95, "limit": "800 ms"}]},
        pins={"model": "tiny", "engine": "fake", "engine_flags": {"slots": 4}, "schedule_seed": 7},
        target={"base_url": "http://127.0.0.1:8000", "dialect": "openai-chat", "model": "tiny"},
        schedule=ScheduleFacts(
            seed=7, digest="00" * 32, offered_per_s=2.0, concurrency=None, duration_s=2.0, requests=4
        ),
        series=Series(id="s1", kind="sweep", step=0),
        client={"lag_p99_s": 0.0002, "cpu_share": 0.05},
        environment={"cpu_model": "Some CPU", "cores_logical": 2},
        notes=["written for the golden test"],
    )


def main(folder: Path) -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    store = RunStore(folder / "making")
    writer = store.create("golden", at=at)
    fill(writer)
    record = writer.finish(summary={"exchanges": 4}, verdicts=[{"promise": "p95 TTFT ≤ 800 ms", "state": "undecided"}])
    record.path.rename(folder / "closed")
    writer = store.create("golden", at=at)
    fill(writer)
    shutil.copytree(writer.path, folder / "crashed", ignore=shutil.ignore_patterns(".writing"))
    writer.abort("copied")
    with (folder / "crashed" / "exchanges-1.journal").open("ab") as journal:
        journal.write(b"\x10\x00\x00\x00torn")
    shutil.rmtree(folder / "making")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
