"""The target of a measurement: reached by URL, or started here."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from setpoint.client.address import normal_base_url
from setpoint.client.check import check, resolve_model
from setpoint.engines.files import home
from setpoint.engines.host import host_sampler
from setpoint.engines.nvml import load_nvml, nvml_sampler
from setpoint.engines.provision import provide
from setpoint.engines.registry import engine_named
from setpoint.engines.remote import describe
from setpoint.engines.signals import SignalSampler
from setpoint.engines.supervisor import Loading, start
from setpoint.errors import UsageError
from setpoint.load.spec import Alive, Sampler
from setpoint.records.environment import environment
from setpoint.records.target import Dialect, Target
from setpoint.workload.card import Workload

DIALECTS = {
    "chat": Dialect.CHAT,
    "completions": Dialect.COMPLETIONS,
    "embeddings": Dialect.EMBEDDINGS,
    "messages": Dialect.MESSAGES,
}
EMBEDDED_MODEL = "smollm2-135m-instruct"
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """How to reach or make a target.

    Attributes:
        url: Base URL of a server; None starts an engine here.
        model: Model name for the requests, or which model to start.
        api: API instead of the card's: chat, completions, embeddings, messages.
        api_key_env: Name of the variable that holds the key.
        metrics_url: Where its Prometheus text is, if not at ``/metrics``.
        gpu_metrics_url: Where a DCGM exporter is.
        verify_tls: False accepts any certificate.
        ca_file: PEM file of an authority to trust.
        engine: Engine to start.
        flags: For the engine.
        port: For the engine.
    """

    url: str | None = None
    model: str | None = None
    api: str | None = None
    api_key_env: str | None = None
    metrics_url: str | None = None
    gpu_metrics_url: str | None = None
    verify_tls: bool = True
    ca_file: str | None = None
    engine: str = "llamacpp"
    flags: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None


@dataclass(frozen=True, slots=True)
class OpenTarget:
    """A target that answers.

    Attributes:
        target: Where.
        pins: Facts about the engine for run records.
        sampler: Reads its signals.
        alive: Whether it has died; None when nobody can tell.
        local: Whether the engine runs here under our guard.
        restart: Starts the engine afresh behind the same address; None where it is not ours to restart.
        pid: Tells the engine's main process; None where it is not known.
    """

    target: Target
    pins: Mapping[str, Any]
    sampler: Sampler
    alive: Alive | None
    local: bool
    restart: Callable[[], None] | None = None
    pid: Callable[[], int] | None = None


@contextlib.contextmanager
def open_target(
    card: Workload | None,
    options: TargetOptions,
    *,
    note: Note = lambda _: None,
    loading: Callable[[Loading], None] = lambda _: None,
) -> Iterator[OpenTarget]:
    """Reaches or starts the target and proves that it answers; stops what it started.

    Without a card the API is chat unless the options name one.

    Raises:
        TargetError: it cannot be reached or does not answer.
        EngineError: it cannot be started.
        UsageError: the options contradict each other.
    """
    dialect = DIALECTS[options.api or (card.contract.api if card is not None else "chat")]
    if options.url is not None:
        yield _remote(options, dialect, note)
        return
    with _local(options, dialect, note, loading) as opened:
        yield opened


def _remote(options: TargetOptions, dialect: Dialect, note: Note) -> OpenTarget:
    assert options.url is not None
    key = None
    if options.api_key_env is not None:
        key = os.environ.get(options.api_key_env)
        if not key:
            raise UsageError(f"The variable {options.api_key_env} holds no key.", fix="Export it, or name another.")
    target = Target(
        normal_base_url(options.url),
        dialect,
        options.model or "",
        api_key=key,
        metrics_url=options.metrics_url,
        verify_tls=options.verify_tls,
        ca_file=options.ca_file,
    )
    note(f"asking {target.base_url}")
    target = asyncio.run(resolve_model(target))
    asyncio.run(check(target))
    remote = asyncio.run(describe(target))
    target = replace(target, metrics_url=remote.metrics_url)
    known = f"{remote.engine or 'an unknown engine'} {remote.version or ''}".strip()
    note(f"{target.base_url} answers as {target.model} ({known})")
    sampler = SignalSampler(target, remote.engine, host=host_sampler(None), gpu_url=options.gpu_metrics_url)
    return OpenTarget(target, remote.pins(), sampler, None, local=False)


@contextlib.contextmanager
def _local(
    options: TargetOptions, dialect: Dialect, note: Note, loading: Callable[[Loading], None]
) -> Iterator[OpenTarget]:
    engine = engine_named(options.engine)
    flags = dict(options.flags)
    model = provide(engine, options.model or ("fake" if engine.name == "fake" else EMBEDDED_MODEL), note)
    if dialect is Dialect.EMBEDDINGS and engine.name == "llamacpp":
        flags.setdefault("embedding", "true")
    log = home() / "logs" / f"{engine.name}-{os.getpid()}.log"
    log.unlink(missing_ok=True)
    note(f"starting {engine.name} with {model.name}")
    running = start(
        engine, model.path, model.name, log=log, flags=flags, dialect=dialect, port=options.port,
        pins=model.pins | {"hardware": hardware()}, listen=loading,
    )  # fmt: skip
    with running:
        note(f"{engine.name} answers on {running.target.base_url} after {running.started_s['first_token']:.1f} s")
        host = host_sampler(lambda: running.pid)
        gpu = nvml_sampler(load_nvml(), lambda: running.pid)
        sampler = SignalSampler(running.target, engine.name, host=host, gpu=gpu, gpu_url=options.gpu_metrics_url)
        yield OpenTarget(
            running.target, running.pins, sampler, running.death, local=True, restart=running.restart,
            pid=lambda: running.pid,
        )  # fmt: skip


def hardware() -> str:
    """This machine in words, for pins: the model runs where we run."""
    facts = environment()
    memory = psutil.virtual_memory().total / 2**30
    return f"{facts['cpu_model'] or 'unknown CPU'}, {facts['cores_usable']} cores, {memory:.0f} GiB"
