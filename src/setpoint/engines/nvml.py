"""Signals of NVIDIA GPUs through NVML, where the driver and ``nvidia-ml-py`` are installed (extra ``gpu``).

Plain NVML knows GPU-Util only: the share of time in which some kernel was resident, which saturates and says nothing
about how much of the GPU works. What counts comes from its GPU performance monitoring (GPM, Hopper and newer), which
compares two samples: SM activity, tensor activity, memory bandwidth, each 0 to 100 there and a ratio here. On older
GPUs these are ``unsupported``, and a DCGM exporter has them.

Built against the names and structures of nvidia-ml-py 13.615; not run on a GPU.
"""

import importlib
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import psutil

from setpoint.records.signal import SignalRow, SignalState

GPM = {
    "gpu_sm_active": "NVML_GPM_METRIC_SM_UTIL",
    "gpu_tensor_active": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "gpu_dram_active": "NVML_GPM_METRIC_DRAM_BW_UTIL",
}
GpuSampler = Callable[[float], list[SignalRow]]


def load_nvml() -> ModuleType | None:
    """NVML, ready for use; None without its bindings, without a driver, or without a GPU."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
        return library if library.nvmlDeviceGetCount() else None
    except library.NVMLError:
        return None


def nvml_sampler(library: ModuleType | None, pid: Callable[[], int]) -> GpuSampler | None:
    """A function that reads the GPUs of a process tree at a given time; None without NVML.

    Signals: ``gpu_sm_active``, ``gpu_tensor_active``, ``gpu_dram_active`` (ratios, since the last reading; none at the
    first), ``gpu_util`` (percent), ``gpu_memory`` (bytes in use). Of several GPUs the busiest counts, as with DCGM; of
    memory, the sum.

    Args:
        library: As from ``load_nvml``.
        pid: Tells the engine's main process. Where NVML does not list it on any GPU (containers hide process ids), all
            GPUs count.
    """
    return None if library is None else _Devices(library, pid).sample


class _Devices:
    """GPUs and the last performance sample of each."""

    def __init__(self, library: ModuleType, pid: Callable[[], int]) -> None:
        self._nvml = library
        self._pid = pid
        self._handles: list[Any] = [library.nvmlDeviceGetHandleByIndex(i) for i in range(library.nvmlDeviceGetCount())]
        self._gpm = [self._supports_gpm(handle) for handle in self._handles]
        self._last: dict[int, Any] = {}

    def sample(self, time_s: float) -> list[SignalRow]:
        """All signals now."""
        try:
            return self._read(time_s)
        except self._nvml.NVMLError as error:
            names = (*GPM, "gpu_util", "gpu_memory")
            return [_row(time_s, name, None, SignalState.SCRAPE_FAILED, str(error)[-80:]) for name in names]

    def _read(self, time_s: float) -> list[SignalRow]:
        nvml, used = self._nvml, self._used()
        util = max(float(nvml.nvmlDeviceGetUtilizationRates(self._handles[i]).gpu) for i in used)
        memory = sum(float(nvml.nvmlDeviceGetMemoryInfo(self._handles[i]).used) for i in used)
        rows = [
            _row(time_s, "gpu_util", util, SignalState.OK, "NVML"),
            _row(time_s, "gpu_memory", memory, SignalState.OK, "NVML"),
        ]
        supported = [i for i in used if self._gpm[i]]
        if not supported:
            return rows + [
                _row(time_s, name, None, SignalState.UNSUPPORTED, "NVML GPM: Hopper and newer") for name in GPM
            ]
        found = [values for i in supported if (values := self._since_last(i)) is not None]
        if not found:
            return rows  # the first sample of each has nothing to be compared with
        for at, name in enumerate(GPM):
            known = [v for values in found if (v := values[at]) is not None]
            state = SignalState.OK if known else SignalState.UNSUPPORTED
            rows.append(_row(time_s, name, max(known) if known else None, state, "NVML GPM"))
        return rows

    def _supports_gpm(self, handle: Any) -> bool:  # noqa: ANN401 - an opaque pointer
        try:
            return bool(self._nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice)
        except self._nvml.NVMLError:
            return False

    def _since_last(self, index: int) -> list[float | None] | None:
        """Ratios in the order of ``GPM`` since the device's last sample; None at its first."""
        nvml = self._nvml
        fresh = nvml.nvmlGpmSampleAlloc()
        try:
            nvml.nvmlGpmSampleGet(self._handles[index], fresh)
        except nvml.NVMLError:
            nvml.nvmlGpmSampleFree(fresh)
            raise
        last, self._last[index] = self._last.get(index), fresh
        if last is None:
            return None
        try:
            asked = nvml.c_nvmlGpmMetricsGet_t()
            asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
            asked.numMetrics = len(GPM)
            asked.sample1, asked.sample2 = last, fresh
            for at, constant in enumerate(GPM.values()):
                asked.metrics[at].metricId = getattr(nvml, constant)
            nvml.nvmlGpmMetricsGet(asked)
            return [_ratio(asked.metrics[at]) for at in range(len(GPM))]
        finally:
            nvml.nvmlGpmSampleFree(last)

    def _used(self) -> Iterable[int]:
        """GPUs on which the engine computes, as far as NVML and the system tell."""
        try:
            main = psutil.Process(self._pid())
            tree = {main.pid, *(child.pid for child in main.children(recursive=True))}
        except psutil.Error:
            tree = set()
        found = []
        for index, handle in enumerate(self._handles):
            processes = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            if tree & {process.pid for process in processes}:
                found.append(index)
        return found or range(len(self._handles))


def _ratio(metric: Any) -> float | None:  # noqa: ANN401 - a structure of the library
    """A metric as a ratio; None where the library says that it has none, or gives no number."""
    value = float(metric.value)
    return None if metric.nvmlReturn or value != value else value / 100  # noqa: PLR0124 - NaN


def _row(time_s: float, signal: str, value: float | None, state: SignalState, source: str) -> SignalRow:
    return SignalRow(time_s=time_s, signal=signal, value=value, state=state, source=source)
