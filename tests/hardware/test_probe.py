import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace

import pytest

from setpoint.hardware.probe import probe


def ticking(*steps: float) -> Callable[[], float]:
    """A clock that is read twice a repeat; repeats take the given seconds in turn."""

    def readings() -> Iterator[float]:
        now = 0.0
        for index in count():
            yield now
            now += steps[index % len(steps)]
            yield now

    return readings().__next__


def test_rates_are_amounts_over_time_with_median_and_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = probe(repeats=3, copy_bytes=8000, matrix=10, clock=ticking(1.0, 4.0, 2.0))
    copy, single, double = found.measurements
    assert (copy.unit, copy.low, copy.median, copy.high, copy.repeats) == ("B/s", 4000, 8000, 16000, 3)
    assert (single.unit, single.low, single.median, single.high) == ("FLOP/s", 500, 1000, 2000)
    assert "32" in single.name
    assert "64" in double.name
    assert found.processors >= 1


def test_this_machine_really_copies_and_multiplies() -> None:
    found = probe(repeats=2, copy_bytes=2**22, matrix=128)
    assert all(0 < m.low <= m.median <= m.high for m in found.measurements)
    # Any machine that runs this moves more than a megabyte and multiplies more than a million numbers per second.
    assert found.measurements[0].median > 1e6
    assert found.measurements[1].median > 1e6


def test_without_the_package_gpus_are_unsupported_rather_than_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    found = probe(repeats=1, copy_bytes=800, matrix=4)
    assert (found.gpus, found.devices) == ("unsupported", ())
    assert "not installed" in found.reason


class NVMLError(Exception):
    pass


def nvml(devices: int, links: int, **changed: object) -> SimpleNamespace:
    """NVML's functions for equal devices with some active links."""

    def link_state(handle: int, index: int) -> int:
        if index >= 4:
            raise NVMLError
        return int(index < links)

    found: dict[str, object] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: devices,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda handle: b"Acme 1" if handle else "Acme 0",
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80 * 2**30),
        "nvmlDeviceGetNvLinkState": link_state,
        "nvmlDeviceGetMaxPcieLinkGeneration": lambda handle: 5,
        "nvmlDeviceGetMaxPcieLinkWidth": lambda handle: 16,
    }
    return SimpleNamespace(**{**found, **changed})


@pytest.mark.parametrize(("devices", "links", "path"), [(1, 0, "none"), (2, 0, "bus"), (2, 4, "nvlink")])
def test_devices_and_the_links_that_can_be_seen(
    monkeypatch: pytest.MonkeyPatch, devices: int, links: int, path: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml(devices, links))
    found = probe(repeats=1, copy_bytes=800, matrix=4)
    assert (found.gpus, found.reason, len(found.devices)) == ("measured", "", devices)
    assert [d.name for d in found.devices] == ["Acme 0", "Acme 1"][:devices]
    first = found.devices[0]
    assert (first.link, first.links, first.bus, first.memory_bytes) == (path, links, "PCIe5 x16", 80 * 2**30)


def test_a_driver_that_does_not_answer_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise NVMLError("Driver Not Loaded")

    for name in ("nvmlInit", "nvmlDeviceGetCount"):
        monkeypatch.setitem(sys.modules, "pynvml", nvml(1, 0, **{name: broken}))
        found = probe(repeats=1, copy_bytes=800, matrix=4)
        assert found.gpus == "unsupported"
        assert "Driver Not Loaded" in found.reason
