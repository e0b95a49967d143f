"""Killed writers, full disks, foreign permissions: nothing finished is lost, and the message says what to do."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.records.rows import exchange

from setpoint.errors import RecordError
from setpoint.records.meta import Status
from setpoint.records.store import RunStore
from setpoint.records.writer import RunWriter

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}


def test_a_killed_run_is_incomplete_and_keeps_every_exchange(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from setpoint.records.store import RunStore\n"
        "from tests.records.rows import exchange\n"
        "w = RunStore(Path(sys.argv[1])).create('chat')\n"
        "for i in range(20): w.journal(i % 3).append(exchange(i))\n"
        "w.log('half way')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, tmp_path], env=ENVIRONMENT, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    record = RunStore(tmp_path).open("latest")
    assert record.meta.status is Status.INCOMPLETE
    assert record.meta.reason == "the process that wrote it ended without closing it"
    assert record.exchanges()["index"].to_list() == list(range(20))
    assert [run.status for run in RunStore(tmp_path).list()] == [Status.INCOMPLETE]


def test_an_exception_in_the_run_leaves_it_closed_and_incomplete(tmp_path: Path) -> None:
    writer = RunStore(tmp_path).create("chat")

    def interrupted() -> None:
        with writer:
            writer.journal(0).append(exchange(0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    record = RunStore(tmp_path).open("latest")
    assert (record.meta.status, record.meta.reason) == (Status.INCOMPLETE, "ended by KeyboardInterrupt")
    assert record.converted
    assert list(record.iter_exchanges()) == [exchange(0)]


@contextlib.contextmanager
def no_file_larger_than(limit_bytes: int) -> Iterator[None]:
    """The kernel refuses writes beyond the limit, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of 256 KiB where this process may mount one; else nothing (False)."""
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", folder], check=False, capture_output=True, timeout=10
    )
    try:
        yield mounted.returncode == 0
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", folder], check=True, timeout=10)


def append_until_refused(writer: RunWriter) -> int:
    journal = writer.journal(0)
    with pytest.raises(RecordError, match=r"cannot write .*exchanges-0.journal.* Free some space"):
        append_many(writer, 10_000)
    return journal.entries


def append_many(writer: RunWriter, count: int) -> None:
    for i in range(count):
        writer.journal(0).append(exchange(i, chunks=20))


def check_readable(root: Path, kept: int) -> None:
    record = RunStore(root).open("latest")
    assert record.meta.status is Status.INCOMPLETE
    assert record.exchanges()["index"].to_list() == list(range(kept))


def test_a_full_disk_is_a_clear_error_and_the_record_stays_readable(tmp_path: Path) -> None:
    with small_disk(tmp_path) as mounted:
        if not mounted:
            with no_file_larger_than(100_000):
                writer = RunStore(tmp_path).create("chat")
                kept = append_until_refused(writer)
            with no_file_larger_than(10), pytest.raises(RecordError, match="cannot write"):
                writer.finish()
        else:
            writer = RunStore(tmp_path).create("chat")
            kept = append_until_refused(writer)
            with pytest.raises(RecordError, match=r"cannot write .*no space left on device"):
                writer.finish()
        assert kept > 10
        check_readable(tmp_path, kept)
        assert not list(writer.path.glob(".*.tmp"))


def test_a_write_limit_while_closing_leaves_the_journals(tmp_path: Path) -> None:
    writer = RunStore(tmp_path).create("chat")
    append_many(writer, 200)
    with no_file_larger_than(4096), pytest.raises(RecordError, match=r"cannot write .*exchanges.parquet"):
        writer.finish(summary={"n": 200})
    record = RunStore(tmp_path).open("latest")
    assert record.meta.status is Status.INCOMPLETE
    assert record.meta.reason is not None
    assert "exchanges.parquet" in record.meta.reason
    assert record.meta.summary == {"n": 200}
    check_readable(tmp_path, 200)


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RecordError, match=r"cannot write .*file.*: (file exists|not a directory)"):
        RunStore(tmp_path / "file").create("chat")
    with pytest.raises(RecordError, match=r"cannot write .*: (file exists|not a directory)"):
        RunStore(tmp_path / "file" / "runs").create("chat")


def test_a_folder_without_permission_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir(mode=0o555)
    script = (
        "import os, sys; from pathlib import Path\n"
        "from setpoint.errors import RecordError\n"
        "from setpoint.records.store import RunStore\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "try: RunStore(Path(sys.argv[1])).create('chat')\n"
        "except RecordError as e: print(e); sys.exit(4)\n"
    )
    tmp_path.chmod(0o755)
    # Relative to its own folder: the folders above may be closed to the other user.
    done = subprocess.run(
        [sys.executable, "-c", script, "runs"],
        env=ENVIRONMENT,
        cwd=tmp_path,
        timeout=60,
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (4, "")
    assert "cannot write runs: permission denied" in done.stdout


def test_a_torn_last_line_of_the_log_is_left_out(tmp_path: Path) -> None:
    writer = RunStore(tmp_path).create("chat")
    writer.log("one")
    writer.log("two")
    log = writer.path / "log.jsonl"
    log.write_bytes(log.read_bytes()[:-3])
    assert [e["event"] for e in RunStore(tmp_path).open("latest").log()] == ["one"]
    log.write_bytes(b"garbage\n" + log.read_bytes())
    with pytest.raises(RecordError, match=r"log.jsonl:1: found no JSON object"):
        RunStore(tmp_path).open("latest").log()
    writer.abort("done")
