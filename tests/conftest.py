"""What all tests share: which of them can run here, and in which order."""

import faulthandler
import gc
import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.lanes import LaneScheduling, make_way
from tests.shared import ABSENT, shared_data

if TYPE_CHECKING:
    from pytest_timeout import Settings

IN_WORKER = "PYTEST_XDIST_WORKER" in os.environ
STDERR = pytest.StashKey[int]()

# How long an example takes says what else the machine does, not whether the code is right.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_report_header() -> list[str]:
    """Says which tests are part of this run."""
    where = shared_data()
    recorded = "absent, tests marked shared are left out" if where == ABSENT else str(where)
    vllm = "part of this run" if os.environ.get("SETPOINT_TEST_VLLM") else "left out, make test-vllm runs them"
    return [f"recorded data: {recorded}", f"tests on vLLM: {vllm}"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests on recorded data where there are none, and those on vLLM unless they were asked for."""
    absent = {name for name in ("shared",) if shared_data() == ABSENT}
    absent |= set() if os.environ.get("SETPOINT_TEST_VLLM") else {"vllm"}
    absent |= set() if os.environ.get("SETPOINT_INSPECT") else {"inspect"}
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in absent)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """What was imported stays: a collection of garbage in a test need not look through it (half a second each time)."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    """Keeps standard error as it is before tests are captured."""
    config.stash[STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The other half."""
    os.close(config.stash[STDERR])


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: "Settings") -> bool | None:
    """In a worker of xdist a test that exceeds its time ends the process and says where it was.

    The timer of pytest-timeout ends it too, but says so on standard output, which a worker does not have.
    """
    if not IN_WORKER or not settings.timeout:
        return None
    faulthandler.dump_traceback_later(settings.timeout, file=item.config.stash[STDERR], exit=True)
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer() -> bool | None:
    """The test has ended in time."""
    if not IN_WORKER:
        return None
    faulthandler.cancel_dump_traceback_later()
    return True


@pytest.hookimpl(optionalhook=True)  # there is none without xdist
def pytest_xdist_make_scheduler(config: pytest.Config) -> LaneScheduling:
    """Lanes that each run in order on one worker."""
    return LaneScheduling(config)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that measures nothing makes way for those that do."""
    make_way(item)
