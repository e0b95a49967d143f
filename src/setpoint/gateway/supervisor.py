"""The process that people start: it keeps the workers running, the accounts written and the administrative address up.

SIGHUP checks the configuration and passes it to the workers, which keep every stream. SIGTERM drains. A worker that
dies is accounted for, what it held is given back, and another takes its place.
"""

import asyncio
import contextlib
import fcntl
import logging
import os
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from setpoint.errors import SetpointError, UsageError
from setpoint.gateway import plane
from setpoint.gateway.admin import Admin
from setpoint.gateway.asgi import AsgiHost
from setpoint.gateway.config import Front, Gateway
from setpoint.gateway.demand import Demand
from setpoint.gateway.downstream import ServerConnection
from setpoint.gateway.health import Watch
from setpoint.gateway.identity import secret_of
from setpoint.gateway.journal import Ended
from setpoint.gateway.keys import KeyStore
from setpoint.gateway.ledger import Ledger
from setpoint.gateway.limits import DAY, DAY_S, DAY_USED, KEPT_ROWS
from setpoint.gateway.metrics import Live, Metrics
from setpoint.gateway.reading import content_of, parse_config
from setpoint.gateway.replica import KV_TOKENS, STATE_NAMES, Replica
from setpoint.gateway.shared import SharedTable, TableFullError
from setpoint.gateway.snapshot import Snapshot, take_snapshot
from setpoint.gateway.telemetry import Spans
from setpoint.gateway.worker import AT_ONCE, READY, listening, spare_collections

INGEST_S = 0.5
START_S = 60.0
# Bodies of up to a few megabytes come and go with every request: glibc keeps their memory instead of giving it back to
# the kernel each time, and taking every page of it anew.
_ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": str(64 * 2**20), "MALLOC_MMAP_THRESHOLD_": str(8 * 2**20)}
_log = logging.getLogger(__name__)


