"""``setpoint serve``: the engines of a deployment, and the gateway in front of them, from start to end."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from setpoint.errors import EngineError, UsageError
from setpoint.fleet.deployment import Deployment, ServedModel
from setpoint.fleet.engine_replica import POLL_S, EngineReplica, until
from setpoint.fleet.front import write_front
from setpoint.fleet.launches import EngineLaunch, launches_of
from setpoint.fleet.load_times import LoadTimes
from setpoint.fleet.remotes import RemoteEngine, reach
from setpoint.gateway.supervisor import Supervisor

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Served:
    """A replica as the table shows it.

    Attributes:
        model: In the gateway.
        replica: Its name.
        engine: And version.
        url: Where it answers.
        state: ``up``, ``loading``, ``stopped`` or ``down``.
        ready_s: Seconds from launch to first token; None without.
        share: Cores or GPUs.
        config: Hash of its configuration.
    """

    model: str
    replica: str
    engine: str
    url: str
    state: str
    ready_s: float | None
    share: str
    config: str


@dataclass(frozen=True, slots=True)
class Address:
    """What is served, once every engine that starts at once has answered.

    Attributes:
        url: Base URL for clients.
        deployment: Its digest.
        replicas: All of them.
    """

    url: str
    deployment: str
    replicas: tuple[Served, ...]


@dataclass(slots=True)
class _Model:
    """A model with local engines."""

    name: str
    served: ServedModel
    wanted: asyncio.Event
    replicas: list[EngineReplica] = field(default_factory=list)
    changed_us: int = 0

    async def follow(self, gateway: Supervisor) -> None:
        """Wants the engines when somebody asks, and no longer after ``idle_stop`` without a request."""
        active_s = time.monotonic()
        while True:
            await asyncio.sleep(POLL_S)
            demand = gateway.demand(self.name)
            asked = demand.asked_us > self.changed_us
            self.changed_us = demand.asked_us
            busy = any(gateway.replica(self.name, one.launch.name).in_flight for one in self.replicas)
            loading = self.wanted.is_set() and not any(one.ready for one in self.replicas)
            if asked or busy or loading:
                active_s = time.monotonic()
            if asked:
                self.wanted.set()
            idle_s = self.served.idle_stop
            if self.wanted.is_set() and idle_s is not None and time.monotonic() - active_s >= idle_s:
                self.wanted.clear()


class Fleet:
    """Engines and their gateway.

    Args:
        deployment: What is wanted.
        reread: Reads the deployment again, for SIGHUP.
        say: Takes sentences for people.
        serving: Told once every engine that starts at once has answered.

    Raises:
        SetpointError: a model cannot be had, or the gateway's address or state cannot be used.
    """

    def __init__(
        self,
        deployment: Deployment,
        *,
        reread: Callable[[], Deployment],
        say: Say,
        serving: Callable[[Address], None],
    ) -> None:
        self._deployment = deployment
        self._reread = reread
        self._say = say
        self._serving = serving
        self._launches = launches_of(deployment, note=say)
        self._remotes: dict[str, list[RemoteEngine]] = {}
        self._pool = ThreadPoolExecutor(max(1, 2 * len(self._launches)), "engine")

    async def run(self) -> bool:
        """Serves until SIGTERM or SIGINT, drains, and ends every engine.

        Returns:
            Whether a second signal cut the drain short.

        Raises:
            SetpointError: an engine never answered, or none is left.
        """
        for name, served in self._deployment.models.items():
            if served.remote:
                self._say(f"{name}: asking {', '.join(served.urls)}")
                self._remotes[name] = await reach(name, served)
        path = write_front(self._deployment, self._launches, self._remotes)
        managed = frozenset(one.model for one in self._launches)
        gateway = Supervisor(path, self._say, managed=managed, refresh=self._refresh)
        models = self._models(gateway)
        replicas = [one for model in models for one in model.replicas]
        front = asyncio.create_task(gateway.run())
        engines = asyncio.create_task(self._keep(gateway, models, replicas))
        try:
            await asyncio.wait((front, engines), return_when=asyncio.FIRST_COMPLETED)
            gateway.stop()
            await front
        finally:
            engines.cancel()
            front.cancel()
            (failure,) = await asyncio.gather(engines, return_exceptions=True)
            await asyncio.gather(*(one.close() for one in replicas))
            self._pool.shutdown()
        if isinstance(failure, Exception):
            raise failure
        self._say("every engine has ended")
        return gateway.interrupted

    def _models(self, gateway: Supervisor) -> list[_Model]:
        times = LoadTimes(Path(self._deployment.state).absolute())
        models: dict[str, _Model] = {}
        for one in self._launches:
            model = models.setdefault(one.model, _Model(one.model, one.served, asyncio.Event()))
            model.replicas.append(EngineReplica(one, gateway, model.wanted, times, self._say, self._pool))
            if not one.served.on_demand:
                model.wanted.set()
            else:
                gateway.replica(one.model, one.name).stopped()
                gateway.demand(one.model).stopped(times.expected_s(one.digest, one.served.load_time))
        return list(models.values())

    async def _keep(self, gateway: Supervisor, models: list[_Model], replicas: list[EngineReplica]) -> None:
        """Runs the engines; returns only when there are none to run.

        Raises:
            EngineError: one never answered, or all are given up.
        """
        following = [asyncio.create_task(model.follow(gateway)) for model in models]
        lives = [asyncio.create_task(one.run()) for one in replicas]
        announce = asyncio.create_task(self._announce(gateway, replicas))
        try:
            if lives:
                await asyncio.gather(*lives)
            if lives and not self._remotes:
                raise EngineError("No engine is left: all were given up.", fix="The messages above say why.")
            await asyncio.Event().wait()
        finally:
            tasks = (*following, *lives, announce)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _announce(self, gateway: Supervisor, replicas: list[EngineReplica]) -> None:
        now = [one for one in replicas if not one.launch.served.on_demand]
        await until(lambda: gateway.listening and all(one.ready for one in now))
        shown = [_shown(one) for one in replicas]
        for name, engines in self._remotes.items():
            for one in engines:
                known = f"{one.engine or 'unknown'} {one.version or ''}".strip()
                shown.append(Served(name, one.url.partition("://")[2], known, one.url, "up", None, "remote", ""))
        self._serving(Address(gateway.address, self._deployment.digest(), tuple(shown)))

    def _refresh(self) -> None:
        """Writes the gateway's file anew from the deployment; what concerns engines stays as it was started.

        Raises:
            SetpointError: the file has mistakes, or changes engines.
        """
        new = self._reread()
        before = self._deployment
        if _engines(new) != _engines(before):
            raise UsageError("Models, engines, flags and replicas change with a restart of setpoint serve only.")
        write_front(new, self._launches, self._remotes)
        self._deployment = new


_OF_ENGINES = {
    "model", "engine", "flags", "replicas", "min_replicas", "idle_stop", "port", "start_timeout", "load_time",
    "restart_policy", "max_in_flight", "kv_tokens", "kv_events", "urls", "api_key_env",
}  # fmt: skip


def _engines(deployment: Deployment) -> dict[str, object]:
    """What a running deployment cannot change."""
    return {name: served.model_dump(include=_OF_ENGINES) for name, served in deployment.models.items()}


def _shown(one: EngineReplica) -> Served:
    launch: EngineLaunch = one.launch
    engine = f"{launch.engine.name} {launch.engine.version() or ''}".strip()
    url = f"http://127.0.0.1:{launch.plan.port}"
    return Served(launch.model, launch.name, engine, url, one.state, one.ready_s, launch.share, launch.digest)


def run_fleet(
    deployment: Deployment, *, reread: Callable[[], Deployment], say: Say, serving: Callable[[Address], None]
) -> None:
    """Runs a deployment until it is told to end.

    Raises:
        SetpointError: it cannot be started, or nothing of it is left.
        KeyboardInterrupt: a second signal cut the drain short; all has ended.
    """
    logging.basicConfig(stream=sys.stderr, format="setpoint gateway: %(message)s")
    import uvloop  # noqa: PLC0415 - only the process that serves needs it

    if uvloop.run(Fleet(deployment, reread=reread, say=say, serving=serving).run()):
        raise KeyboardInterrupt
