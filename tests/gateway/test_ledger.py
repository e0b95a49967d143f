"""Every token accounted, none twice, whatever crashes when; and the access log is a trace."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gateway.conftest import config_of, served, until

from setpoint.cli import run
from setpoint.errors import SetpointError
from setpoint.gateway.journal import WINDOW_BYTES, Ended, Journal, Opened, read_lines, written
from setpoint.gateway.ledger import BATCH_BYTES, Ledger
from setpoint.gateway.probe import run_probe
from setpoint.testing.fake_engine import fake_engine
from setpoint.testing.script import Script
from setpoint.workload.traces import read_trace


def ended(number: int, tenant: str = "a", tokens: int = 10, **more: object) -> Ended:
    values = {
        "id": f"x{number}", "time": 1_800_000_000.0 + number, "tenant": tenant, "model": "m", "status": 200,
        "sent_status": 200, "outcome": "complete", "prompt_tokens": 5, "completion_tokens": tokens, "latency_s": 0.1,
    }  # fmt: skip
    return Ended(**(values | more))  # type: ignore[arg-type]


def opened(number: int, prompt: int = 7) -> Opened:
    return Opened(
        id=f"x{number}", time=1_800_000_000.0, tenant="a", key=None, model="m", replica="r", dialect="openai-chat",
        prompt_tokens=prompt,
    )  # fmt: skip


def totals(ledger: Ledger) -> tuple[int, int, int]:
    rows = ledger.usage(by=("tenant",))
    return sum(r.requests for r in rows), sum(r.prompt_tokens for r in rows), sum(r.completion_tokens for r in rows)


def test_lines_are_counted_once_however_often_they_are_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run" / "journal", 0)
    ledger = Ledger(tmp_path)
    for number in range(50):
        journal.write(opened(number))
        journal.write(ended(number))
        if number % 7 == 0:
            ledger.ingest({os.getpid()})
    for _ in range(3):
        ledger.ingest({os.getpid()})
    ledger.close()
    again = Ledger(tmp_path)
    again.ingest(set())
    assert totals(again) == (50, 250, 500)
    assert not list((tmp_path / "run" / "journal").iterdir())
    again.close()


def test_an_exchange_that_was_dispatched_twice_and_has_ended_is_not_lost_later(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run" / "journal", 0)
    ledger = Ledger(tmp_path)
    journal.write(opened(1))
    ledger.ingest({os.getpid()})
    journal.write(opened(1))  # the retry
    journal.write(ended(1))
    ledger.ingest({os.getpid()})
    ledger.ingest(set())
    assert totals(ledger) == (1, 5, 10)
    ledger.close()


def test_what_a_killed_worker_had_under_way_is_accounted_as_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run" / "journal", 0)
    ledger = Ledger(tmp_path)
    journal.write(opened(1))
    journal.write(opened(2, prompt=9))
    ledger.ingest({os.getpid()})
    journal.write(ended(1))
    seen: list[Ended] = []
    ledger.ingest(set(), seen.append)
    assert [(line.id, line.outcome) for line in seen] == [("x1", "complete"), ("x2", "error")]
    assert totals(ledger) == (2, 5 + 9, 10)
    rows = {row.group[0]: row for row in ledger.usage(by=("outcome",))}
    assert rows["error"].estimated == 1
    ledger.ingest(set(), seen.append)
    assert len(seen) == 2
    ledger.close()


def test_lines_longer_than_what_is_mapped_and_many_of_them_are_all_read(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run" / "journal", 0)
    ledger = Ledger(tmp_path)
    ids = [
        f"{number}-{'x' * length}" for number, length in enumerate([10, WINDOW_BYTES, 3 * WINDOW_BYTES, *[900] * 900])
    ]
    seen: list[Ended] = []
    for number, name in enumerate(ids):
        journal.write(ended(number, id=name))
        if number % 100 == 0:
            ledger.ingest({os.getpid()}, seen.append)
    ledger.ingest({os.getpid()}, seen.append)
    assert [line.id for line in seen] == ids
    (path,) = (tmp_path / "run" / "journal").iterdir()
    journal.close()
    assert path.stat().st_size == len(written(path.read_bytes()))
    ledger.close()


def test_a_line_seen_in_part_is_left_until_it_is_whole(tmp_path: Path) -> None:
    """The kernel may show a line's end before its middle: whoever reads it then finds zeros in it."""
    journal = Journal(tmp_path / "run" / "journal", 0)
    ledger = Ledger(tmp_path)
    for number in range(3):
        journal.write(ended(number))
    (path,) = (tmp_path / "run" / "journal").iterdir()
    whole = path.read_bytes()
    start = whole.index(b"\n") + 20
    seen: list[Ended] = []
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(5))
        file.flush()
        ledger.ingest({os.getpid()}, seen.append)
        assert [line.id for line in seen] == ["x0"]
        file.seek(start)
        file.write(whole[start : start + 5])
    ledger.ingest({os.getpid()}, seen.append)
    assert [line.id for line in seen] == ["x0", "x1", "x2"]
    ledger.close()


