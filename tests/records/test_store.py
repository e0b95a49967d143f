"""Creating, listing and opening runs."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from tests.records.rows import exchange
from tests.records.test_crash import ENVIRONMENT

from setpoint.errors import RecordError, UsageError
from setpoint.records.meta import RunMeta, Series, Status, encode_meta
from setpoint.records.store import RunStore


def closed_run(store: RunStore, name: str = "chat", second: int = 0) -> str:
    writer = store.create(name, at=datetime(2026, 1, 2, 3, 4, second, tzinfo=UTC))
    writer.finish(verdicts=[{"promise": "p95 TTFT", "state": "met"}])
    return writer.id


def test_an_id_tells_time_and_card(tmp_path: Path) -> None:
    run_id = closed_run(RunStore(tmp_path), "Support Chat (v2)!")
    assert run_id[:-6] == "20260102-030400-support-chat-v2-"
    assert (tmp_path / run_id / "run.json").is_file()


@pytest.mark.parametrize("name", ["", "///", "☃", "x" * 400])
def test_any_card_name_gives_a_folder(tmp_path: Path, name: str) -> None:
    store = RunStore(tmp_path)
    run_id = closed_run(store, name)
    assert len(run_id) < 80
    assert store.ids() == [run_id]
    assert store.open("latest").meta.card_name == name


def test_runs_are_found_by_id_beginning_end_path_and_latest(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    first, second = closed_run(store, "a", 1), closed_run(store, "b", 2)
    for ref in (first, first[:17], first[-6:], tmp_path / first, tmp_path / first / "run.json"):
        assert store.open(ref).id == first
    assert store.open("latest").id == second


@pytest.mark.parametrize("ref", ["nothing", ""])
def test_an_unknown_run_is_a_usage_error(tmp_path: Path, ref: str) -> None:
    closed_run(RunStore(tmp_path))
    with pytest.raises(UsageError, match=r"no run .*setpoint runs"):
        RunStore(tmp_path).open(ref)


def test_an_ambiguous_beginning_names_the_candidates(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    ids = {closed_run(store, "a", i) for i in range(3)}
    with pytest.raises(UsageError, match="not unique") as e:
        store.open("20260102")
    assert all(i in str(e.value) for i in ids)


def test_an_empty_store_has_no_latest(tmp_path: Path) -> None:
    assert RunStore(tmp_path / "none").list() == []
    with pytest.raises(UsageError, match=r"no run in .* yet"):
        RunStore(tmp_path / "none").open("latest")


def test_the_list_is_newest_first_and_tells_the_verdicts(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    ids = [closed_run(store, "a", i) for i in (5, 1, 3)]
    runs = store.list()
    assert [r.id for r in runs] == [ids[0], ids[2], ids[1]]
    assert runs[0].verdicts == (("p95 TTFT", "met"),)
    assert {r.status for r in runs} == {Status.COMPLETE}


def test_latest_tells_runs_of_one_second_apart(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    ids = []
    for microsecond in (5, 900_000, 300):
        writer = store.create("a", at=datetime(2026, 1, 2, 3, 4, 5, microsecond, tzinfo=UTC))
        writer.finish()
        ids.append(writer.id)
    assert store.open("latest").id == ids[1]
    assert store.list()[0].id == ids[1]


def test_other_folders_and_files_are_not_runs(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "readme.txt").write_text("x")
    assert RunStore(tmp_path).list() == []


def test_a_damaged_run_is_listed_with_the_reason_and_hides_no_other(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    good, bad = closed_run(store, "a", 1), closed_run(store, "a", 2)
    (tmp_path / bad / "run.json").write_bytes(b'{"schema_version": 1, "id": ')
    runs = store.list()
    assert [r.id for r in runs] == [bad, good]
    assert runs[0].error is not None
    assert "is damaged" in runs[0].error
    with pytest.raises(RecordError, match=r"run.json is damaged.*exchanges.parquet"):
        store.open(bad)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is damaged"),
        (b"[]", "is damaged"),
        (b"{}", "is damaged: Object missing required field `schema_version`"),
        (b'{"schema_version": 1}', "is damaged: Object missing required field `id`"),
        (b'{"schema_version": "one"}', "is damaged"),
        (b'{"schema_version": 0}', "expected 1 or above"),
        (b'{"schema_version": 2, "other": true}', r"schema version 2; this setpoint reads up to 1.*Upgrade"),
    ],
)
def test_a_run_json_that_is_not_understood_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    store = RunStore(tmp_path)
    run_id = closed_run(store)
    (tmp_path / run_id / "run.json").write_bytes(content)
    with pytest.raises(RecordError, match=message):
        store.open(run_id)
    assert store.list()[0].error is not None


def test_a_newer_version_with_the_same_fields_is_refused_in_the_list_too(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    run_id = closed_run(store)
    path = tmp_path / run_id / "run.json"
    path.write_bytes(path.read_bytes().replace(b'"schema_version": 1', b'"schema_version": 2'))
    error = store.list()[0].error
    assert error is not None
    assert "schema version 2" in error


def test_processes_create_runs_side_by_side(tmp_path: Path) -> None:
    script = (
        "import sys; from datetime import UTC, datetime; from pathlib import Path\n"
        "from setpoint.records.store import RunStore\n"
        "from tests.records.rows import exchange\n"
        "for i in range(10):\n"
        "    w = RunStore(Path(sys.argv[1])).create('same', at=datetime(2026, 1, 1, tzinfo=UTC))\n"
        "    w.journal(0).append(exchange(i)); w.finish()\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", script, tmp_path / "runs"], env=ENVIRONMENT) for _ in range(2)]
    assert [w.wait(timeout=60) for w in writers] == [0, 0]
    runs = RunStore(tmp_path / "runs").list()
    assert len(runs) == 20
    assert {r.status for r in runs} == {Status.COMPLETE}


def test_a_running_run_is_listed_as_running(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    writer = store.create("chat")
    writer.update(series=Series(id="s", kind="sweep", step=2))
    assert store.list()[0].status is Status.RUNNING
    assert store.list()[0].series == Series(id="s", kind="sweep", step=2)
    assert store.recover(writer.id).meta.status is Status.RUNNING
    writer.journal(0).append(exchange(0))
    writer.finish()
    assert store.list()[0].status is Status.COMPLETE


def test_thousands_of_runs_are_listed_without_reading_their_exchanges(tmp_path: Path) -> None:
    for i in range(2000):
        run_id = f"20260101-{i // 3600:02d}{i // 60 % 60:02d}{i % 60:02d}-chat-{i:06x}"
        (tmp_path / run_id).mkdir()
        meta = RunMeta(id=run_id, created=f"{i:06d}", card_name="chat", status=Status.COMPLETE)
        (tmp_path / run_id / "run.json").write_bytes(encode_meta(meta))
    runs = RunStore(tmp_path).list()
    assert len(runs) == 2000
    assert runs[0].id > runs[-1].id


def test_updates_keep_identity_and_status(tmp_path: Path) -> None:
    writer = RunStore(tmp_path).create("chat")
    foreign = RunMeta(id="x", created="y", card_name="other", status=Status.COMPLETE, pins={"model": "m"})
    writer.update(foreign)
    meta = RunStore(tmp_path).open(writer.id).meta
    assert (meta.id, meta.status, meta.card_name, meta.pins) == (writer.id, Status.RUNNING, "other", {"model": "m"})
    changed = msgspec.structs.replace(writer.meta, notes=["n"])
    assert writer.finish(changed).meta.notes == ["n"]
