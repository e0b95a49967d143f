"""``setpoint serve`` in processes of its own, as a user starts it."""

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from tests.gateway.conftest import Client, until

SOURCE = str(Path(__file__).parents[2] / "src")
VLLM_SERVE = f"{SOURCE}/setpoint/engines/vllm_serve.py"


def deployment_of(folder: Path, *, model: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A deployment of one model ``fake`` on fake engines; ``model`` changes go into it."""
    return {
        "apiVersion": "setpoint/v1",
        "kind": "Deployment",
        "state": str(folder / "state"),
        "models": {"fake": {"engine": "fake", "health": {"canary": 0}} | (model or {})},
        "tenants": {"local": {}},
        "auth": {"anonymous": "local"},
        "listen": {"port": 0},
        "admin": {"port": 0},
        "workers": 1,
        "drain": 5,
    } | changes


@dataclass
class Serving(Client):
    """A running ``setpoint serve``; ``port`` is 0 until its gateway listens."""

    process: subprocess.Popen[str] = field(default=None)  # type: ignore[arg-type]
    folder: Path = field(default=None)  # type: ignore[assignment]
    said: list[str] = field(default_factory=list)
    answered: list[str] = field(default_factory=list)
    admin: Client = field(default=None)  # type: ignore[assignment]

    def hears(self, words: str, seconds: float = 30.0) -> str:
        """The line of standard error with these words, once it came."""
        return str(until(lambda: next((line for line in self.said if words in line), None), seconds))

    def listening(self) -> None:
        """Waits for the gateway's address."""
        line = self.hears("listening on")
        client, admin = (part.rpartition(":")[2].split(",")[0].strip() for part in line.split("administration"))
        self.port, self.admin = int(client), Client(int(admin))

    def ready(self, seconds: float = 30.0) -> Any:
        """Waits for every engine that starts at once; what ``serve --json`` answers."""
        self.listening()
        return until(self._answer, seconds)

    def _answer(self) -> Any:
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads("".join(self.answered))
        assert self.process.poll() is None, self.said
        return None

    def states(self) -> list[str]:
        """States of the replicas as the gateway has them."""
        return [one["state"] for one in self.admin.call("GET", "/status").json()["replicas"]]

    def engines(self) -> list[psutil.Process]:
        """Processes of its engines."""
        return [one for one in psutil.Process(self.process.pid).children(recursive=True) if _engine(one)]

    def family(self) -> list[psutil.Process]:
        """All processes below it, and itself."""
        me = psutil.Process(self.process.pid)
        return [me, *me.children(recursive=True)]


def _engine(process: psutil.Process) -> bool:
    """Whether it is an engine; its guard, which has the same words, is none."""
    try:
        words = set(process.cmdline())
    except psutil.NoSuchProcess:
        return False
    engines = {"setpoint.testing.fake_engine", "setpoint.engines.llamacpp_server", VLLM_SERVE}
    return bool(words & engines) and "setpoint.engines.guard" not in words


def all_gone(family: list[psutil.Process]) -> None:
    """Waits until none of the processes is left."""
    _, left = psutil.wait_procs(family, timeout=20)
    assert not [one for one in left if one.status() != psutil.STATUS_ZOMBIE]


@contextlib.contextmanager
def serving(folder: Path, deployment: dict[str, Any], *options: str) -> Iterator[Serving]:
    """Runs ``setpoint serve``; ends it by SIGTERM and sees that nothing is left."""
    path = folder / "deployment.yaml"
    path.write_text(yaml.safe_dump(deployment), encoding="utf-8")
    process = subprocess.Popen(
        [sys.executable, "-m", "setpoint", "serve", str(path), "--json", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": SOURCE, "NO_COLOR": "1"},
    )
    made = Serving(0, None, process, folder)
    assert process.stdout is not None
    assert process.stderr is not None
    pipes = ((process.stderr, made.said), (process.stdout, made.answered))
    readers = [threading.Thread(target=lambda p=p, to=to: to.extend(iter(p.readline, ""))) for p, to in pipes]
    for reader in readers:
        reader.start()
    try:
        yield made
        if process.poll() is None:
            family = made.family()
            process.terminate()
            assert process.wait(30) == 0, made.said
            all_gone(family)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        for reader in readers:
            reader.join(10)
        process.stdout.close()
        process.stderr.close()
