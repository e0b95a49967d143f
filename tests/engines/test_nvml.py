"""GPU signals through NVML, on a simulated library: no test here has run on a GPU."""

import importlib
import os
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from setpoint.engines.nvml import GPM, load_nvml, nvml_sampler
from setpoint.records.signal import SignalState

READINGS = {2: 88.0, 5: 41.5, 10: 55.0}  # by the ids of the metrics


class Error(Exception):
    pass


def library(*, gpm: bool = True, pids: tuple[tuple[int, ...], ...] = ((),), lost: bool = False) -> Any:  # noqa: ANN401
    """NVML as nvidia-ml-py presents it; ``pids`` are the processes on each device."""
    out: Any = ModuleType("pynvml")
    out.NVMLError = Error
    out.NVML_GPM_METRICS_GET_VERSION = 1
    out.NVML_GPM_METRIC_SM_UTIL, out.NVML_GPM_METRIC_ANY_TENSOR_UTIL, out.NVML_GPM_METRIC_DRAM_BW_UTIL = READINGS
    out.allocated = []

    def metrics() -> Any:  # noqa: ANN401
        return SimpleNamespace(metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(98)])

    def get(asked: Any) -> None:  # noqa: ANN401
        assert asked.version == 1
        assert asked.sample1 is not asked.sample2
        for metric in asked.metrics[: asked.numMetrics]:
            metric.value = READINGS[metric.metricId] / (1 + asked.sample2.device)

    def util(handle: int) -> Any:  # noqa: ANN401
        if lost:
            raise Error("GPU is lost")
        return SimpleNamespace(gpu=100 - handle, memory=3)

    def alloc() -> Any:  # noqa: ANN401
        out.allocated.append(SimpleNamespace(device=None))
        return out.allocated[-1]

    out.nvmlInit = lambda: None
    out.nvmlDeviceGetCount = lambda: len(pids)
    out.nvmlDeviceGetHandleByIndex = int
    out.nvmlDeviceGetUtilizationRates = util
    out.nvmlDeviceGetMemoryInfo = lambda handle: SimpleNamespace(used=1000 + handle)
    out.nvmlDeviceGetComputeRunningProcesses = lambda handle: [SimpleNamespace(pid=p) for p in pids[handle]]
    out.nvmlGpmQueryDeviceSupport = lambda _: SimpleNamespace(isSupportedDevice=int(gpm))
    out.nvmlGpmSampleAlloc = alloc
    out.nvmlGpmSampleGet = lambda handle, sample: setattr(sample, "device", handle)
    out.nvmlGpmSampleFree = out.allocated.remove
    out.nvmlGpmMetricsGet = get
    out.c_nvmlGpmMetricsGet_t = metrics
    return out


def read(lib: ModuleType, times: int = 2) -> dict[str, Any]:
    sample = nvml_sampler(lib, os.getpid)
    assert sample is not None
    for second in range(times):
        rows = sample(float(second))
    return {row.signal: (row.value, row.state) for row in rows}


def test_activity_is_a_ratio_between_two_samples_and_old_samples_are_freed() -> None:
    lib = library()
    found = read(lib, times=5)
    assert found["gpu_sm_active"] == (0.88, SignalState.OK)
    assert found["gpu_tensor_active"] == (0.415, SignalState.OK)
    assert found["gpu_dram_active"] == (0.55, SignalState.OK)
    assert found["gpu_util"] == (100.0, SignalState.OK)
    assert len(lib.allocated) == 1


def test_the_first_reading_has_no_activity_yet() -> None:
    assert set(read(library(), times=1)) == {"gpu_util", "gpu_memory"}


def test_a_gpu_before_hopper_has_no_activity_and_gpu_util_does_not_stand_in() -> None:
    found = read(library(gpm=False))
    assert {found[name] for name in GPM} == {(None, SignalState.UNSUPPORTED)}
    assert found["gpu_util"] == (100.0, SignalState.OK)


def test_only_gpus_of_the_engine_count_and_all_where_they_are_not_known() -> None:
    assert read(library(pids=((1,), (os.getpid(),))))["gpu_sm_active"] == (0.44, SignalState.OK)
    assert read(library(pids=((1,), (2,))))["gpu_sm_active"] == (0.88, SignalState.OK)
    assert read(library(pids=((1,), (2,))))["gpu_memory"] == (2001.0, SignalState.OK)


def test_a_lost_gpu_is_a_failed_reading() -> None:
    found = read(library(lost=True))
    assert set(found) == {*GPM, "gpu_util", "gpu_memory"}
    assert {state for _, state in found.values()} == {SignalState.SCRAPE_FAILED}


@pytest.mark.parametrize("broken", ["missing", "no driver", "no gpu"])
def test_without_bindings_driver_or_gpu_there_is_no_sampler(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lib = library(pids=() if broken == "no gpu" else ((),))

    def init() -> None:
        raise Error("Driver Not Loaded")

    def load(name: str) -> Any:  # noqa: ANN401
        assert name == "pynvml"
        if broken == "missing":
            raise ImportError(name)
        return lib

    if broken == "no driver":
        lib.nvmlInit = init
    monkeypatch.setattr(importlib, "import_module", load)
    assert load_nvml() is None
    assert nvml_sampler(None, os.getpid) is None
