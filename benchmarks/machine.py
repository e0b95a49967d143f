"""The machine a benchmark ran on, and the form in which its results are kept."""

import contextlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from setpoint.clock import utc_now
from setpoint.load.worker import NICENESS


def machine() -> dict[str, Any]:
    """CPU, cores, kernel, Python, libraries, and the load average at this moment."""
    cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in cpuinfo if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "python_build": " ".join(platform.python_build()),
        "libraries": {name: version(name) for name in ("uvloop", "httptools", "aiohttp", "httpx", "polars", "numpy")},
        "load_average": os.getloadavg(),
        "niceness": os.nice(0),
        "date": utc_now().isoformat(timespec="seconds"),
    }


def take_priority() -> None:
    """The niceness that a load worker takes where it is allowed; child processes inherit it."""
    with contextlib.suppress(OSError):
        os.nice(NICENESS)


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """No core halts meanwhile: the kernel polls instead, as it does with ``idle=poll``.

    A virtual core that halts is given back to its host, and comes back late. Needs the right to write
    ``/dev/cpu_dma_latency``; the request holds as long as the file is open.

    Raises:
        OSError: there is no such right.
    """
    with Path("/dev/cpu_dma_latency").open("wb", buffering=0) as latency:
        latency.write((0).to_bytes(4, sys.byteorder))
        yield


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, smallest and largest of some repeats."""
    return {"median": float(np.median(values)), "min": min(values), "max": max(values)}


def shown(value: dict[str, float], scale: float = 1.0, digits: int = 1) -> str:
    """``median (min-max)``."""
    low, middle, high = (f"{value[name] * scale:,.{digits}f}" for name in ("min", "median", "max"))
    return f"{middle} ({low}-{high})"


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A Markdown table."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * w for w in widths], *rows]:
        print("| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |")


def write(out: Path, before: dict[str, Any], results: dict[str, Any]) -> None:
    """Results with the machine, and its load before and after."""
    after = {"load_average_after": os.getloadavg()}
    text = json.dumps({"machine": before | after} | results, indent=2) + "\n"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    print(f"\nload average {before['load_average']} -> {after['load_average_after']}; written to {out}")
