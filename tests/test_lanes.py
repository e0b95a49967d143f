"""How tests are given to workers: each once, in order within a lane, whichever workers die."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.lanes import ALONE, LaneScheduling, lane_of
from xdist.workermanage import WorkerController

ROOT = Path(__file__).parents[1]
SEARCH = ALONE["search"][0]
TESTS = [
    *(f"tests/gateway/test_a.py::test_{i}" for i in range(5)),
    "tests/gateway/test_b.py::test_one",
    *(f"{SEARCH}::test_{i}" for i in range(3)),
    *(f"tests/load/test_c.py::test_{i}" for i in range(2)),
    *(f"tests/x/test_{name}.py::test_it" for name in "defg"),
]


class Worker:
    """A worker as the scheduler sees it: it begins a test only once it knows of the next, or that there is none."""

    def __init__(self, name: str) -> None:
        self.gateway = SimpleNamespace(id=name)
        self.queue: list[int] = []
        self.shutting_down = False
        self.running: int | None = None

    def send_runtest_some(self, indices: list[int]) -> None:
        self.queue.extend(indices)

    def shutdown(self) -> None:
        self.shutting_down = True

    def begin(self) -> None:
        if self.running is None and (len(self.queue) > 1 or (self.queue and self.shutting_down)):
            self.running = self.queue.pop(0)


class Session:
    """What pytest-xdist does with the scheduler, an event at a time."""

    def __init__(self, workers: int) -> None:
        config = SimpleNamespace(option=SimpleNamespace(tx=["popen"] * workers))
        self.lanes = LaneScheduling(cast("pytest.Config", config))
        self.workers: list[Worker] = []
        self.collecting: list[Worker] = []
        self.done: list[str] = []
        self.crashed: list[str] = []
        self.made = 0
        for _ in range(workers):
            self.start()

    def start(self) -> None:
        worker = Worker(f"gw{self.made}")
        self.made += 1
        self.lanes.add_node(cast("WorkerController", worker))
        self.collecting.append(worker)

    def collect(self) -> None:
        worker = self.collecting.pop(0)
        self.workers.append(worker)
        self.lanes.add_node_collection(cast("WorkerController", worker), TESTS)
        if self.lanes.collection_is_completed:
            self.lanes.schedule()

    def end_test(self, worker: Worker) -> None:
        assert worker.running is not None
        number, worker.running = worker.running, None
        self.done.append(TESTS[number])
        self.lanes.mark_test_complete(cast("WorkerController", worker), number)

    def kill(self, worker: Worker) -> None:
        self.workers.remove(worker)
        crashed = self.lanes.remove_node(cast("WorkerController", worker))
        if crashed is not None:
            self.crashed.append(crashed)
        self.start()

    def step(self) -> list[Worker]:
        """The workers that are running a test."""
        for worker in self.workers:
            worker.begin()
        running = [worker for worker in self.workers if worker.running is not None]
        files = [TESTS[w.running].split("::")[0] for w in running if w.running is not None]
        lanes = [lane_of(file) for file in files]
        assert len(set(lanes)) == len(lanes), "a lane runs on one worker"
        assert len(lanes) <= 1 or not set(lanes) & set(ALONE), "what is to be alone is not"
        return running


@given(st.data())
def test_every_test_ends_or_is_named_as_the_one_that_killed_its_worker(data: st.DataObject) -> None:
    session = Session(data.draw(st.integers(1, 3)))
    deaths_left = data.draw(st.integers(0, 4))
    for _ in range(1000):
        running = session.step()
        assert running or session.collecting or session.lanes.tests_finished, "everybody waits"
        choices = ["collect"] * bool(session.collecting) + ["end"] * bool(running)
        choices += ["kill"] * bool(deaths_left and session.lanes.collection is not None and session.workers)
        if session.lanes.tests_finished or not choices:
            break
        match data.draw(st.sampled_from(choices)):
            case "collect":
                session.collect()
            case "end":
                session.end_test(data.draw(st.sampled_from(running)))
            case _:
                deaths_left -= 1
                session.kill(data.draw(st.sampled_from(session.workers)))
    assert Counter(session.done + session.crashed) == Counter(TESTS)
    if not session.crashed:
        for lane in {lane_of(test) for test in TESTS}:
            assert [t for t in session.done if lane_of(t) == lane] == [t for t in TESTS if lane_of(t) == lane]


def test_what_another_worker_collected_otherwise_is_told() -> None:
    session = Session(2)
    session.collect()
    other = cast("WorkerController", session.collecting[0])
    with pytest.raises(pytest.UsageError, match=r"gw1 collected other tests than the first worker: .*test_it"):
        session.lanes.add_node_collection(other, TESTS[:-1])


SMALL = {
    "conftest.py": "from tests.conftest import *\n",
    "test_a.py": "import time, pytest\ndef test_1(): pass\n@pytest.mark.timeout(1)\ndef test_hangs(): time.sleep(60)\n"
    "def test_3(): pass\n",
    "test_b.py": "def test_1(): pass\n",
}


def test_the_death_of_a_worker_fails_its_test_alone_and_the_rest_is_run(tmp_path: Path) -> None:
    for name, text in SMALL.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\ntimeout_method = thread\n", encoding="utf-8")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "COV"))}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n2", "-p", "no:cacheprovider"], cwd=tmp_path, capture_output=True,
        text=True, timeout=100, check=False, env=environment | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "crashed while running 'test_a.py::test_hangs'" in done.stdout
    assert "1 failed, 3 passed" in done.stdout.splitlines()[-1]
    assert "Timeout (0:00:01)!" in done.stderr
    assert "in test_hangs" in done.stderr
