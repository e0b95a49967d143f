"""Engines behind one address from start to end: held while they load, started on demand, mourned once, never left."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from tests.fleet.conftest import Serving, all_gone, deployment_of, serving
from tests.gateway.conftest import Answer, until

from setpoint import __version__
from setpoint.testing.fake_engine import fake_engine


class Asked:
    """A request that is sent in the background."""

    def __init__(self, gateway: Serving, **members: object) -> None:
        self.answer: Answer | None = None
        self.began = time.monotonic()
        self.took_s = 0.0
        self._thread = threading.Thread(target=self._ask, args=(gateway, members))
        self._thread.start()

    def _ask(self, gateway: Serving, members: dict[str, Any]) -> None:
        self.answer = gateway.chat(**members)
        self.took_s = time.monotonic() - self.began

    def done(self) -> Answer:
        self._thread.join(30)
        assert self.answer is not None
        return self.answer


def test_replicas_behind_one_address_held_while_they_load(tmp_path: Path) -> None:
    """From start to end: a request before the first token waits; metrics say what serves; Ctrl-C leaves no process."""
    model = {"replicas": 2, "flags": {"startup_s": 0.5, "slots": 3, "kv_tokens": 4096}}
    with serving(tmp_path, deployment_of(tmp_path, model=model)) as serve:
        serve.listening()
        held = Asked(serve)
        assert held.done().status == 200
        told = serve.ready()
        assert told["address"] == f"http://127.0.0.1:{serve.port}"
        assert [one["state"] for one in told["replicas"]] == ["up", "up"]
        assert all(one["ready_s"] >= 0.5 for one in told["replicas"])
        assert len(serve.engines()) == 2
        status = serve.admin.call("GET", "/status").json()["replicas"]
        assert [one["max_in_flight"] for one in status] == [3, 3]
        text = serve.admin.call("GET", "/metrics").body.decode()
        config = told["replicas"][0]["config"]
        about = f'engine="fake",engine_config="{config}",engine_version="{__version__}"'
        assert f'setpoint_gateway_replica_info{{{about},model="fake",replica="r1"}} 1.0' in text
        assert serve.chat(model="nothing").status == 404
        file = (tmp_path / "state" / "gateway.yaml").read_text()
        assert "kv_tokens: 4096" in file
        assert (tmp_path / "state" / "run").stat().st_mode & 0o077 == 0
        family = serve.family()
        serve.process.send_signal(signal.SIGINT)
        assert serve.process.wait(20) == 0
        all_gone(family)
        assert serve.hears("every engine has ended")


def test_a_second_ctrl_c_waits_for_no_answer_and_leaves_no_process(tmp_path: Path) -> None:
    """The first drains; what a client would still have got for minutes ends with the second, the engine too."""
    with serving(
        tmp_path, deployment_of(tmp_path, drain=600, model={"flags": {"decode_s": 0.05, "output_tokens": 8000}})
    ) as serve:
        serve.ready()
        asked = Asked(serve, stream=True, max_tokens=8000)
        until(lambda: any(one["in_flight"] for one in serve.admin.call("GET", "/status").json()["replicas"]))
        family = serve.family()
        serve.process.send_signal(signal.SIGINT)
        serve.hears("draining")
        assert serve.process.poll() is None
        serve.process.send_signal(signal.SIGINT)
        assert serve.process.wait(30) == 130
        all_gone(family)
        answer = asked.done()
        assert answer.status == 200
        assert b'"error"' in answer.body
        assert b"[DONE]" not in answer.body


def test_a_load_that_outlasts_the_hold_is_a_503_with_the_time_that_is_left(tmp_path: Path) -> None:
    model = {"flags": {"startup_s": 60}, "queue": {"loading_wait": 0.3}, "load_time": 40}
    with serving(tmp_path, deployment_of(tmp_path, model=model)) as serve:
        serve.listening()
        answer = serve.chat()
        assert answer.status == 503
        assert answer.json()["error"]["code"] == "loading"
        assert 10 <= int(answer.fields["retry-after"]) <= 40
        within = serve.chat(fields={"x-setpoint-timeout-ms": "5000"})
        assert (within.status, within.json()["error"]["code"]) == (503, "loading")


def test_a_killed_engine_is_told_once_and_started_again(tmp_path: Path) -> None:
    model = {"replicas": 2, "restart_policy": {"delay": 0.2, "max_attempts": 1}}
    with serving(tmp_path, deployment_of(tmp_path, model=model)) as serve:
        serve.ready()
        first, second = serve.engines()
        first.kill()
        line = serve.hears("killed by signal 9")
        assert "fake/r" in line
        assert "SIGKILL" in line
        assert "restart 1 of 1" in "".join(serve.said)
        assert [serve.chat().status for _ in range(4)] == [200] * 4  # the other one serves meanwhile
        until(lambda: serve.states() == ["up", "up"], 20)
        replaced = next(one for one in serve.engines() if one.pid != second.pid)
        replaced.kill()
        serve.hears("stays down after 1 restarts")
        states = until(lambda: (now := serve.states()) and "down" in now and now)
        assert sorted(states) == ["down", "up"]
        assert [serve.chat().status for _ in range(4)] == [200] * 4
        second.kill()
        until(lambda: "".join(serve.said).count("restart 1 of 1") == 2)
        until(lambda: "up" in serve.states(), 20)
        (last,) = serve.engines()
        last.kill()
        assert serve.process.wait(30) == 4  # nothing is left to serve
        assert serve.hears("No engine is left")


def test_requests_wait_for_a_restart(tmp_path: Path) -> None:
    model = {"flags": {"startup_s": 0.5}, "restart_policy": {"delay": 0.5}}
    with serving(tmp_path, deployment_of(tmp_path, model=model)) as serve:
        serve.ready()
        serve.engines()[0].kill()
        until(lambda: "loading" in serve.states())
        held = Asked(serve)
        assert held.done().status == 200
        assert held.took_s >= 0.5


def test_an_engine_that_dies_while_loading_ends_the_start(tmp_path: Path) -> None:
    """The cause stands in its log; the other replica, which would have loaded, ends too."""
    weights = tmp_path / "model.gguf"
    weights.write_bytes(b"no weights")
    bad = {"engine": "llamacpp", "model": str(weights), "flags": {"n_ctx": 256}}
    deployment = deployment_of(tmp_path, model={"flags": {"startup_s": 60}})
    deployment["models"]["bad"] = bad
    with serving(tmp_path, deployment) as serve:
        serve.listening()
        assert serve.process.wait(40) == 4
        said = "".join(serve.said)
        assert "bad/r0: llamacpp ended with exit code" in said
        assert "the model file is missing or damaged" in said
        assert "Last lines of" in said
        assert "Traceback" not in said


def test_an_engine_that_is_not_ready_in_time_ends_the_start(tmp_path: Path) -> None:
    model = {"flags": {"startup_s": 60}, "start_timeout": 0.5}
    with serving(tmp_path, deployment_of(tmp_path, model=model)) as serve:
        assert serve.process.wait(30) == 4
        serve.hears("fake/r0: fake did not answer within 500 ms")


def test_engines_start_upon_the_first_request_and_end_without_any(tmp_path: Path) -> None:
    model = {"min_replicas": 0, "idle_stop": 1, "flags": {"startup_s": 0.4}}
    with serving(tmp_path, deployment_of(tmp_path, model=model)) as serve:
        told = serve.ready()
        assert [one["state"] for one in told["replicas"]] == ["stopped"]
        assert (serve.states(), serve.engines()) == (["stopped"], [])
        assert serve.call("GET", "/v1/models").json()["data"][0]["id"] == "fake"
        first = Asked(serve)
        assert first.done().status == 200
        assert first.took_s >= 0.4
        (engine,) = serve.engines()
        until(lambda: serve.states() == ["stopped"], 20)
        until(lambda: not serve.engines())
        until(lambda: not engine.is_running())
        assert Asked(serve).done().status == 200
        assert (tmp_path / "state" / "load-times.json").exists()


def test_a_long_answer_keeps_its_engine(tmp_path: Path) -> None:
    model = {"min_replicas": 0, "idle_stop": 0.3, "flags": {"decode_s": 0.15, "output_tokens": 16}}
    with serving(tmp_path, deployment_of(tmp_path, model=model)) as serve:
        serve.ready()
        answer = serve.chat(stream=True, max_tokens=16)
        assert answer.status == 200
        assert b"[DONE]" in answer.body


def test_no_orphan_when_it_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, deployment_of(tmp_path, model={"replicas": 2})) as serve:
        serve.ready()
        family = serve.family()
        assert len(family) >= 6  # itself, a worker, two guards, two engines
        serve.process.kill()
        serve.process.wait(10)
        all_gone(family)


def test_a_drain_lets_answers_end(tmp_path: Path) -> None:
    model = {"flags": {"decode_s": 0.1, "output_tokens": 12}}
    with serving(tmp_path, deployment_of(tmp_path, model=model)) as serve:
        serve.ready()
        asked = Asked(serve, stream=True, max_tokens=12)
        until(lambda: serve.admin.call("GET", "/status").json()["replicas"][0]["in_flight"] == 1)
        serve.process.terminate()
        answer = asked.done()
        assert b"[DONE]" in answer.body
        assert serve.process.wait(20) == 0


def test_taken_ports_are_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for change in ({"listen": {"port": port}}, {"model": {"port": port}}):
            with serving(tmp_path, deployment_of(tmp_path, **change)) as serve:
                assert serve.process.wait(30) == 4
                serve.hears(str(port))
                assert "Traceback" not in "".join(serve.said)


def test_two_gateways_do_not_share_a_port_unseen(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with serving(tmp_path, deployment_of(tmp_path)) as serve:
        serve.ready()
        second = deployment_of(tmp_path / "other", listen={"port": serve.port})
        with serving(tmp_path / "other", second) as other:
            assert other.process.wait(30) == 4
            other.hears("address already in use")


def test_a_remote_engine_is_asked_for_a_token_and_served(tmp_path: Path) -> None:
    with fake_engine() as engine:
        model = {"engine": "remote", "urls": [engine.url]}
        with serving(tmp_path, deployment_of(tmp_path, model=model)) as serve:
            told = serve.ready()
            assert told["replicas"][0]["share"] == "remote"
            assert serve.chat().status == 200
        assert psutil.pid_exists(engine.pid)


def test_limits_change_without_a_restart_and_engines_do_not(tmp_path: Path) -> None:
    deployment = deployment_of(tmp_path)
    with serving(tmp_path, deployment) as serve:
        serve.ready()
        (engine,) = serve.engines()
        path = tmp_path / "deployment.yaml"
        path.write_text(path.read_text().replace("local: {}", "local: {limits: {max_output: 2}}"))
        os.kill(serve.process.pid, signal.SIGHUP)
        until(lambda: serve.chat(max_tokens=4).status == 400)
        path.write_text(path.read_text().replace("engine: fake", "engine: fake\n    replicas: 2"))
        os.kill(serve.process.pid, signal.SIGHUP)
        serve.hears("with a restart of setpoint serve only")
        assert [one.pid for one in serve.engines()] == [engine.pid]


def test_keys_are_made_for_a_deployment(tmp_path: Path) -> None:
    deployment = deployment_of(tmp_path, auth={})
    with serving(tmp_path, deployment) as serve:
        serve.ready()
        assert serve.chat().status == 401
        command = [sys.executable, "-m", "setpoint", "keys", "create", "local", "-c", "deployment.yaml"]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        made = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        serve.key = made.stdout.strip()
        assert serve.chat().status == 200