def test_zeros_that_a_crash_of_the_machine_left_are_skipped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run" / "journal", 0)
    for number in range(4):
        journal.write(ended(number))
    (path,) = (tmp_path / "run" / "journal").iterdir()
    lines = written(path.read_bytes()).splitlines(keepends=True)
    lost = bytes(BATCH_BYTES + 1) + lines[1][:30] + bytes(50)
    path.write_bytes(lines[0] + lost + lines[2] + bytes(100) + lines[3] + bytes(300))
    ledger = Ledger(tmp_path)
    seen: list[Ended] = []
    ledger.ingest(set(), seen.append)
    assert [line.id for line in seen] == ["x0", "x3"]  # the third shares a line with what is damaged
    assert not path.exists()
    ledger.close()


def test_a_full_disk_is_an_error_and_no_end(tmp_path: Path) -> None:
    """The blocks of a mapped file are taken before they are written: without one the kernel would kill the process."""
    code = """
import resource, sys
from pathlib import Path
from setpoint.gateway.journal import Journal
from tests.gateway.test_ledger import ended
journal = Journal(Path(sys.argv[1]), 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
failed = 0
for number in range(3000):
    try:
        journal.write(ended(number))
    except OSError:
        failed += 1
print(failed)
"""
    run = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    assert 0 < int(run.stdout) < 3000


def test_a_line_before_a_dispatch_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it needs was got when an exchange before it had ended."""
    journal = Journal(tmp_path / "journal", 0)
    taken: list[type] = []
    line: Opened | Ended
    fallocate = os.posix_fallocate

    def counting(fd: int, offset: int, size: int) -> None:
        taken.append(type(line))
        fallocate(fd, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", counting)
    for number in range(4000):
        for line in (opened(number), ended(number)):
            journal.write(line)
    journal.close()
    assert len(taken) > 2
    assert set(taken) == {Ended}
    (path,) = (tmp_path / "journal").iterdir()
    assert [type(read) for read in read_lines(path.read_bytes())] == [Opened, Ended] * 4000


class Crash(Exception):  # noqa: N818 - it is one
    pass


class Crashing:
    """A database whose process dies before each commit."""

    def __init__(self, database: Any) -> None:
        self.execute, self.rollback, self.close = database.execute, database.rollback, database.close

    def commit(self) -> None:
        raise Crash


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["write", "open", "read", "crash"]), max_size=40))
def test_no_crash_of_the_reader_loses_or_doubles_a_line(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    """A crash loses what was not committed: the database as it was, the access log as it is."""
    folder = tmp_path_factory.mktemp("ledger")
    log = folder / "access.jsonl"
    journal = Journal(folder / "run" / "journal", 0)
    ledger = Ledger(folder, access_log=log)
    lines = 0
    for step in steps:
        if step == "write":
            journal.write(ended(lines))
            lines += 1
        elif step == "open":
            ledger.close()
            ledger = Ledger(folder, access_log=log)
        elif step == "read":
            ledger.ingest({os.getpid()})
        else:
            ledger._db = Crashing(ledger._db)
            with contextlib.suppress(Crash):
                ledger.ingest({os.getpid()})
            ledger.close()
            ledger = Ledger(folder, access_log=log)
    ledger.ingest(set())
    assert totals(ledger)[0] == lines
    assert (len(log.read_bytes().splitlines()) if log.exists() else 0) == lines
    ledger.close()


def test_the_access_log_is_a_trace_without_text(state: Path, tmp_path: Path) -> None:
    log = tmp_path / "access.jsonl"
    with fake_engine(Script()) as engine, served(config_of(state, engine.url)) as gateway:
        for number in range(6):
            gateway.chat("very own words " * 600 + str(number), stream=number % 2 == 0)
        gateway.chat("x", model="nothing")
        gateway.ended(7)
        kept = [line.prefix_blocks for line in gateway.lines() if line.prefix_blocks]
    ledger = Ledger(state, access_log=log)
    ledger.ingest(set())
    ledger.close()
    trace = read_trace(log)
    assert (trace.format, len(trace.requests), trace.bad_lines) == ("access-log", 6, 0)
    assert trace.no_demand == 1
    answered = [r for r in trace.requests if r.answered]
    assert len(answered) == 6
    assert all(r.prompt_tokens > 1000 and r.output_tokens == 4 and r.latency_s for r in answered)
    assert len({r.blocks[:3] for r in answered}) == 1
    text = log.read_text()
    assert "very own words" not in text
    assert all(str(block) not in text for blocks in kept for block in blocks)  # keyed, not as hashed
    assert log.stat().st_mode & 0o077 == 0


def test_arrivals_of_a_card_are_what_asked_for_a_model(state: Path, tmp_path: Path) -> None:
    """What the denial matrix tries leaves lines, and none of these is an arrival; what a limit refused is."""
    log = tmp_path / "access.jsonl"
    with fake_engine(Script()) as engine:
        tenants = {"a": {"limits": {"requests_per_minute": 4}}}
        with served(config_of(state, engine.url, tenants=tenants, auth={})) as gateway:
            key = gateway.key = gateway.keys().create("a")[1]
            asyncio.run(run_probe(f"http://127.0.0.1:{gateway.port}", "fake", key))
            statuses = [gateway.chat().status for _ in range(6)]
            until(lambda: sum(line.model == "fake" for line in gateway.lines()) == 6)
            refused = len(gateway.lines()) - 6
    assert 429 in statuses
    ledger = Ledger(state, access_log=log)
    ledger.ingest(set())
    ledger.close()
    trace = read_trace(log)
    assert (len(trace.requests), trace.no_demand) == (6, refused)
    assert sum(r.answered for r in trace.requests) == statuses.count(200)
    assert refused > 15


def test_whoever_asks_for_usage_leaves_the_log_of_a_running_gateway_alone(state: Path, tmp_path: Path) -> None:
    """Lines that are written and not recorded yet are the running gateway's, not remains of a crash."""
    log = tmp_path / "access.jsonl"
    path = tmp_path / "gateway.yaml"
    path.write_text(json.dumps(config_of(state, "http://127.0.0.1:1", access_log=str(log))))
    ledger = Ledger(state, access_log=log)
    log.write_bytes(b"{}\n")  # as between the write and the commit
    assert run(["usage", "-c", str(path)]) == 0
    assert log.read_bytes() == b"{}\n"
    ledger.close()


