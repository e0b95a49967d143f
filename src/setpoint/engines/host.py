"""Signals of the host: CPU, memory and network, and of the engine's process tree."""

from collections.abc import Callable
from pathlib import Path

import psutil

from setpoint.records.signal import SignalRow, SignalState


def host_sampler(pid: int | None) -> Callable[[float], list[SignalRow]]:
    """A function that reads host signals at a given time.

    Signals: ``host_cpu`` (share of all cores), ``host_memory`` (bytes in use), ``network_sent`` (bytes, cumulative);
    with a process: ``engine_cpu`` (cores in use by its tree), ``engine_memory`` (resident bytes),
    ``engine_threads``, ``engine_faults`` (major page faults, cumulative, where the system tells), ``engine_cpu_time``
    (CPU seconds used, cumulative) and ``engine_cpu_wait`` (seconds that its threads were ready and got no CPU,
    cumulative: Documentation/scheduler/sched-stats.rst of Linux).
    """
    tree = _Tree(pid) if pid is not None else None
    psutil.cpu_percent()  # the first call only starts the measurement

    def sample(time_s: float) -> list[SignalRow]:
        rows = [
            _ok(time_s, "host_cpu", psutil.cpu_percent() / 100),
            _ok(time_s, "host_memory", float(psutil.virtual_memory().used)),
            _ok(time_s, "network_sent", float(psutil.net_io_counters().bytes_sent)),
        ]
        return rows + (tree.sample(time_s) if tree is not None else [])

    return sample


_OF_THE_ENGINE = (
    "engine_cpu", "engine_memory", "engine_threads", "engine_faults", "engine_cpu_time", "engine_cpu_wait",
)  # fmt: skip


class _Tree:
    """The engine's main process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: dict[int, psutil.Process] = {}

    def sample(self, time_s: float) -> list[SignalRow]:
        try:
            main = psutil.Process(self._pid)
            members = [main, *main.children(recursive=True)]
        except psutil.Error:
            return [_gone(time_s, name) for name in _OF_THE_ENGINE]
        self._known = {p.pid: self._known.get(p.pid, p) for p in members}
        cpu = memory = threads = faults = used_s = waited_s = 0.0
        counted = False
        for process in self._known.values():
            try:
                cpu += process.cpu_percent() / 100
                memory += process.memory_info().rss
                threads += process.num_threads()
                faults += _major_faults(process.pid)
                times = process.cpu_times()
                used_s += times.user + times.system
                waited_s += _waited_s(process.pid)
                counted = True
            except (psutil.Error, OSError):
                continue  # it ended between the listing and the reading
        if not counted:
            return [_gone(time_s, name) for name in _OF_THE_ENGINE]
        values = (cpu, memory, threads, faults, used_s, waited_s)
        return [_ok(time_s, name, value) for name, value in zip(_OF_THE_ENGINE, values, strict=True)]


def _major_faults(pid: int) -> float:
    """Field 12 of ``/proc/PID/stat`` (man 5 proc)."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - a short-lived kernel file
        return float(file.read().rpartition(")")[2].split()[9])


def _waited_s(pid: int) -> float:
    """Second field of each thread's ``schedstat``: nanoseconds on a run queue."""
    return sum(float(path.read_text().split()[1]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9


def _ok(time_s: float, signal: str, value: float) -> SignalRow:
    return SignalRow(time_s=time_s, signal=signal, value=value, state=SignalState.OK, source="psutil")


def _gone(time_s: float, signal: str) -> SignalRow:
    return SignalRow(time_s=time_s, signal=signal, value=None, state=SignalState.SCRAPE_FAILED, source="process gone")
