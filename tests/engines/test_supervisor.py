"""Engines under guard: started, ready when they answer, told how they died, never left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from setpoint.engines.adapter import Engine, Launch, Plan
from setpoint.engines.registry import engine_named
from setpoint.engines.supervisor import Loading, RunningEngine, start
from setpoint.errors import EngineError, UsageError

FAKE = engine_named("fake")


def python(code: str, limit_s: float = 10.0) -> Engine:
    """An engine that is a few lines of Python."""
    return Engine(
        name="lines",
        version=lambda: "1",
        missing="",
        launch=lambda _: Launch((sys.executable, "-c", code)),
        start_limit_s=limit_s,
    )


def begin(engine: Engine, tmp_path: Path, **options: object) -> RunningEngine:
    return start(engine, Path(), "fake", log=tmp_path / "engine.log", **options)  # type: ignore[arg-type]


def gone(pid: int, within_s: float = 15.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


def test_ready_means_that_it_answered_and_stop_leaves_nothing(tmp_path: Path) -> None:
    moments: list[Loading] = []
    with begin(FAKE, tmp_path, flags={"startup_s": "0.5"}, listen=moments.append) as running:
        assert running.started_s["listening"] >= 0.5
        assert running.started_s["first_token"] >= running.started_s["listening"]
        assert running.death() is None
        pid = running.pid
        assert psutil.pid_exists(pid)
        assert running.pins["engine_flags"] == {"startup_s": "0.5"}
        assert running.target.metrics_url == f"{running.target.base_url}/metrics"
    assert gone(pid)
    assert moments[0].listening is False


def test_a_key_is_demanded_and_never_in_the_command_line_of_our_engines(tmp_path: Path) -> None:
    with begin(FAKE, tmp_path) as running:
        assert running.target.api_key is not None
        assert running.target.api_key not in repr(running.target)


def test_an_engine_that_dies_while_loading_says_how(tmp_path: Path) -> None:
    code = "import sys; print('loading'); print('CUDA error: out of memory', file=sys.stderr); sys.exit(3)"
    with pytest.raises(EngineError) as caught:
        begin(python(code), tmp_path)
    assert "exit code 3" in str(caught.value)
    assert "it ran out of memory" in str(caught.value)
    assert "CUDA error" in str(caught.value)


def test_an_engine_that_is_killed_says_by_what(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"signal 9.*out-of-memory killer"):
        begin(python("import os; os.kill(os.getpid(), 9)"), tmp_path)


def test_an_engine_that_never_listens_is_given_up_and_ended(tmp_path: Path) -> None:
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    with pytest.raises(EngineError, match="did not answer within"):
        begin(python(code, limit_s=1.0), tmp_path)
    pid = int((tmp_path / "engine.log").read_text(encoding="utf-8").split()[0])
    assert gone(pid)


def test_an_engine_that_listens_and_never_answers_is_not_ready(tmp_path: Path) -> None:
    def launch(plan: Plan) -> Launch:
        code = f"import socket, time; s = socket.create_server(('127.0.0.1', {plan.port})); time.sleep(600)"
        return Launch((sys.executable, "-c", code))

    engine = Engine(name="deaf", version=lambda: "1", missing="", launch=launch, start_limit_s=2.0)
    with pytest.raises(EngineError, match="did not answer within"):
        begin(engine, tmp_path)


def test_a_taken_port_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match=f"Port {port} on 127.0.0.1 is taken"):
            begin(FAKE, tmp_path, port=port)
    assert not (tmp_path / "engine.log").exists()


def test_the_death_of_a_running_engine_is_noticed(tmp_path: Path) -> None:
    with begin(FAKE, tmp_path) as running:
        os.kill(running.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while running.death() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "killed by signal 9" in str(running.death())


@pytest.mark.parametrize("own_session", [False, True])
def test_helpers_of_an_engine_end_with_it(tmp_path: Path, own_session: bool) -> None:
    """A helper that ignores SIGTERM is killed after its engine's grace, in the engine's group or in one of its own."""
    helper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
    code = f"""
import subprocess, sys, runpy
child = subprocess.Popen([sys.executable, '-c', {helper!r}], start_new_session={own_session})
print('helper', child.pid, flush=True)
sys.argv = ['fake', '--port', PORT, '--script', SCRIPT]
runpy.run_module('setpoint.testing.fake_engine', run_name='__main__')
"""

    def launch(plan: Plan) -> Launch:
        script = f'{{"model": "fake", "api_key": "{plan.api_key}"}}'
        return Launch((sys.executable, "-c", code.replace("PORT", f"'{plan.port}'").replace("SCRIPT", repr(script))))

    engine = Engine(name="family", version=lambda: "1", missing="", launch=launch, start_limit_s=20.0)
    with begin(engine, tmp_path) as running:
        words = (tmp_path / "engine.log").read_text(encoding="utf-8").split()
        helper_pid = int(words[words.index("helper") + 1])
        assert psutil.pid_exists(helper_pid)
        main_pid = running.pid
    assert gone(helper_pid)
    assert gone(main_pid)


def test_helpers_that_outlive_a_killed_engine_are_reaped(tmp_path: Path) -> None:
    """Nothing of them is left, not even a zombie for process 1."""
    code = "import os, subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); os.kill(os.getpid(), 9)"
    with pytest.raises(EngineError, match="killed by signal 9"):
        begin(python(code), tmp_path)
    assert not psutil.pid_exists(int((tmp_path / "engine.log").read_text(encoding="utf-8")))


def test_lines_that_say_nothing_about_a_death_are_not_shown(tmp_path: Path) -> None:
    engine = replace(python("print('the reason'); print('leaked 1'); print('leaked 2'); exit(3)"), noise=r"^leaked \d")
    with pytest.raises(EngineError, match="the reason") as caught:
        begin(engine, tmp_path)
    assert "leaked" not in str(caught.value)


def test_no_orphan_when_the_parent_is_killed(tmp_path: Path) -> None:
    code = f"""
import time
from pathlib import Path
from setpoint.engines.registry import engine_named
from setpoint.engines.supervisor import start
running = start(engine_named('fake'), Path(), 'fake', log=Path({str(tmp_path / "engine.log")!r}))
print(running.pid, flush=True)
time.sleep(600)
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert psutil.pid_exists(pid)
    parent.kill()
    parent.wait(10)
    parent.stdout.close()
    assert gone(pid)


def test_an_engine_that_is_not_installed_says_how_to_install_it(tmp_path: Path) -> None:
    engine = Engine(name="absent", version=lambda: None, missing="pip install absent", launch=lambda _: Launch(()))
    with pytest.raises(EngineError, match="absent is not installed") as caught:
        begin(engine, tmp_path)
    assert "pip install absent" in str(caught.value)


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="llamacpp, vllm, fake"):
        engine_named("ollama")
