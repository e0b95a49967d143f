"""One planted bottleneck, diagnosed as a user would: engine, proxy or crowd started, traffic, probes, verdicts."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec

from setpoint.assess.bench import Bench
from setpoint.assess.probe import Diagnosed, diagnose_target
from setpoint.assess.target import OpenTarget, TargetOptions, open_target
from setpoint.load.progress import Phase, Progress
from setpoint.records.store import RunStore
from setpoint.testing.planted import Planted
from setpoint.testing.serve import running
from setpoint.testing.slow_proxy import slow_proxy
from setpoint.workload.card import Workload

_HOG = "while True: pass"


@contextlib.contextmanager
def crowd(count: int) -> Iterator[None]:
    """So many processes that use a core each; each in a session of its own.

    Linux shares out the CPU by session first: all together they would weigh no more than the engine.
    """
    hogs = [subprocess.Popen([sys.executable, "-c", _HOG], start_new_session=True) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


class Freezer:
    """Stops a process some time after the first measured send, once, and lets it go on: a listener of runs.

    Args:
        pid: Tells which.
        after_s: After the beginning of the measured part.
        for_s: How long.
    """

    def __init__(self, pid: Callable[[], int], after_s: float, for_s: float) -> None:
        self._pid = pid
        self._timers = [threading.Timer(after_s, self._send, (signal.SIGSTOP,))]
        self._timers.append(threading.Timer(after_s + for_s, self._send, (signal.SIGCONT,)))
        self._begun = False

    def __call__(self, progress: Progress) -> None:
        """Told how a run goes."""
        if not self._begun and progress.phase is Phase.MEASURE and progress.elapsed_s >= 0:
            self._begun = True
            for timer in self._timers:
                timer.start()

    def end(self) -> None:
        """Lets the process go on, whatever happened."""
        for timer in self._timers:
            timer.cancel()
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid(), number)


@contextlib.contextmanager
def opened(plant: Planted, card: Workload) -> Iterator[tuple[OpenTarget, OpenTarget | None]]:
    """The target, and the engine behind it where the target is a proxy."""
    with contextlib.ExitStack() as stack:
        if plant.null:
            url, _ = stack.enter_context(running("setpoint.testing.null_server"))
            yield stack.enter_context(open_target(card, TargetOptions(url=url))), None
            return
        flags = {k: v if isinstance(v, str) else msgspec.json.encode(v).decode() for k, v in plant.script.items()}
        engine = stack.enter_context(open_target(card, TargetOptions(engine=plant.engine, flags=flags)))
        if not plant.proxy_s:
            stack.enter_context(crowd(plant.hogs))
            yield engine, None
            return
        url = stack.enter_context(slow_proxy(engine.target.base_url, plant.proxy_s))
        yield replace(engine, target=replace(engine.target, base_url=url)), engine


def diagnose_plant(
    plant: Planted, folder: Path, budget_s: float = 75.0, note: Callable[[str], None] = lambda _: None
) -> Diagnosed:
    """Plants it and diagnoses it."""
    card = Workload.model_validate(plant.card())
    with opened(plant, card) as (target, direct):
        workers = 1 if plant.null else None
        bench = Bench(card=card, folder=".", opened=target, store=RunStore(folder), workers=workers, note=note)
        if plant.freeze_s is None:
            return diagnose_target(bench, budget_s=budget_s, direct=direct)
        assert target.pid is not None
        freezer = Freezer(target.pid, *plant.freeze_s)
        try:
            return diagnose_target(replace(bench, listen=freezer), budget_s=budget_s, direct=direct)
        finally:
            freezer.end()


if __name__ == "__main__":
    from setpoint.testing.planted import PLANTED
    from setpoint.testing.planted_real import PLANTED_REAL

    for name in sys.argv[1:]:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            done = diagnose_plant((PLANTED | PLANTED_REAL)[name], Path(folder), note=print)
        d = done.diagnosis
        print(f"== {name}: {time.monotonic() - begun:.0f} s: {d.headline}")
        for f in d.findings:
            if f.conclusion != "refuted":
                print("  ", f.conclusion, f.name, f.share and round(f.share.value, 2), f.reason)
                for line in f.evidence:
                    print("       ", line)
        for a in d.attribution:
            print("  ", a)
        print(
            "  ",
            done.not_run,
            d.model.overhead_s,
            d.model.prefill_s_per_token,
            d.model.step_s,
            d.model.step_s_per_stream,
        )
