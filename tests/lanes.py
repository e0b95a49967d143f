"""How the tests share a few cores: lanes that each run in order on one worker of pytest-xdist.

A lane is a file, or the files that may not run beside one another: tests that start an engine which takes a whole core,
tests that measure. Lanes that measure are given out first, so that little else runs beside them, then what takes long;
what decides by tight times comes last and has the machine for itself. A worker that has come to a test that measures
nothing lowers its priority, and with it that of all it starts. Without xdist every test runs in order, at one priority.

The death of a worker fails the test that it was running; the rest of its lane goes to another. (The schedulers of
pytest-xdist leave a replacement that is handed a finished lane, or a single test, waiting for ever.)
"""

import os
from collections import deque
from collections.abc import Sequence
from typing import NoReturn

import pytest
from xdist.workermanage import WorkerController

# What measures, lane by lane: a lane runs in order on one worker.
MEASURING = {
    "assess": ("tests/cli/test_assess.py", "tests/assess/"),
    "experiments": ("tests/experiments/test_live.py",),
    "bench": ("tests/cli/test_bench.py",),
    "gateway": ("tests/gateway/",),
    "load": (
        "tests/load/",
        "tests/fleet/",
        "tests/cli/test_diagnose.py",
        "tests/cli/test_eval.py",
        "tests/client/test_times.py",
        "tests/diagnosis/test_live_probes.py",
        "tests/diagnosis/test_planted.py",
        "tests/quality/test_under_load.py",
        "tests/testing/",
    ),
}
# What has the machine for itself, after everything else.
ALONE = {"search": ("tests/load/test_search.py",)}
# Of the others, those that take long and must not come last.
LONG = ("tests/quality/test_engine.py", "tests/engines/", "tests/cli/", "tests/workload/", "tests/sizing/")
NICENESS = 10
AHEAD = 3
"""Tests that a worker knows of: it begins one only when it has heard of the next."""


def lane_of(nodeid: str) -> str:
    """A test's lane; that of a test that measures nothing is its file."""
    file = nodeid.split("::", maxsplit=1)[0]
    lanes = {**ALONE, **MEASURING}
    return next((lane for lane, paths in lanes.items() if file.startswith(paths)), file)


def _rank(lane: str) -> int:
    if lane in ALONE:
        return len(LONG) + 1
    if lane in MEASURING:
        return -1
    return next((i for i, path in enumerate(LONG) if lane.startswith(path)), len(LONG))


class LaneScheduling:
    """Gives each worker a lane at a time, test by test; what a dead worker leaves goes to the next that asks.

    Follows the protocol ``xdist.scheduler.Scheduling``. Tests are numbered as all workers collected them.

    Args:
        config: Says how many workers there are.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.numnodes = len(config.option.tx)
        self.collection: list[str] | None = None
        self._collected: dict[WorkerController, list[str]] = {}
        self._lanes: list[deque[int]] = []  # nobody has begun them, or their worker has died
        self._lane: dict[WorkerController, deque[int]] = {}  # what is left of a worker's own
        self._sent: dict[WorkerController, deque[int]] = {}  # not known to have ended; the first is running

    @property
    def nodes(self) -> list[WorkerController]:
        """The workers that live."""
        return list(self._sent)

    @property
    def collection_is_completed(self) -> bool:
        """Whether as many workers as there are to be have said what they collected."""
        return len(self._collected) >= self.numnodes

    @property
    def tests_finished(self) -> bool:
        """Whether every test has ended."""
        return self.collection is not None and not self.has_pending

    @property
    def has_pending(self) -> bool:
        """Whether a test is running or still to be run."""
        return bool(self._lanes) or any(self._lane.values()) or any(self._sent.values())

    def add_node(self, node: WorkerController) -> None:
        """A worker has started; it will collect."""
        self._sent[node], self._lane[node] = deque(), deque()

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """What a worker has collected.

        Raises:
            UsageError: it is not what the others have.
        """
        others = next(iter(self._collected.values()), None)
        if others is not None and list(collection) != others:
            different = sorted(set(collection) ^ set(others)) or ["the order"]
            raise pytest.UsageError(f"{node.gateway.id} collected other tests than the first worker: {different[:5]}.")
        self._collected[node] = list(collection)

    def schedule(self) -> None:
        """Gives out the first tests, or those that a dead worker left to the one in its place."""
        if self.collection is None:
            self.collection = next(iter(self._collected.values()))
            lanes: dict[str, deque[int]] = {}
            for number, nodeid in enumerate(self.collection):
                lanes.setdefault(lane_of(nodeid), deque()).append(number)
            self._lanes = [lanes[name] for name in sorted(lanes, key=_rank)]
        self._feed()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """A test has ended."""
        self._sent[node].remove(item_index)
        self._feed()

    def remove_node(self, node: WorkerController) -> str | None:
        """A worker has ended.

        Returns:
            The test that it was running; None when it had none left.
        """
        sent, rest = self._sent.pop(node), self._lane.pop(node)
        if not sent:
            return None
        assert self.collection is not None
        crashed = self.collection[sent.popleft()]
        if left := deque((*sent, *rest)):
            self._lanes.insert(0, left)
        self._feed()
        return crashed

    def mark_test_pending(self, item: str) -> NoReturn:
        """Nobody asks for it."""
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: WorkerController, indices: Sequence[int]) -> NoReturn:
        """Nobody asks for it."""
        raise NotImplementedError

    def _feed(self) -> None:
        """Every worker knows of enough tests, or that there are no more for it."""
        for node in self.nodes:
            if node in self._collected and not node.shutting_down:
                self._feed_one(node)

    def _feed_one(self, node: WorkerController) -> None:
        while len(self._sent[node]) < AHEAD:
            if not self._lane[node]:
                others = [other for other in self.nodes if other is not node]
                if not self._lanes or (self._is_alone(self._lanes[0]) and any(not n.shutting_down for n in others)):
                    node.shutdown()
                    return
                if self._is_alone(self._lanes[0]) and any(self._sent[other] for other in others):
                    return  # the last of the others' tests wakes this worker
                self._lane[node] = self._lanes.pop(0)
            number = self._lane[node].popleft()
            self._sent[node].append(number)
            node.send_runtest_some([number])

    def _is_alone(self, lane: deque[int]) -> bool:
        assert self.collection is not None
        return lane_of(self.collection[lane[0]]) in ALONE


def make_way(item: pytest.Item) -> None:
    """Lowers the priority of a worker that has come to a test that measures nothing."""
    if "PYTEST_XDIST_WORKER" in os.environ and lane_of(item.nodeid) not in {*MEASURING, *ALONE}:
        os.setpriority(os.PRIO_PROCESS, 0, max(NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))
