"""Signals of the host: CPU, memory and network, and of the engine's process tree."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from setpoint.records.signal import SignalRow, SignalState

PRESSURE = Path("/proc/pressure/cpu")
MOST_THREADS = 16
LEAST_THREAD_S = 0.05  # CPU that a thread must have used before it is worth a series of its own
THREAD = "engine_thread_cpu_time"

Pid = int | Callable[[], int]


def host_sampler(pid: Pid | None) -> Callable[[float], list[SignalRow]]:
    """A function that reads host signals at a given time.

    Signals of the machine: ``host_cpu`` (share of all cores), ``host_memory`` (bytes in use), ``host_cpu_steal``
    (CPU seconds that a hypervisor gave to others, cumulative, all cores), ``host_cpu_pressure`` (seconds in which some
    task waited for a CPU, cumulative: Documentation/accounting/psi.rst), ``network_sent`` and ``network_received``
    (bytes, cumulative).

    With a process, of its tree: ``engine_cpu`` (cores in use), ``engine_memory`` (resident bytes), ``engine_threads``,
    ``engine_faults`` (major page faults, cumulative), ``engine_cpu_time`` (CPU seconds, cumulative),
    ``engine_cpu_wait`` (seconds that its threads were ready and got no CPU, cumulative: sched-stats.rst),
    ``engine_busiest_thread`` (cores in use by the thread that uses most) and, for threads that have used some CPU,
    ``engine_thread_cpu_time/NAME-TID`` (seconds, cumulative; the sixteen that used most).

    What a platform does not tell is ``unsupported``.

    Args:
        pid: The engine's main process, or a function that tells it where it may be restarted; None without one.
    """
    tree = _Tree(pid) if pid is not None else None
    psutil.cpu_percent()  # the first call only starts the measurement

    def sample(time_s: float) -> list[SignalRow]:
        network: Any = psutil.net_io_counters()  # None where there is no interface
        rows = [
            _ok(time_s, "host_cpu", psutil.cpu_percent() / 100),
            _ok(time_s, "host_memory", float(psutil.virtual_memory().used)),
            _row(time_s, "host_cpu_steal", getattr(psutil.cpu_times(), "steal", None)),
            _row(time_s, "host_cpu_pressure", _pressure_s()),
            _row(time_s, "network_sent", None if network is None else float(network.bytes_sent)),
            _row(time_s, "network_received", None if network is None else float(network.bytes_recv)),
        ]
        return rows + (tree.sample(time_s) if tree is not None else [])

    return sample


_OF_THE_ENGINE = (
    "engine_cpu", "engine_memory", "engine_threads", "engine_faults", "engine_cpu_time", "engine_cpu_wait",
    "engine_busiest_thread",
)  # fmt: skip


class _Tree:
    """The engine's main process and its descendants."""

    def __init__(self, pid: Pid) -> None:
        self._pid = pid
        self._known: dict[int, psutil.Process] = {}
        self._threads: dict[int, float] = {}
        self._read_s: float | None = None

    def sample(self, time_s: float) -> list[SignalRow]:
        try:
            main = psutil.Process(self._pid if isinstance(self._pid, int) else self._pid())
            members = [main, *main.children(recursive=True)]
        except psutil.Error:
            return [_gone(time_s, name) for name in _OF_THE_ENGINE]
        self._known = {p.pid: self._known.get(p.pid, p) for p in members}
        cpu = memory = threads = used_s = 0.0
        faults: float | None = 0.0
        scheduled: dict[int, _Thread] | None = {}
        counted = False
        for process in self._known.values():
            try:
                cpu += process.cpu_percent() / 100
                memory += process.memory_info().rss
                threads += process.num_threads()
                times = process.cpu_times()
                used_s += times.user + times.system
                counted = True
            except (psutil.Error, OSError):
                continue  # it ended between the listing and the reading
            faults = _sum(faults, _major_faults(process.pid))
            found = _threads_of(process.pid)
            scheduled = None if found is None or scheduled is None else scheduled | found
        if not counted:
            return [_gone(time_s, name) for name in _OF_THE_ENGINE]
        waited_s = None if scheduled is None else sum(t.waited_s for t in scheduled.values())
        values = (cpu, memory, threads, faults, used_s, waited_s, self._busiest(scheduled, time_s))
        rows = [_row(time_s, name, value) for name, value in zip(_OF_THE_ENGINE, values, strict=True)]
        most = sorted((scheduled or {}).items(), key=lambda x: -x[1].used_s)[:MOST_THREADS]
        return rows + [
            _ok(time_s, f"{THREAD}/{t.name}-{number}", t.used_s) for number, t in most if t.used_s >= LEAST_THREAD_S
        ]

    def _busiest(self, threads: "dict[int, _Thread] | None", time_s: float) -> float | None:
        """Cores that the busiest thread used since the last reading; 0 at the first one."""
        if threads is None:
            return None
        span_s = 0.0 if self._read_s is None else time_s - self._read_s
        rises = [t.used_s - self._threads[number] for number, t in threads.items() if number in self._threads]
        self._threads, self._read_s = {number: t.used_s for number, t in threads.items()}, time_s
        return max(rises, default=0.0) / span_s if span_s > 0 else 0.0


class _Thread:
    """What the scheduler says of a thread.

    Attributes:
        name: As the kernel has it.
        used_s: On a CPU.
        waited_s: On a run queue.
    """

    __slots__ = ("name", "used_s", "waited_s")

    def __init__(self, folder: Path) -> None:
        used, waited, *_ = (folder / "schedstat").read_text().split()
        self.name = (folder / "comm").read_text().strip().replace("/", "-")
        self.used_s, self.waited_s = int(used) / 1e9, int(waited) / 1e9


def _threads_of(pid: int) -> dict[int, _Thread] | None:
    """Threads of a process by their number; None where the kernel keeps no such statistics."""
    out: dict[int, _Thread] = {}
    if not Path(f"/proc/{pid}/schedstat").exists():
        return None
    for folder in Path(f"/proc/{pid}/task").glob("*"):
        try:
            out[int(folder.name)] = _Thread(folder)
        except OSError:
            continue  # it ended between the listing and the reading
    return out


def _major_faults(pid: int) -> float | None:
    """Field 12 of ``/proc/PID/stat`` (man 5 proc); None where there is no such file."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - a short-lived kernel file
            return float(file.read().rpartition(")")[2].split()[9])
    except OSError:
        return None


def _pressure_s() -> float | None:
    """Total of the line ``some``, in seconds; None where the kernel keeps no such account."""
    try:
        line = PRESSURE.read_text(encoding="utf-8").splitlines()[0]
    except OSError:
        return None
    return float(line.rpartition("total=")[2]) / 1e6


def _sum(total: float | None, more: float | None) -> float | None:
    return None if total is None or more is None else total + more


def _row(time_s: float, signal: str, value: float | None) -> SignalRow:
    if value is not None:
        return _ok(time_s, signal, value)
    state, source = SignalState.UNSUPPORTED, "not told by this platform"
    return SignalRow(time_s=time_s, signal=signal, value=None, state=state, source=source)


def _ok(time_s: float, signal: str, value: float) -> SignalRow:
    return SignalRow(time_s=time_s, signal=signal, value=value, state=SignalState.OK, source="psutil")


def _gone(time_s: float, signal: str) -> SignalRow:
    return SignalRow(time_s=time_s, signal=signal, value=None, state=SignalState.SCRAPE_FAILED, source="process gone")
