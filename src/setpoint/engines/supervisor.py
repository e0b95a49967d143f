"""Starts an engine, waits until it answers, tells how it died, stops it cleanly."""

import asyncio
import contextlib
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from setpoint.client.check import check
from setpoint.client.client import Client
from setpoint.engines.adapter import COMMON_CAUSES, Engine, Launch, Plan
from setpoint.errors import EngineError, TargetError
from setpoint.records.target import Dialect, Target
from setpoint.units import format_duration

POLL_S = 0.1
STOP_S = 15.0
SHOWN_LINES = 6


@dataclass(frozen=True, slots=True)
class Loading:
    """A moment of an engine's start.

    Attributes:
        elapsed_s: Since the launch.
        listening: Whether its port is open.
        last_line: Last line of its log.
    """

    elapsed_s: float
    listening: bool
    last_line: str


@dataclass(slots=True)
class RunningEngine:
    """An engine process under our guard. A context manager that stops it.

    Attributes:
        engine: What it is.
        target: Where it answers.
        pid: Its main process.
        log: Its log file.
        pins: Facts for run records.
        started_s: Seconds from launch to open port, and to first token.
    """

    engine: Engine
    target: Target
    pid: int
    log: Path
    pins: Mapping[str, object]
    started_s: Mapping[str, float]
    _command: Launch = field(repr=False)
    _guard: "subprocess.Popen[str]" = field(repr=False)
    _launched_s: float = field(repr=False)

    def wait_ready(self, listen: Callable[[Loading], None] = lambda _: None, *, limit_s: float | None = None) -> None:
        """Returns when it has answered with a token.

        Args:
            listen: Told about ten times a second how the start goes.
            limit_s: From the launch; the engine's own limit unless given.

        Raises:
            EngineError: dead while loading, or not ready in time; says why. It is not stopped.
        """
        limit_s = self.engine.start_limit_s if limit_s is None else limit_s
        listening_s, ready_s = _until(self, self._launched_s, limit_s, listen, _answers)
        self.started_s = {"listening": listening_s, "first_token": ready_s}

    def death(self) -> str | None:
        """How it died; None while it lives."""
        code = self._guard.poll()
        return None if code is None else describe_death(self.engine, code, self.log)

    def stop(self) -> None:
        """Ends it and its sub-processes; returns when they are gone."""
        if self._guard.stdin is not None:
            self._guard.stdin.close()
        try:
            self._guard.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()  # the kernel then kills the engine's main process
            self._guard.wait()
        if self._guard.stdout is not None:
            self._guard.stdout.close()

    def restart(self) -> None:
        """Ends it and starts it again with the same flags, port and key.

        Returns when it says that it is healthy: nothing has been asked of it, so that the next request is its first.

        Raises:
            EngineError: dead while loading, or not healthy in time.
        """
        self.stop()
        self._launched_s = time.monotonic()
        self._guard = _guarded(self.log, self._command)
        self.pid = _child_pid(self._guard)
        self.target = replace(self.target, pid=self.pid)
        try:
            limit_s = self.engine.start_limit_s
            listening_s, healthy_s = _until(self, self._launched_s, limit_s, lambda _: None, _healthy)
        except BaseException:
            self.stop()
            raise
        self.started_s = {"listening": listening_s, "healthy": healthy_s}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _guarded(log: Path, launch: Launch) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "setpoint.engines.guard", str(log), "--", *launch.argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **launch.env},
    )


def start(
    engine: Engine,
    model: Path,
    served_name: str,
    *,
    log: Path,
    flags: Mapping[str, str] | None = None,
    dialect: Dialect = Dialect.CHAT,
    port: int | None = None,
    pins: Mapping[str, object] | None = None,
    listen: Callable[[Loading], None] = lambda _: None,
) -> RunningEngine:
    """Starts an engine and returns when it has answered with a token.

    Args:
        engine: Which.
        model: Model file or folder.
        served_name: Name that requests use.
        log: File that takes its output.
        flags: Passed through and pinned.
        dialect: Dialect of the target.
        port: On 127.0.0.1; a free one unless given.
        pins: Further facts for run records.
        listen: Told about ten times a second how the start goes.

    Raises:
        EngineError: not installed, dead while loading, or not ready in time; says why.
    """
    all_flags = {**engine.default_flags(), **(flags or {})}
    plan = Plan(model, served_name, port or free_port(), secrets.token_hex(16), all_flags)
    running = launch(engine, plan, log=log, dialect=dialect)
    try:
        running.pins = {**running.pins, **engine.facts(model), **(pins or {})}
        running.wait_ready(listen)
    except BaseException:
        running.stop()
        raise
    return running