class Supervisor:
    """One gateway.

    Args:
        path: Its configuration.
        say: Takes sentences for people.
        managed: Models whose engines the caller starts and ends; their replicas begin as loading.
        refresh: Called before the configuration is read again; may write it anew.

    Attributes:
        listening: Whether every worker process takes connections.
        interrupted: Whether a second signal cut the drain short.

    Raises:
        SetpointError: the configuration, its state or its address cannot be used.
    """

    def __init__(
        self,
        path: Path,
        say: Callable[[str], None],
        *,
        managed: frozenset[str] = frozenset(),
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._say = say
        self._managed = managed
        self._refresh = refresh
        self._stop = asyncio.Event()
        self.listening = self.interrupted = False
        content = content_of(path)
        config = parse_config(content, str(path))
        self._state = Path(config.state).absolute()
        self._lock = _only_one(self._state)
        self._folder = self._state / "run"
        journals = self._folder / "journal"
        for entry in self._folder.glob("*") if self._folder.exists() else ():
            if entry != journals:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        journals.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder.chmod(0o700)  # sockets in it ask for no key
        self._in_force = self._folder / "gateway.yaml"  # what workers read: the file may be half edited when one starts
        self._put_in_force(content)
        secret_of(self._state)
        self._workers = config.workers or len(os.sched_getaffinity(0))
        self._table = SharedTable(self._folder / "table", self._workers, -1)
        self._keys = KeyStore(self._state)
        self.ledger = open_ledger(config)
        self._snapshot = self._taken(config)
        self._restore_day()
        self._spans = Spans() if config.telemetry else None
        live = Live(self._table, self._workers, self._replicas)
        self._metrics = Metrics(live)
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ending = False
        self._sock = listening(config.listen.host, config.listen.port, alone=True)
        for model in managed:
            self.demand(model).loading()
            for replica in self._snapshot.routes[model].gate.replicas:
                replica.loading()
        self._watching: asyncio.Task[None] | None = None

    @property
    def config(self) -> Gateway:
        """The configuration in force."""
        return self._snapshot.config

    @property
    def address(self) -> str:
        """Base URL for clients."""
        listen = self.config.listen
        host = f"[{listen.host}]" if ":" in listen.host else listen.host
        return f"{'https' if listen.tls else 'http'}://{host}:{self._sock.getsockname()[1]}"

    def _taken(self, config: Gateway) -> Snapshot:
        return take_snapshot(
            config, table=self._table, folder=self._folder, keys=self._keys, tokens=None, gauge=lambda *_: None
        )

    def _replicas(self) -> dict[str, list[Replica]]:
        return {name: route.gate.replicas for name, route in self._snapshot.routes.items()}

    def replica(self, model: str, name: str) -> Replica:
        """A replica by its names, as the configuration in force has it."""
        return next(one for one in self._snapshot.routes[model].gate.replicas if one.name == name)

    def available(self, model: str) -> bool:
        """Whether any replica of a model takes requests."""
        return any(one.available() for one in self._snapshot.routes[model].gate.replicas)

    def demand(self, model: str) -> Demand:
        """Who asks for a model, and when it is expected to answer."""
        return self._snapshot.routes[model].gate.demand

    def stop(self) -> None:
        """Drains and ends, as SIGTERM does."""
        self._stop.set()

    def _signalled(self) -> None:
        """SIGTERM or SIGINT: the first drains, any further one ends the drain at once."""
        if self._stop.is_set():
            self.interrupted = True
            self._hurry()
        self.stop()

    def _hurry(self) -> None:
        """Workers drain no longer. A signal of its own: two SIGTERM that come together are one to the kernel."""
        for process in self._processes.values() if self._ending else ():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(AT_ONCE)

    def _put_in_force(self, content: bytes) -> None:
        new = self._in_force.with_suffix(".new")
        new.write_bytes(content)
        new.replace(self._in_force)

    def _restore_day(self) -> None:
        """What tenants and keys have used of today's allowance, from the accounts."""
        self.ledger.ingest(set())
        today = int(time.time() // DAY_S)
        first = {key.id: key.first for key in self._keys.list()}
        spent: Counter[str] = Counter()
        for kind in ("tenant", "key"):
            for used in self.ledger.usage(by=(kind,), since_s=today * DAY_S):
                if name := used.group[0]:
                    whose = first.get(name, name) if kind == "key" else name
                    spent[f"{kind}:{whose}"] += used.prompt_tokens + used.completion_tokens
        left = 0
        for name, tokens in spent.items():
            try:
                row = self._table.row(name, KEPT_ROWS)
            except TableFullError:
                left += 1
            else:
                row[DAY], row[DAY_USED] = today, tokens
        if left:
            _log.error("%d tenants and keys that used tokens today find no room and are answered 503", left)

    async def run(self) -> None:
        """Serves until SIGTERM, SIGINT or ``stop``."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        host = AsgiHost(Admin(self._keys, self.ledger, self._metrics, self.status, open_reading=self.config.admin.open))
        admin_sock = listening(self.config.admin.host, self.config.admin.port, alone=True)
        admin = await loop.create_server(lambda: ServerConnection(host), sock=admin_sock)
        await asyncio.gather(*(self._start(i) for i in range(self._workers)))
        self._watch()
        keepers = [loop.create_task(self._keep(i)) for i in range(self._workers)]
        clerk = loop.create_task(self._account(host))
        spare_collections()
        self.listening = True
        where = admin_sock.getsockname()
        self._say(f"listening on {self.address}, administration on http://{where[0]}:{where[1]}")
        await self._stop.wait()
        self._ending = True
        self._say(f"draining for at most {self.config.drain:g} s")
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
        if self.interrupted:
            self._hurry()
        for keeper in keepers:
            await keeper
        clerk.cancel()
        if self._watching is not None:
            self._watching.cancel()
        admin.close()
        for connection in tuple(host.connections):
            connection.abort()
        await asyncio.to_thread(self.ledger.ingest, set(), self._observe)
        self.close()

    def close(self) -> None:
        """Lets go of the state folder and the address."""
        if self._spans is not None:
            self._spans.close()
        self.ledger.close()
        self._sock.close()
        os.close(self._lock)

    # workers

    async def _start(self, index: int) -> None:
        arguments = (
            str(self._in_force), str(self._folder), str(index), str(self._workers), str(self._sock.getsockname()[1])
        )  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "setpoint.gateway.worker", *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=_ALLOCATOR | os.environ,
        )  # fmt: skip
        self._processes[index] = process
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_S)
        except TimeoutError:
            line = b""
        if line.decode().strip() != READY:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            if not self._ending and self._watching is None:
                raise SetpointError(f"Worker process {index} did not start.", fix="Its message stands above.")

    async def _keep(self, index: int) -> None:
        pause_s = 0.2
        while True:
            process = self._processes[index]
            began = time.monotonic()
            code = await process.wait()
            self._table.clear_worker(index)
            row = self._table.row(f"worker:{index}")
            for cell in range(plane.REFUSED):
                row[cell] = 0
            if self._ending:
                return
            _log.error("worker process %d ended with %d and is started again", index, code)
            pause_s = 0.2 if time.monotonic() - began > 10 else min(pause_s * 2, 10.0)
            await asyncio.sleep(pause_s)
            if self._stop.is_set():
                return
            await self._start(index)
            if self._stop.is_set():  # the drain began meanwhile and did not know of this one
                with contextlib.suppress(ProcessLookupError):
                    self._processes[index].terminate()

    def _reload(self) -> None:
        try:
            self._refresh()
            content = content_of(self._path)
            config = parse_config(content, str(self._path))
        except SetpointError as error:
            _log.error("the configuration in force stays: %s", error)
            return
        fixed = ("listen", "admin", "workers", "state", "redis", "usage_url_env", "access_log", "telemetry")
        changed = [name for name in fixed if getattr(config, name) != getattr(self.config, name)]
        if changed:
            _log.error("the configuration in force stays: %s can only change with a restart", ", ".join(changed))
            return
        self._put_in_force(content)
        self._snapshot = self._taken(config)
        self._watch()
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGHUP)
        self._say(f"configuration {self._snapshot.digest} is in force")

    # accounts and health

    def _watch(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        watches = []
        for name, route in self._snapshot.routes.items():
            replicas = route.gate.replicas
            managed = frozenset(one.name for one in replicas) if name in self._managed else frozenset[str]()
            watches.append(Watch(route.model, replicas, route.gate.demand, managed))
        self._watching = asyncio.get_running_loop().create_task(_all(watches))

    async def _account(self, host: AsgiHost) -> None:
        while True:
            await asyncio.sleep(INGEST_S)
            host.check()
            alive = {p.pid for p in self._processes.values() if p.returncode is None}
            try:
                await asyncio.to_thread(self.ledger.ingest, alive, self._observe)
            except Exception as error:  # noqa: BLE001 - the journals keep what could not be written; it is tried again
                _log.error("usage could not be written: %s", type(error).__name__)

    def _observe(self, line: Ended) -> None:
        self._metrics.observe(line)
        if self._spans is not None:
            route = self._snapshot.routes.get(line.model)
            replicas = route.model.replicas if route is not None else ()
            self._spans.observe(line, next((one for one in replicas if one.name == line.replica), None))

    def status(self) -> dict[str, Any]:
        """What the status page shows."""
        rows = [self._table.row(f"worker:{i}") for i in range(self._workers)]
        day = self.ledger.usage(by=("tenant", "model", "outcome"), since_s=time.time() - DAY_S)
        return {
            "config": self._snapshot.digest,
            "workers": self._workers,
            "pids": [p.pid for p in self._processes.values() if p.returncode is None],
            "in_flight": sum(row[plane.EXCHANGES] for row in rows),
            "waiting": sum(row[plane.QUEUE_INTERACTIVE] + row[plane.QUEUE_BATCH] for row in rows),
            "connections": sum(row[plane.CONNECTIONS] for row in rows),
            "lag_ms": round(max(row[plane.LAG_US] for row in rows) / 1000, 1),
            "replicas": [
                {
                    "model": model,
                    "name": one.name,
                    "state": STATE_NAMES[one.state],
                    "in_flight": one.in_flight,
                    "max_in_flight": one.config.max_in_flight,
                    "queued_tokens": one.queued_tokens,
                    "kv_tokens": min(one.config.kv_tokens, one.row[KV_TOKENS] or one.config.kv_tokens),
                    "ejected_for_s": one.ejected_for_s,
                }
                for model, replicas in self._replicas().items()
                for one in replicas
            ],
            "usage": [
                {
                    "tenant": u.group[0],
                    "model": u.group[1],
                    "outcome": u.group[2],
                    "requests": u.requests,
                    "prompt_tokens": u.prompt_tokens,
                    "cached_tokens": u.cached_tokens,
                    "completion_tokens": u.completion_tokens,
                }
                for u in day
            ],
        }


async def _all(watches: list[Watch]) -> None:
    async with asyncio.TaskGroup() as group:
        for watch in watches:
            group.create_task(watch.run())


def _only_one(state: Path) -> int:
    """The lock that keeps two gateways from one state folder."""
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SetpointError(f"The state folder {state} cannot be used: {(error.strerror or 'no').lower()}.") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise UsageError(
            f"Another gateway uses the state folder {state}.", fix="End it, or name another folder with `state`."
        ) from None
    return fd


def open_ledger(config: Front) -> Ledger:
    """The accounts of a configuration."""
    url = os.environ[config.usage_url_env] if config.usage_url_env else None
    log = Path(config.access_log) if config.access_log else None
    return Ledger(Path(config.state).absolute(), url=url, access_log=log, gateway=socket.gethostname() if url else "")


def run_gateway(path: Path, say: Callable[[str], None]) -> None:
    """Runs a gateway until it is told to end.

    Raises:
        SetpointError: it cannot be started.
        KeyboardInterrupt: a second signal cut the drain short; all has ended.
    """
    import uvloop  # noqa: PLC0415 - only the process that serves needs it

    logging.basicConfig(stream=sys.stderr, format="setpoint gateway: %(message)s")
    supervisor = Supervisor(path.absolute(), say)
    uvloop.run(supervisor.run())
    if supervisor.interrupted:
        raise KeyboardInterrupt
