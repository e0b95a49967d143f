"""A server in a child process: it announces itself, and ends with its parent."""

import signal
import subprocess
import sys
import urllib.request

import pytest

from setpoint.testing.serve import ANNOUNCEMENT, running

SERVERS = ("setpoint.testing.null_server", "setpoint.testing.fake_engine")


@pytest.mark.parametrize("module", SERVERS)
def test_a_server_listens_until_the_block_ends(module: str) -> None:
    with running(module) as (url, child):
        with urllib.request.urlopen(f"{url}/v1/models", timeout=20) as response:
            assert response.status == 200
        assert child.poll() is None
    assert child.returncode == 0


@pytest.mark.parametrize("module", SERVERS)
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, None], ids=["SIGTERM", "SIGINT", "the parent's end"])
def test_a_server_ends_on_a_signal_and_with_its_parent(module: str, how: signal.Signals | None) -> None:
    command = [sys.executable, "-m", module]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline().startswith(ANNOUNCEMENT)
        if how is None:
            child.stdin.close()
        else:
            child.send_signal(how)
        assert child.wait(20) == 0


def test_a_child_that_ends_before_it_listens_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="timeit did not start"), running("timeit", ("-n1", "-r1", "pass")):
        pass


def test_a_child_that_never_listens_is_ended_at_the_limit() -> None:
    script = '{"startup_s": 1000}'
    starting = running("setpoint.testing.fake_engine", ("--script", script), limit_s=0.2)
    with pytest.raises(RuntimeError, match="did not start"), starting:
        pass


def test_a_child_is_ended_when_the_block_fails() -> None:
    def fail() -> None:
        with running(SERVERS[0]) as (_, child):
            children.append(child)
            raise ZeroDivisionError

    children: list[subprocess.Popen[str]] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert children[0].returncode == 0
