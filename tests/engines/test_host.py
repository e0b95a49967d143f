"""Host signals: of this machine, and of real processes on it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from setpoint.engines import host
from setpoint.engines.host import THREAD, host_sampler
from setpoint.records.signal import SignalRow, SignalState

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
BUSY = "import threading\nthreading.Thread(target=lambda: print(input()), daemon=True).start()\nwhile True: pass"


@pytest.fixture
def busy() -> Iterator[int]:
    """A process whose one thread computes while the other one waits."""
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE) as child:
        yield child.pid
        child.kill()


def by_name(rows: list[SignalRow]) -> dict[str, SignalRow]:
    assert len({row.signal for row in rows}) == len(rows)
    return {row.signal: row for row in rows}


def value(row: SignalRow) -> float:
    assert row.value is not None, row
    return row.value


def until_it_used(pid: int, seconds: float) -> dict[str, SignalRow]:
    sample, begun_s = host_sampler(pid), time.monotonic()
    found = by_name(sample(0.0))
    while value(found["engine_cpu_time"]) < seconds:
        time.sleep(0.05)
        found = by_name(sample(time.monotonic() - begun_s))
    return found


@linux
def test_cpu_is_told_by_thread_and_the_threads_add_up(busy: int) -> None:
    found = until_it_used(busy, 0.3)
    threads = {name: value(row) for name, row in found.items() if name.startswith(f"{THREAD}/")}
    assert len(threads) == 1  # the other one waits: it is no series of its own
    assert next(iter(threads)).endswith(f"-{busy}")
    assert value(found["engine_threads"]) == 2
    assert next(iter(threads.values())) == pytest.approx(value(found["engine_cpu_time"]), abs=0.1)
    assert value(found["engine_busiest_thread"]) > 0
    assert value(found["engine_cpu_wait"]) >= 0
    assert value(found["engine_faults"]) >= 0
    assert value(found["engine_memory"]) > 1e6


@linux
def test_the_machine_is_told_too(busy: int) -> None:
    found = by_name(host_sampler(None)(1.0))
    assert set(found) == {
        "host_cpu", "host_memory", "host_cpu_steal", "host_cpu_pressure", "network_sent", "network_received",
    }  # fmt: skip
    assert {row.time_s for row in found.values()} == {1.0}


def test_what_the_kernel_does_not_account_for_is_unsupported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(host, "PRESSURE", tmp_path / "absent")
    monkeypatch.setattr(host, "_threads_of", lambda _: None)
    monkeypatch.setattr(host, "_major_faults", lambda _: None)
    found = by_name(host_sampler(os.getpid())(0.0))
    absent = {name for name, row in found.items() if row.state is SignalState.UNSUPPORTED}
    assert absent >= {"host_cpu_pressure", "engine_cpu_wait", "engine_faults", "engine_busiest_thread"}
    assert found["engine_cpu_time"].state is SignalState.OK
    assert not any(name.startswith(THREAD) for name in found)


def test_a_process_that_is_gone_is_a_failed_reading_and_one_that_takes_its_place_is_read(busy: int) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
    now = [ended.pid]
    sample = host_sampler(lambda: now[0])
    assert by_name(sample(0.0))["engine_cpu_time"].state is SignalState.SCRAPE_FAILED
    now[0] = busy
    assert by_name(sample(1.0))["engine_cpu_time"].state is SignalState.OK
