"""The life of one engine that is started here: loading, up, dead and started again, stopped until it is wanted.

Its state in the gateway follows it: while it loads or is stopped requests for its model are held, and once it is given
up its replica is down.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from setpoint.engines.supervisor import Loading, RunningEngine, launch
from setpoint.errors import EngineError
from setpoint.fleet.launches import EngineLaunch
from setpoint.fleet.load_times import LoadTimes
from setpoint.gateway.replica import Replica
from setpoint.gateway.supervisor import Supervisor
from setpoint.units import format_duration

POLL_S = 0.05
TOLD_EVERY_S = 10.0


async def until(true: Callable[[], bool]) -> None:
    """Waits for what is seen in shared memory or in another process, and tells nobody when it changes."""
    while not true():  # noqa: ASYNC110 - nobody could set an event
        await asyncio.sleep(POLL_S)


@dataclass(slots=True, eq=False)
class EngineReplica:
    """One engine.

    Attributes:
        launch: What is started.
        gateway: In front of it.
        wanted: Set while the engines of its model should run.
        times: What loads took.
        say: Takes sentences for people.
        pool: Threads for what blocks.
        ready: It answers.
        ready_s: Seconds of its last load; None before it was ready.
        given_up: It has died too often, and stays down.
        restarts: Starts after a death, in all.
    """

    launch: EngineLaunch
    gateway: Supervisor
    wanted: asyncio.Event
    times: LoadTimes
    say: Callable[[str], None]
    pool: Executor
    ready: bool = False
    ready_s: float | None = None
    given_up: bool = False
    restarts: int = 0
    _attempts: int = 0
    _running: RunningEngine | None = None
    _launching: "asyncio.Future[RunningEngine] | None" = None
    _told_s: float = field(default=0.0)

    @property
    def label(self) -> str:
        """In messages."""
        return f"{self.launch.model}/{self.launch.name}"

    @property
    def pid(self) -> int | None:
        """The engine's process while it runs."""
        return self._running.pid if self._running is not None else None

    @property
    def state(self) -> str:
        """In words."""
        if self.given_up:
            return "down"
        return "up" if self.ready else "loading" if self.wanted.is_set() else "stopped"

    async def run(self) -> None:
        """Until it is given up, or cancelled: then ``close`` ends the engine.

        Raises:
            EngineError: an engine that has to run from the start never answered; says why.
        """
        began = False
        while not self.given_up:
            if not self.wanted.is_set():
                self._state().stopped()
                await self.wanted.wait()
            try:
                running = await self._load()
                began = True
                died = await self._watch(running)
            except EngineError as error:
                await self.close()
                if not began and not self.launch.served.on_demand:
                    self._state().down()
                    raise EngineError(f"{self.label}: {error.message}", fix=error.fix) from None
                died = str(error)
            if died is not None:
                await self._died(died)

    async def _load(self) -> RunningEngine:
        """Starts the engine and waits for its first token."""
        self._loading()
        loop = asyncio.get_running_loop()
        log = self.launch.log
        if log.exists():
            log.replace(log.with_suffix(".previous.log"))  # the cause of a death is looked for in one life's lines
        self._launching = loop.run_in_executor(self.pool, self._launch)
        running = self._running = await asyncio.shield(self._launching)
        limit_s = self.launch.start_limit_s
        await loop.run_in_executor(self.pool, lambda: running.wait_ready(self._moment, limit_s=limit_s))
        self.ready_s = running.started_s["first_token"]
        self.times.observe(self.launch.digest, self.ready_s)
        self._state().ready()
        self.gateway.demand(self.launch.model).loaded()
        self.ready = True
        self.say(f"{self.label} answers after {format_duration(self.ready_s)} (pid {running.pid})")
        return running

    def _launch(self) -> RunningEngine:
        one = self.launch
        return launch(one.engine, one.plan, log=one.log, dialect=one.dialect, env=one.env)

    def _moment(self, moment: Loading) -> None:
        """Called from a thread, about ten times a second."""
        if moment.elapsed_s - self._told_s >= TOLD_EVERY_S or moment.elapsed_s < self._told_s:
            self._told_s = moment.elapsed_s
            if moment.elapsed_s >= TOLD_EVERY_S:
                stage = "waits for its first token" if moment.listening else "loads"
                self.say(f"{self.label} {stage}, {moment.elapsed_s:.0f} s: {moment.last_line[-80:]}")

    async def _watch(self, running: RunningEngine) -> str | None:
        """Returns how it died, or None once it is no longer wanted and has ended."""
        since = time.monotonic()
        while self.wanted.is_set():
            died = running.death()
            if died is not None:
                return died
            if self._attempts and time.monotonic() - since >= self.launch.served.restart_policy.window:
                self._attempts = 0
            await asyncio.sleep(POLL_S)
        self.ready = False
        self._state().stopped()  # nothing new goes there; what was on its way there meanwhile ends first
        await until(lambda: not self._state().in_flight)
        await self.close()
        self.say(f"{self.label} is stopped: nobody has asked for {format_duration(self.launch.served.idle_stop or 0)}")
        return None

    async def _died(self, how: str) -> None:
        """One message; then a restart after a pause, or the end."""
        self.ready = False
        self._state().down()
        await self.close()
        policy = self.launch.served.restart_policy
        if policy.condition == "none" or self._attempts >= policy.max_attempts:
            self.given_up = True
            tried = f" after {self._attempts} restarts" if self._attempts else ""
            self.say(f"{self.label}: {how}\n{self.label} stays down{tried}.")
            return
        self._attempts += 1
        self.restarts += 1
        delay_s = policy.delay * 2 ** (self._attempts - 1)
        again = f"restart {self._attempts} of {policy.max_attempts} in {format_duration(delay_s)}"
        self.say(f"{self.label}: {how}\n{self.label} is down; {again}.")
        self._loading()
        await asyncio.sleep(delay_s)

    def _state(self) -> Replica:
        return self.gateway.replica(self.launch.model, self.launch.name)

    def _loading(self) -> None:
        """Requests are held for it, with the time that its load is likely to take."""
        self._state().loading()
        demand = self.gateway.demand(self.launch.model)
        if not self.gateway.available(self.launch.model):
            demand.expect(self.times.expected_s(self.launch.digest, self.launch.served.load_time))
            demand.loading()

    async def close(self) -> None:
        """Ends the engine, if one runs or is being launched; returns when it is gone."""
        launching, self._launching = self._launching, None
        if launching is not None and self._running is None:
            try:
                self._running = await launching
            except EngineError:
                return
        running, self._running = self._running, None
        if running is not None:
            await asyncio.get_running_loop().run_in_executor(None, running.stop)
