"""How the tests share a few cores: those that measure time have lanes of their own, the others make way for them.

Tests that measure mostly wait, so there are more workers of pytest-xdist than cores. A worker that has come to a test
that measures nothing lowers its priority, and with it that of all it starts. Without xdist every test runs in order, at
one priority.
"""

import os

import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

# What measures, lane by lane: a lane runs in order on one worker.
MEASURING = {
    "bench": ("tests/cli/test_bench.py",),
    "search": ("tests/load/test_search.py", "tests/experiments/test_live.py"),
    "gateway": ("tests/gateway/",),
    "fleet": ("tests/fleet/", "tests/assess/", "tests/cli/test_assess.py"),
    "load": (
        "tests/load/",
        "tests/cli/test_diagnose.py",
        "tests/cli/test_eval.py",
        "tests/client/test_times.py",
        "tests/diagnosis/test_live_probes.py",
        "tests/diagnosis/test_planted.py",
        "tests/quality/test_under_load.py",
        "tests/testing/",
    ),
}
# Of the others, those that take long and must not come last.
LONG = ("tests/quality/test_engine.py", "tests/cli/", "tests/workload/", "tests/sizing/")
NICENESS = 10


def lane_of(nodeid: str) -> str:
    """A test's lane; that of a test that measures nothing is its file."""
    file = nodeid.split("::", maxsplit=1)[0]
    return next((lane for lane, paths in MEASURING.items() if file.startswith(paths)), file)


def _rank(lane: str) -> int:
    if lane in MEASURING:
        return -1
    return next((i for i, path in enumerate(LONG) if lane.startswith(path)), len(LONG))


class LaneScheduling(LoadFileScheduling):
    """Gives out the lanes that measure first, then what takes long."""

    def _split_scope(self, nodeid: str) -> str:
        return lane_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(min(self.workqueue, key=_rank), last=False)
        super()._assign_work_unit(node)


def make_way(item: pytest.Item) -> None:
    """Lowers the priority of a worker that has come to a test that measures nothing."""
    if "PYTEST_XDIST_WORKER" in os.environ and lane_of(item.nodeid) not in MEASURING:
        os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
