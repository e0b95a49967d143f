"""The proxies that are measured side by side, each as its users start it, before the same two upstreams."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from benchmarks.wire_load import PATH

from setpoint import __version__
from setpoint.gateway.keys import KeyStore

READY_S = 120.0
MASTER_KEY = "sk-benchmark"  # of LiteLLM, which accepts only keys that begin so


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that serves.

    Attributes:
        name: Label, version included.
        port: On 127.0.0.1.
        key: What it wants as a bearer token.
        process: The root of its process tree.
    """

    name: str
    port: int
    key: str
    process: psutil.Process

    def tree(self) -> list[psutil.Process]:
        """Its processes."""
        return [self.process, *self.process.children(recursive=True)]

    def cpu_s(self) -> float:
        """CPU time of all its processes, user and system."""
        times = [one.cpu_times() for one in self.tree()]
        return sum(t.user + t.system for t in times)

    def rss_bytes(self) -> int:
        """Resident memory of all its processes."""
        return sum(one.memory_info().rss for one in self.tree())


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])


def _await(port: int, key: str, child: subprocess.Popen[bytes], name: str) -> None:
    """Waits for the first answer."""
    body = b'{"model":"null","stream":false,"max_tokens":1,"messages":[{"role":"user","content":"word"}]}'
    fields = {"content-type": "application/json", "authorization": f"Bearer {key}"}
    until = time.monotonic() + READY_S
    while time.monotonic() < until and child.poll() is None:
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{port}{PATH}", body, fields)
            with urllib.request.urlopen(request, timeout=5):
                return
        except (OSError, urllib.error.URLError):
            time.sleep(0.2)
    raise RuntimeError(f"{name} does not answer (exit status {child.poll()})")


@contextlib.contextmanager
def _running(name: str, port: int, key: str, command: Sequence[str], folder: Path, **env: str) -> Iterator[Proxy]:
    log = (folder / f"{name.split(maxsplit=1)[0].rstrip(',')}.log").open("wb")
    child = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ | env)
    try:
        _await(port, key, child, name)
        yield Proxy(name, port, key, psutil.Process(child.pid))
    finally:
        child.send_signal(signal.SIGTERM)
        try:
            child.wait(15)
        except subprocess.TimeoutExpired:
            for process in psutil.Process(child.pid).children(recursive=True):
                process.kill()
            child.kill()
            child.wait()
        log.close()


@contextlib.contextmanager
def setpoint_gateway(
    folder: Path, replicas: Sequence[str | dict[str, Any]], *, model: dict[str, Any] | None = None
) -> Iterator[Proxy]:
    """Setpoint with key, limits, prefix routing, verdict, usage in SQLite and access log; one worker process.

    Args:
        folder: To make; the gateway's state stands there.
        replicas: Base URLs, or whole entries of the configuration.
        model: Further fields of the model's configuration.
    """
    folder.mkdir()
    port = free_port()
    limits = {"tokens_per_minute": 10**12, "requests_per_minute": 10**9, "streams": 10**6}
    entries = [
        {"name": f"replica-{i}"} | ({"url": one, "max_in_flight": 10_000} if isinstance(one, str) else one)
        for i, one in enumerate(replicas)
    ]
    config = {
        "apiVersion": "setpoint/v1",
        "kind": "Gateway",
        "listen": {"port": port},
        "admin": {"port": free_port()},
        "workers": 1,
        "state": str(folder / "state"),
        "access_log": str(folder / "access.jsonl"),
        "models": {"null": {"replicas": entries} | (model or {})},
        "tenants": {"benchmark": {"limits": limits}},
    }
    path = folder / "gateway.yaml"
    path.write_text(yaml.safe_dump(config))
    key = KeyStore(folder / "state").create("benchmark")[1]
    command = [sys.executable, "-m", "setpoint", "gateway", str(path)]
    with _running(f"setpoint {__version__}", port, key, command, folder) as proxy:
        yield proxy


def admin_port(folder: Path) -> int:
    """The administrative port of the gateway that ``setpoint_gateway`` put into a folder."""
    return int(yaml.safe_load((folder / "gateway.yaml").read_text())["admin"]["port"])


@contextlib.contextmanager
def sglang_router(
    python: str, folder: Path, upstreams: Sequence[str], policy: str, *, request_log: bool
) -> Iterator[Proxy]:
    """sglang-router: no key, no accounts; its request log is on unless told otherwise."""
    folder.mkdir()
    port = free_port()
    said = subprocess.check_output([python, "-c", "import sglang_router.version as v; print(v.__version__)"], text=True)
    level = "info" if request_log else "warn"
    command = [
        python, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port),
        "--worker-urls", *upstreams, "--policy", policy, "--prometheus-port", str(free_port()), "--log-level", level,
    ]  # fmt: skip
    label = f"sglang-router {said.strip()}, {policy}{', with its request log' if request_log else ''}"
    with _running(label, port, "none", command, folder) as proxy:
        yield proxy


@contextlib.contextmanager
def litellm(binary: str, folder: Path, upstreams: Sequence[str]) -> Iterator[Proxy]:
    """LiteLLM with a master key; no database, so no accounts."""
    folder.mkdir()
    port = free_port()
    python = str(Path(binary).with_name("python"))
    said = subprocess.check_output([python, "-c", "import importlib.metadata as m; print(m.version('litellm'))"])
    deployments = [
        {"model_name": "null", "litellm_params": {"model": "openai/null", "api_base": f"{url}/v1", "api_key": "none"}}
        for url in upstreams
    ]
    path = folder / "litellm.yaml"
    path.write_text(yaml.safe_dump({"model_list": deployments, "general_settings": {"master_key": MASTER_KEY}}))
    command = [binary, "--config", str(path), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False", "LITELLM_LOG": "ERROR"}
    with _running(f"litellm {said.decode().strip()}", port, MASTER_KEY, command, folder, **env) as proxy:
        yield proxy


@contextlib.contextmanager
def nginx(binary: str, folder: Path, upstreams: Sequence[str]) -> Iterator[Proxy]:
    """nginx, which only passes bytes on: a floor."""
    folder.mkdir()
    port = free_port()
    said = subprocess.run([binary, "-v"], capture_output=True, text=True, check=True).stderr.rpartition("/")[2].strip()
    servers = " ".join(f"server {url.removeprefix('http://')};" for url in upstreams)
    temporary = " ".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    path = folder / "nginx.conf"
    path.write_text(
        f"daemon off; worker_processes 1; pid {folder}/pid; error_log stderr; events {{ worker_connections 4096; }} "
        f"http {{ access_log {folder}/access.log; {temporary} keepalive_requests 100000000; client_max_body_size 64m; "
        f"client_body_buffer_size 1m; upstream engines {{ {servers} keepalive 512; keepalive_requests 100000000; }} "
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://engines; proxy_http_version 1.1; "
        'proxy_set_header connection ""; proxy_buffering off; } } }'
    )
    command = [binary, "-c", str(path), "-e", "stderr"]
    with _running(f"nginx {said}", port, "none", command, folder) as proxy:
        yield proxy
