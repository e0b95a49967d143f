"""What was appended survives; what is damaged is counted, not believed."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.records.rows import exchange

from setpoint.errors import RecordError
from setpoint.records.exchange import Exchange
from setpoint.records.journal import MAGIC, Journal, JournalReader


def write(path: Path, count: int) -> list[Exchange]:
    rows = [exchange(i) for i in range(count)]
    journal: Journal[Exchange] = Journal(path)
    for row in rows:
        journal.append(row)
    journal.close()
    return rows


def append_all(journal: Journal[Exchange], count: int) -> None:
    for i in range(count):
        journal.append(exchange(i))


def test_rows_come_back_as_they_were_appended(tmp_path: Path) -> None:
    rows = write(tmp_path / "j", 5)
    reader = JournalReader(tmp_path / "j")
    assert list(reader.rows(Exchange)) == rows
    assert (reader.torn, reader.lost_bytes) == (0, 0)


@given(cut=st.integers(min_value=0))
def test_a_journal_cut_anywhere_gives_its_whole_entries(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("cut") / "j"
    rows = write(path, 3)
    content = path.read_bytes()
    kept = cut % (len(content) + 1)
    path.write_bytes(content[:kept])
    reader = JournalReader(path)
    found = list(reader.rows(Exchange))
    assert found == rows[: len(found)]
    assert reader.end + reader.lost_bytes == kept
    assert reader.torn == (reader.lost_bytes > 0)


@given(at=st.integers(min_value=len(MAGIC)), flip=st.integers(min_value=1, max_value=255))
def test_a_flipped_byte_is_never_read_as_a_row(at: int, flip: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("flip") / "j"
    rows = write(path, 3)
    content = bytearray(path.read_bytes())
    content[len(MAGIC) + (at - len(MAGIC)) % (len(content) - len(MAGIC))] ^= flip
    path.write_bytes(content)
    reader = JournalReader(path)
    found = list(reader.rows(Exchange))
    assert found == rows[: len(found)]
    assert len(found) < 3
    assert reader.torn == 1


def test_appending_to_a_torn_journal_cuts_the_torn_entry_off(tmp_path: Path) -> None:
    path = tmp_path / "j"
    rows = write(path, 2)
    path.write_bytes(path.read_bytes()[:-1])
    journal: Journal[Exchange] = Journal(path)
    journal.append(exchange(7))
    journal.close()
    assert list(JournalReader(path).rows(Exchange)) == [rows[0], exchange(7)]


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j").write_bytes(b"something else entirely")
    with pytest.raises(RecordError, match="not a journal"):
        list(JournalReader(tmp_path / "j").bodies())
    with pytest.raises(RecordError, match="not a journal"):
        Journal(tmp_path / "j")


def test_a_killed_writer_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from setpoint.records.journal import Journal\n"
        "from tests.records.rows import exchange\n"
        "j = Journal(Path(sys.argv[1]))\n"
        "for i in range(50): j.append(exchange(i))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "j")],
        env={**os.environ, "PYTHONPATH": f"{root / 'src'}:{root}"},
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert list(JournalReader(tmp_path / "j").rows(Exchange)) == [exchange(i) for i in range(50)]


def test_a_size_limit_is_one_clear_error_and_the_journal_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal: Journal[Exchange] = Journal(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        with pytest.raises(RecordError, match=r"cannot write .*file too large.*stays readable"):
            append_all(journal, 1000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    kept = journal.entries
    journal.append(exchange(kept))  # and there is room again
    journal.close()
    reader = JournalReader(path)
    assert list(reader.rows(Exchange)) == [exchange(i) for i in range(kept + 1)]
    assert reader.torn == 0