# PostgreSQL


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """A server of its own, as a user of its own: PostgreSQL does not run as root, nor sees pytest's folders."""
    folder = Path(tempfile.mkdtemp(prefix="setpoint-pg-"))
    folder.chmod(0o755)
    version = sorted(Path("/usr/lib/postgresql").glob("*/bin")) if Path("/usr/lib/postgresql").is_dir() else []
    tools = str(version[-1]) if version else str(Path(shutil.which("postgres") or "").resolve().parent)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    owner = ["runuser", "-u", "postgres", "--"] if os.getuid() == 0 else []
    data = folder / "data"
    data.mkdir()
    if owner:
        shutil.chown(data, "postgres")
    data.chmod(0o700)
    subprocess.run(
        [*owner, f"{tools}/initdb", "-D", str(data), "-A", "trust", "-U", "gw"], check=True, capture_output=True
    )
    server = subprocess.Popen(
        [*owner, f"{tools}/postgres", "-D", str(data), "-p", str(port), "-k", "", "-h", "127.0.0.1"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip

    def listens() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    until(listens, 30)
    yield f"postgresql://gw@127.0.0.1:{port}/postgres"
    server.terminate()
    server.wait(20)
    shutil.rmtree(folder)


def test_postgresql_keeps_the_same_accounts_of_several_gateways(postgres: str, tmp_path: Path) -> None:
    def opened_ledger(name: str) -> Ledger:
        end = time.monotonic() + 20
        while True:  # it listens before it accepts
            try:
                return Ledger(tmp_path / name, url=postgres, gateway=name)
            except SetpointError:
                assert time.monotonic() < end
                time.sleep(0.2)

    for name in ("one", "two"):
        journal = Journal(tmp_path / name / "run" / "journal", 0)
        ledger = opened_ledger(name)
        for number in range(20):
            journal.write(opened(number))
            journal.write(ended(number, tenant=name))
        for _ in range(2):
            ledger.ingest({os.getpid()})
        ledger.ingest(set())
        ledger.close()
    ledger = opened_ledger("one")
    assert totals(ledger) == (40, 200, 400)
    assert {row.group[0]: row.completion_tokens for row in ledger.usage(by=("tenant",))} == {"one": 200, "two": 200}
    ledger.close()


def test_an_access_log_line_is_one_json_object(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "run" / "journal", 0)
    journal.write(ended(1, reason="a\nb"))
    ledger = Ledger(tmp_path, access_log=tmp_path / "log")
    ledger.ingest(set())
    ledger.close()
    (line,) = (tmp_path / "log").read_text().splitlines()
    assert json.loads(line)["reason"] == "a\nb"