def launch(
    engine: Engine,
    plan: Plan,
    *,
    log: Path,
    dialect: Dialect = Dialect.CHAT,
    env: Mapping[str, str] | None = None,
) -> RunningEngine:
    """Starts the process of an engine and returns at once: it may still be loading, or die of it.

    Args:
        engine: Which.
        plan: What it serves, where, with which flags.
        log: File that takes its output.
        dialect: Dialect of the target.
        env: Variables beside the adapter's own, e.g. the GPUs that it may use.

    Raises:
        EngineError: not installed, or its port is taken.
    """
    version = engine.version()
    if version is None:
        raise EngineError(f"{engine.name} is not installed.", fix=engine.missing)
    if not _free(plan.port):
        raise EngineError(f"Port {plan.port} on 127.0.0.1 is taken.", fix="Choose another --port, or none.")
    command = engine.launch(plan)
    command = replace(command, env={**command.env, **(env or {})})
    log.parent.mkdir(parents=True, exist_ok=True)
    launched_s = time.monotonic()
    guard = _guarded(log, command)
    url, pid = f"http://127.0.0.1:{plan.port}", _child_pid(guard)
    return RunningEngine(
        engine=engine,
        target=Target(url, dialect, plan.served_name, api_key=plan.api_key, metrics_url=f"{url}/metrics", pid=pid),
        pid=pid,
        log=log,
        pins={"engine": engine.name, "engine_version": version, "engine_flags": dict(plan.flags)},
        started_s={},
        _command=command,
        _guard=guard,
        _launched_s=launched_s,
    )


def _answers(running: RunningEngine) -> bool:
    """Whether it answers with a token: an engine that answers ``/health`` may still not generate."""
    with contextlib.suppress(TargetError):
        asyncio.run(check(running.target, timeout_s=min(30.0, running.engine.start_limit_s)))
        return True
    return False


def _healthy(running: RunningEngine) -> bool:
    """Whether ``/health`` says so."""

    async def ask() -> int:
        client = Client(running.target)
        try:
            return (await client.fetch("GET", "/health", timeout_s=5.0)).status
        finally:
            await client.close()

    with contextlib.suppress(TargetError):
        return asyncio.run(ask()) == 200
    return False


def _until(
    running: RunningEngine,
    launched_s: float,
    limit_s: float,
    listen: Callable[[Loading], None],
    ready: Callable[[RunningEngine], bool],
) -> tuple[float, float]:
    """Waits for the port, then until it is ready; returns the seconds since the launch of both."""
    listening_s = None
    while True:
        elapsed_s = time.monotonic() - launched_s
        died = running.death()
        if died is not None:
            raise EngineError(died)
        if listening_s is None and _open(running.target.base_url):
            listening_s = elapsed_s
        listen(Loading(elapsed_s, listening_s is not None, last_lines(running.log, 1)))
        if listening_s is not None and ready(running):
            return listening_s, time.monotonic() - launched_s
        if elapsed_s > limit_s:
            raise EngineError(
                f"{running.engine.name} did not answer within {format_duration(limit_s)}; last in its log: "
                f"{last_lines(running.log, SHOWN_LINES) or 'nothing'}",
                fix=f"The whole log is {running.log}.",
            )
        time.sleep(POLL_S)


def describe_death(engine: Engine, code: int, log: Path) -> str:
    """How an engine died: exit code or signal, the known cause, its last lines."""
    how = f"killed by signal {code - 128}" if code > 128 else f"ended with exit code {code}"
    text = last_lines(log, 200)
    cause = next((c for c in (*engine.causes, *COMMON_CAUSES) if c.found_in(text)), None)
    if cause is None and code == 128 + 9:
        cause_text = " (SIGKILL: often the kernel's out-of-memory killer; see dmesg)"
    else:
        cause_text = "" if cause is None else f": {cause.meaning}. {cause.fix}"
    lines = last_lines(log, SHOWN_LINES, noise=engine.noise)
    return f"{engine.name} {how}{cause_text}\nLast lines of {log}:\n{lines or '(empty)'}"


def last_lines(log: Path, count: int, most_bytes: int = 32_768, noise: str | None = None) -> str:
    """The last lines of a log file but for those that match ``noise``; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - most_bytes))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = [line.rstrip() for line in text.strip().splitlines() if noise is None or not re.search(noise, line)]
    return "\n".join(lines[-count:])


def _child_pid(guard: "subprocess.Popen[str]") -> int:
    assert guard.stdout is not None
    line = guard.stdout.readline().strip()
    return int(line) if line.isdigit() else guard.pid


def free_port() -> int:
    """A port of 127.0.0.1 that nothing uses at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _open(base_url: str) -> bool:
    port = int(base_url.rpartition(":")[2])
    try:
        with socket.create_connection(("127.0.0.1", port), 0.2):
            return True
    except OSError:
        return False
