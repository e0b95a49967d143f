"""Gateways on real sockets: the data plane in a thread of the test, or whole in processes of its own."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.gateway.upstream import Upstream, good, upstream

from setpoint.gateway.downstream import ServerConnection
from setpoint.gateway.journal import Ended, read_line, written
from setpoint.gateway.keys import KeyStore
from setpoint.gateway.plane import Plane
from setpoint.gateway.reading import parse_config
from setpoint.gateway.shared import SharedTable
from setpoint.gateway.worker import limits_of, verifier

HELLO = [{"role": "user", "content": "hello there"}]


def until(true: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Waits for a condition, at most so long."""
    end = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return value


def config_of(state: Path, *urls: str, **changes: Any) -> dict[str, Any]:
    """A configuration of one model ``fake`` with a replica for each URL; ``model`` changes go into it."""
    model = {
        "dialects": ["chat", "completions", "embeddings", "messages", "responses"],
        "replicas": [{"url": url, "name": f"r{i}"} for i, url in enumerate(urls)],
        "health": {"canary": 0},
    } | changes.pop("model", {})
    return {
        "apiVersion": "setpoint/v1",
        "kind": "Gateway",
        "state": str(state),
        "models": {"fake": model},
        "tenants": {"local": {}},
        "auth": {"anonymous": "local"},
        "listen": {"port": 0},
        "admin": {"port": 0},
    } | changes


@dataclass
class Answer:
    """What a client got."""

    status: int
    fields: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """A plain client of one address."""

    port: int
    key: str | None = None

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def call(self, method: str, path: str, body: Any = None, **fields: str) -> Answer:
        sent = {name.replace("_", "-"): value for name, value in fields.items()}
        if self.key is not None:
            sent.setdefault("authorization", f"Bearer {self.key}")
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        with contextlib.closing(self.connection()) as connection:
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            names = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, names, response.read())

    def chat(self, text: str = "hello there", **members: Any) -> Answer:
        fields = members.pop("fields", {})
        body = {"model": "fake", "messages": [{"role": "user", "content": text}], "max_tokens": 4} | members
        return self.call("POST", "/v1/chat/completions", body, **fields)

    def raw(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=10)

    def say(self, data: bytes) -> bytes:
        """Sends bytes and reads until the end of the connection."""
        with self.raw() as sock:
            sock.sendall(data)
            return read_all(sock)


def read_all(sock: socket.socket) -> bytes:
    """Everything until the other side ends."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while data := sock.recv(65536):
            parts.append(data)
    return b"".join(parts)


@dataclass
class Served(Client):
    """The data plane in a thread of this process."""

    plane: Plane = field(default=None)  # type: ignore[assignment]
    table: SharedTable = field(default=None)  # type: ignore[assignment]
    loop: asyncio.AbstractEventLoop = field(default=None)  # type: ignore[assignment]
    state: Path = field(default=None)  # type: ignore[assignment]

    def lines(self) -> list[Ended]:
        """What the journal says of exchanges that have ended."""
        files = sorted((self.state / "run" / "journal").glob("*.jsonl"))
        lines = [read_line(text) for file in files for text in written(file.read_bytes()).splitlines()]
        return [line for line in lines if isinstance(line, Ended)]

    def ended(self, count: int = 1) -> list[Ended]:
        """The same, once there are so many."""
        until(lambda: len(self.lines()) >= count)
        return self.lines()

    def idle(self) -> bool:
        """Whether nothing is held any more."""
        held = [sum(row.held(cell) for cell in range(4)) for row in self.table._rows.values()]
        return not self.plane.exchanges and not any(held) and not self.plane.buffered

    def keys(self) -> KeyStore:
        return KeyStore(self.state)

    def do(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls on the loop's thread."""

        async def call() -> Any:
            return function(*arguments)

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(10)


@contextlib.contextmanager
def served(config: dict[str, Any], drain_s: float = 0.0) -> Iterator[Served]:
    """Serves a configuration from a thread; port 0 takes a free one."""
    state = Path(config["state"])
    folder = state / "run"
    folder.mkdir(parents=True, exist_ok=True)
    loaded = parse_config(yaml.safe_dump(config).encode(), "gateway.yaml")
    table = SharedTable(folder / "table", 1, 0)
    ready: list[Served] = []
    began, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        plane = Plane(loaded, table, folder, limits_of(loaded, table), verifier(loaded))
        server = await loop.create_server(lambda: ServerConnection(plane), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        plane.begin()
        ready.append(Served(port, None, plane, table, loop, state))
        began.set()
        await asyncio.to_thread(stop.wait)
        server.close()
        await plane.drain(drain_s)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert began.wait(10)
    try:
        yield ready[0]
    finally:
        stop.set()
        thread.join(20)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def engine() -> Iterator[Upstream]:
    """An upstream that answers any request with a short stream."""
    with upstream(good) as made:
        yield made


@dataclass
class Whole(Client):
    """A gateway in processes of its own."""

    process: subprocess.Popen[str] = field(default=None)  # type: ignore[arg-type]
    path: Path = field(default=None)  # type: ignore[assignment]
    admin: Client = field(default=None)  # type: ignore[assignment]
    said: list[str] = field(default_factory=list)

    def status(self) -> Any:
        return self.admin.call("GET", "/status").json()

    def usage(self, by: str = "tenant,model,outcome") -> Any:
        return self.admin.call("GET", f"/usage?by={by}").json()

    def rewrite(self, config: dict[str, Any]) -> None:
        """Puts a new configuration in place and waits for the gateway's word on it."""
        before = len(self.said)
        self.path.write_text(yaml.safe_dump(config))
        os.kill(self.process.pid, signal.SIGHUP)
        until(lambda: any("in force" in line for line in self.said[before:]))


@contextlib.contextmanager
def whole(path: Path, config: dict[str, Any], **environment: str) -> Iterator[Whole]:
    """Runs ``setpoint gateway``; yields once it listens, ends it by SIGTERM."""
    path.write_text(yaml.safe_dump(config))
    source = str(Path(__file__).parents[2] / "src")
    process = subprocess.Popen(
        [sys.executable, "-m", "setpoint", "gateway", str(path)],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": source} | environment,
    )
    said: list[str] = []
    assert process.stderr is not None
    reader = threading.Thread(target=lambda: said.extend(iter(process.stderr.readline, "")))  # type: ignore[union-attr]
    reader.start()
    try:
        line = until(lambda: next((s for s in said if "listening" in s), None) or process.poll() is not None, 60)
        assert isinstance(line, str), said
        ports = [int(port) for port in re.findall(r":(\d+)", line)]
        yield Whole(ports[0], None, process, path, Client(ports[1]), said)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(10)
        process.stderr.close()


@dataclass
class RedisServer:
    """A real one."""

    url: str
    process: subprocess.Popen[bytes]


@contextlib.contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    """Runs ``redis-server`` on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--save", "", "--bind", "127.0.0.1", "--dir", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def listens() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(listens)
        yield RedisServer(f"redis://127.0.0.1:{port}/0", process)
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


def redis_of(monkeypatch: pytest.MonkeyPatch, url: str, **changes: Any) -> dict[str, Any]:
    """The part ``redis`` of a configuration, with its variables set."""
    monkeypatch.setenv("GATEWAY_REDIS_URL", url)
    monkeypatch.setenv("GATEWAY_SECRET", "a secret that all of them have, in tests")
    return {"url_env": "GATEWAY_REDIS_URL", "secret_env": "GATEWAY_SECRET"} | changes
