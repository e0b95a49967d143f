"""From a deployment to its processes: one launch a replica, with all that is known before anything starts."""

import os
import secrets
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import msgspec

from setpoint.engines.adapter import Engine, Plan
from setpoint.engines.provision import expected_path, provide
from setpoint.engines.registry import engine_named
from setpoint.engines.store import Model
from setpoint.engines.supervisor import free_port
from setpoint.errors import UsageError
from setpoint.fleet.assignment import Share, share_out, usable_cores, visible_gpus
from setpoint.fleet.deployment import Deployment, ServedModel
from setpoint.gateway.config import DIALECTS, KvEvents
from setpoint.records.target import Dialect

MAX_SOCKET_PATH = 107  # bytes, sun_path of unix(7)
KEY = "$SETPOINT_ENGINE_KEY"  # stands for the random key where a command is shown


@dataclass(frozen=True, slots=True)
class EngineLaunch:
    """One replica that is started here.

    Attributes:
        model: Name of the model in the gateway.
        name: Of the replica.
        served: The model's part of the deployment.
        engine: Which.
        plan: What it serves, where, with which flags.
        env: Variables for its process.
        share: Cores or GPUs in words.
        log: File of its output.
        dialect: In which its readiness is asked.
        digest: Hash of engine, version, model, flags and environment; equal for replicas that are alike.
        kv_events: Where it tells what its prefix cache holds; None where it was not asked to.
    """

    model: str
    name: str
    served: ServedModel
    engine: Engine
    plan: Plan
    env: Mapping[str, str]
    share: str
    log: Path
    dialect: Dialect
    digest: str
    kv_events: KvEvents | None = None

    @property
    def key_variable(self) -> str:
        """Environment variable that tells the gateway's processes its key."""
        mark = sha256(f"{self.model}\0{self.name}".encode()).hexdigest()[:12]
        return f"SETPOINT_REPLICA_KEY_{mark.upper()}"

    @property
    def slots(self) -> int | None:
        """Requests that it is sent at once; None leaves it to the gateway's default."""
        return self.served.max_in_flight or self.engine.slots(self.plan.flags)

    @property
    def kv_tokens(self) -> int | None:
        """Tokens that its cache holds; None where only the running engine knows."""
        return self.served.kv_tokens or self.engine.kv_tokens(self.plan.flags)

    @property
    def start_limit_s(self) -> float:
        """From launch to first token."""
        return self.served.start_timeout or self.engine.start_limit_s

    def command(self) -> str:
        """The command line as a shell takes it; its key is a variable.

        Raises:
            EngineError: the engine is not installed, or cannot be launched so.
        """
        shown = Plan(self.plan.model, self.plan.served_name, self.plan.port, KEY, self.plan.flags)
        launch = self.engine.launch(shown)
        pairs = {**launch.env, **self.env}
        words = [f"{name}={shlex.quote(value) if value != KEY else KEY}" for name, value in pairs.items()]
        return " ".join([*words, shlex.join(launch.argv)])


def launches_of(
    deployment: Deployment, *, fetch: bool = True, note: Callable[[str], None] = lambda _: None
) -> list[EngineLaunch]:
    """The launches of a deployment's local replicas, in the order of the file.

    Args:
        deployment: It.
        fetch: Fetch models that are not here; else the paths are those that they would have.
        note: Takes sentences about what takes time.

    Raises:
        SetpointError: a model cannot be had.
    """
    local = [(name, served) for name, served in deployment.models.items() if not served.remote]
    wanted = [(engine_named(served.engine), served.flags) for _, served in local for _ in range(served.replicas)]
    shares = iter(share_out(wanted, usable_cores(), visible_gpus()))
    ports: set[int] = set()
    out = []
    for name, served in local:
        engine, source = engine_named(served.engine), served.model or name
        found = provide(engine, source, note) if fetch else Model(source, expected_path(engine, source), {})
        for number in range(served.replicas):
            port = served.port + number if served.port is not None else _other_port(ports)
            ports.add(port)
            out.append(_launch(deployment, name, number, engine, found, port, next(shares)))
    return out


def _launch(
    deployment: Deployment, name: str, number: int, engine: Engine, found: Model, port: int, share: Share
) -> EngineLaunch:
    served, state = deployment.models[name], Path(deployment.state).absolute()
    flags = {**engine.default_flags(), **share.flags, **served.flags}
    amounts = {variable: len(listed.split(",")) for variable, listed in share.env.items()}  # alike on other cores, too
    told = [engine.name, engine.version() or "", found.name, str(found.path), found.pins, flags, amounts]
    events = None
    if served.kv_events and engine.kv_events is not None:
        told.append("kv_events")  # where they are told is nothing in which replicas differ
        events = _events(state, f"{name}/r{number}")
        flags = {**flags, **engine.kv_events(events.endpoint, events.replay or "")}
    return EngineLaunch(
        model=name,
        name=f"r{number}",
        served=served,
        engine=engine,
        plan=Plan(found.path, name, port, secrets.token_hex(16), flags),
        env=share.env,
        share=share.words,
        log=state / "logs" / f"{quote(name, safe=':')}-r{number}.log",  # no two models have one file
        dialect=DIALECTS[served.spoken[0]],
        digest=sha256(msgspec.json.encode(told)).hexdigest()[:12],
        kv_events=events,
    )


def _events(state: Path, label: str) -> KvEvents:
    """Sockets in a folder that is ours alone: events hold the prompts, and who listens needs no key.

    Raises:
        UsageError: the folder's path is too long for the address of a socket.
    """
    path = str(state / "run" / f"kv-{sha256(label.encode()).hexdigest()[:8]}")
    if len(os.fsencode(f"{path}.replay")) > MAX_SOCKET_PATH:
        raise UsageError(
            f"The state folder {state} has too long a path for the sockets of kv_events.",
            fix=f"Name one with `state` that is at most {MAX_SOCKET_PATH - 23} bytes long.",
        )
    return KvEvents(endpoint=f"ipc://{path}", replay=f"ipc://{path}.replay")


def _other_port(taken: set[int]) -> int:
    """A free port that no earlier replica of this deployment was given."""
    while (port := free_port()) in taken:
        pass
    return port
