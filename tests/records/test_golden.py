"""Records of older versions stay readable; see ``make_golden.py`` for what they hold."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from tests.records.make_golden import rows

from setpoint.errors import RecordError
from setpoint.records.meta import Status
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore

V1 = Path(__file__).parent / "golden" / "v1"


@pytest.mark.parametrize("state", ["closed", "crashed"])
def test_version_1_is_readable(state: str) -> None:
    record = RunRecord(V1 / state)
    meta = record.meta
    assert (meta.schema_version, meta.card_name, meta.pins["engine_flags"]) == (1, "golden", {"slots": 4})
    assert meta.schedule is not None
    assert meta.schedule.offered_per_s == 2.0
    assert meta.series is not None
    assert meta.series.kind == "sweep"
    assert sorted(record.iter_exchanges(), key=lambda e: e.index) == rows()
    assert record.exchanges()["chunk_kinds"].to_list() == ["cccc", "cc", "rrcc", ""]
    assert record.signals()["state"].to_list() == ["ok", "unsupported", "scrape_failed"]
    assert record.signals()["value"].to_list() == [2.0, None, None]
    assert record.log()[0]["event"] == "phase"


def test_a_closed_run_is_complete_and_a_crashed_one_is_not() -> None:
    closed, crashed = RunRecord(V1 / "closed"), RunRecord(V1 / "crashed")
    assert closed.complete
    assert closed.torn_entries() == 0
    assert closed.meta.summary == {"exchanges": 4}
    assert not crashed.complete
    assert crashed.meta.status is Status.INCOMPLETE
    assert crashed.meta.reason == "the process that wrote it ended without closing it"
    assert crashed.torn_entries() == 1


def test_a_column_that_an_older_version_lacks_reads_as_its_default(tmp_path: Path) -> None:
    shutil.copytree(V1 / "closed", tmp_path / "run")
    path = tmp_path / "run" / "exchanges.parquet"
    pl.read_parquet(path).drop("reused_connection", "within").write_parquet(path)
    found = list(RunRecord(tmp_path / "run").iter_exchanges())
    assert sorted(found, key=lambda e: e.index) == rows()
    assert RunRecord(tmp_path / "run").exchanges()["reused_connection"].to_list() == [None] * 4


def test_a_damaged_parquet_file_is_a_clear_error(tmp_path: Path) -> None:
    shutil.copytree(V1 / "closed", tmp_path / "run")
    path = tmp_path / "run" / "exchanges.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(RecordError, match=r"cannot read .*exchanges.parquet"):
        RunRecord(tmp_path / "run").exchanges()
    with pytest.raises(RecordError, match=r"cannot read .*exchanges.parquet"):
        list(RunRecord(tmp_path / "run").iter_exchanges())


def test_a_crashed_run_can_be_recovered(tmp_path: Path) -> None:
    run_id = RunRecord(V1 / "crashed").id
    shutil.copytree(V1 / "crashed", tmp_path / run_id)
    store = RunStore(tmp_path)
    record = store.recover(run_id)
    assert record.converted
    assert record.meta.reason == "the process that wrote it ended without closing it"
    assert sorted(record.iter_exchanges(), key=lambda e: e.index) == rows()
    assert record.log()[-1]["event"] == "torn_entries"
    assert not list(record.path.glob("*.journal"))
    assert store.recover(run_id).meta == record.meta
