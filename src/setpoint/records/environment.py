"""Facts about the machine that a client runs on: enough to compare runs, nothing that names a person or a host."""

import os
import platform
import re
from pathlib import Path
from typing import Any

import psutil

import setpoint

_CGROUP = Path("/sys/fs/cgroup")


def environment() -> dict[str, Any]:
    """CPU, memory, system and versions. A value that cannot be found is None, never a guess.

    Keys: ``cpu_model``, ``cores_logical``, ``cores_physical``, ``cores_usable`` (affinity), ``memory_bytes``,
    ``os``, ``kernel``, ``architecture``, ``python``, ``setpoint``, ``container_cpus``, ``container_memory_bytes``
    (control group limits; None without one).
    """
    return {
        "cpu_model": _cpu_model(),
        "cores_logical": psutil.cpu_count(logical=True),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "memory_bytes": psutil.virtual_memory().total,
        "os": _os_name(),
        "kernel": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "setpoint": setpoint.__version__,
        "container_cpus": container_cpus(),
        "container_memory_bytes": container_memory_bytes(),
    }


def container_cpus(cgroup: Path = _CGROUP) -> float | None:
    """CPUs that the control group allows (quota / period); None without a limit."""
    words = _text(cgroup / "cpu.max").split()
    if len(words) == 2 and words[0].isdigit():
        return int(words[0]) / int(words[1])
    quota = _text(cgroup / "cpu/cpu.cfs_quota_us").strip()
    period = _text(cgroup / "cpu/cpu.cfs_period_us").strip()
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() else None


def container_memory_bytes(cgroup: Path = _CGROUP) -> int | None:
    """Memory that the control group allows; None without a limit."""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        word = _text(cgroup / name).strip()
        if word.isdigit() and int(word) < 1 << 60:  # version 1 writes a huge number for "no limit"
            return int(word)
    return None


def _cpu_model() -> str | None:
    found = re.search(r"^model name\s*:\s*(.+)$", _text(Path("/proc/cpuinfo")), re.MULTILINE)
    return found.group(1).strip() if found else platform.processor() or None


def _os_name() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
