"""What this machine does: memory bandwidth and matrix throughput, measured with numpy; GPUs where NVML answers.

Several repeats; the median and the spread (lowest and highest) are reported, because a shared machine varies.
"""

import importlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

State = Literal["measured", "unsupported"]

REPEATS = 7
_COPY_BYTES = 256 * 2**20
_MATRIX = 1536


@dataclass(frozen=True, slots=True)
class Measurement:
    """Repeats of one measurement.

    Attributes:
        name: What was measured.
        unit: ``B/s`` or ``FLOP/s``.
        median: Over the repeats.
        low: Lowest.
        high: Highest.
        repeats: How many.
    """

    name: str
    unit: str
    median: float
    low: float
    high: float
    repeats: int


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU as NVML reports it.

    Attributes:
        name: Product name.
        memory_bytes: Total.
        link: Fastest path to the other devices of this machine: ``nvlink``, ``bus`` or ``none`` (single device).
        links: Active NVLink links.
        bus: PCIe generation and width, e.g. ``PCIe5 x16``.
    """

    name: str
    memory_bytes: int
    link: Literal["nvlink", "bus", "none"]
    links: int
    bus: str


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """What was found.

    Attributes:
        processors: Logical processors that this process may use.
        measurements: Of this machine's processor and memory.
        gpus: ``measured`` when NVML answered, else ``unsupported``.
        reason: Why it is unsupported; empty otherwise.
        devices: GPUs.
    """

    processors: int
    measurements: tuple[Measurement, ...]
    gpus: State
    reason: str
    devices: tuple[Device, ...]


def probe(
    *,
    repeats: int = REPEATS,
    copy_bytes: int = _COPY_BYTES,
    matrix: int = _MATRIX,
    clock: Callable[[], float] = time.perf_counter,
) -> ProbeResult:
    """Measures this machine; takes some seconds and, for its while, all processors.

    Args:
        repeats: Of each measurement, after one that is thrown away.
        copy_bytes: Size of the array that is copied; well beyond the caches.
        matrix: Rows and columns of the square matrices that are multiplied.
        clock: Monotonic seconds.
    """
    gpus, reason, devices = _devices()
    return ProbeResult(
        processors=_processors(),
        measurements=(
            _bandwidth(repeats, copy_bytes, clock),
            _products("float32 matrix product", np.float32, repeats, matrix, clock),
            _products("float64 matrix product", np.float64, repeats, matrix, clock),
        ),
        gpus=gpus,
        reason=reason,
        devices=devices,
    )


def _processors() -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _bandwidth(repeats: int, size: int, clock: Callable[[], float]) -> Measurement:
    source = np.ones(max(size // 8, 1))
    target = np.empty_like(source)
    # A copy reads and writes: two bytes moved for each byte copied (STREAM counts so too).
    moved = 2 * source.nbytes
    return _measured("memory copy", "B/s", moved, lambda: np.copyto(target, source), repeats, clock)


def _products(
    name: str, dtype: type[np.floating[Any]], repeats: int, size: int, clock: Callable[[], float]
) -> Measurement:
    left = np.full((size, size), 0.5, dtype=dtype)
    right = np.full((size, size), 0.25, dtype=dtype)
    out = np.empty_like(left)
    return _measured(name, "FLOP/s", 2 * size**3, lambda: np.matmul(left, right, out=out), repeats, clock)


def _measured(
    name: str, unit: str, amount: float, act: Callable[[], object], repeats: int, clock: Callable[[], float]
) -> Measurement:
    act()
    rates = []
    for _ in range(repeats):
        start = clock()
        act()
        rates.append(amount / max(clock() - start, 1e-9))
    return Measurement(name, unit, statistics.median(rates), min(rates), max(rates), repeats)


def _devices() -> tuple[State, str, tuple[Device, ...]]:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return "unsupported", "nvidia-ml-py is not installed", ()
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return "unsupported", f"NVML does not answer: {error}", ()
    try:
        count = nvml.nvmlDeviceGetCount()
        found = tuple(_device(nvml, nvml.nvmlDeviceGetHandleByIndex(index), count) for index in range(count))
    except nvml.NVMLError as error:
        return "unsupported", f"NVML does not answer: {error}", ()
    finally:
        nvml.nvmlShutdown()
    return "measured", "", found


def _device(nvml: Any, handle: Any, count: int) -> Device:  # noqa: ANN401 - a module of another package
    name = nvml.nvmlDeviceGetName(handle)
    links = 0
    for index in range(getattr(nvml, "NVML_NVLINK_MAX_LINKS", 18)):
        try:
            links += int(nvml.nvmlDeviceGetNvLinkState(handle, index) == 1)
        except nvml.NVMLError:
            break
    try:
        generation = nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle)
        bus = f"PCIe{generation} x{nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)}"
    except nvml.NVMLError:
        bus = "unknown"
    return Device(
        name=name.decode() if isinstance(name, bytes) else str(name),
        memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
        link="none" if count == 1 else "nvlink" if links else "bus",
        links=links,
        bus=bus,
    )
