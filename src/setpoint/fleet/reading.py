"""A deployment file into a deployment, or into every mistake that is in it."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import msgspec

from setpoint.client.address import parse_base_url
from setpoint.engines.adapter import whole
from setpoint.engines.environments import has_gpu
from setpoint.engines.registry import engine_named
from setpoint.engines.store import EMBEDDED, HUB
from setpoint.errors import CardError, UsageError
from setpoint.fleet.assignment import visible_gpus
from setpoint.fleet.deployment import Deployment, ServedModel
from setpoint.gateway.config import Gateway, Service
from setpoint.gateway.reading import Found, content_of, contradictions, parse_config
from setpoint.testing.script import Script
from setpoint.workload.reading import read_validated
from setpoint.workload.yaml_values import YamlValues


def load_deployment(path: str | Path) -> Deployment:
    """Reads and checks a deployment.

    Raises:
        CardError: with every mistake.
        UsageError: the file cannot be read at all.
    """
    return parse_deployment(content_of(path), str(path))


def load_front(path: str | Path) -> Deployment | Gateway:
    """A deployment or a gateway's configuration, whichever the file says that it is.

    Raises:
        CardError: with every mistake.
        UsageError: the file cannot be read at all.
    """
    content = content_of(path)
    raw = YamlValues(str(path), "a configuration").read(content)
    if isinstance(raw, dict) and raw.get("kind") == "Deployment":
        return parse_deployment(content, str(path))
    return parse_config(content, str(path))


def parse_deployment(content: bytes, file: str) -> Deployment:
    """Reads and checks the content of a deployment file; ``file`` is its name in messages.

    Raises:
        CardError: with every mistake.
    """
    reader = YamlValues(file, "a deployment")
    deployment = read_validated(content, reader, Deployment)
    found = [reader.mistake(*one) for one in _mistakes(deployment)]
    if found:
        raise CardError(sorted(found, key=lambda one: one.line or 0))
    return deployment


def _mistakes(deployment: Deployment) -> Iterator[Found]:
    yield from contradictions(front_of(deployment))
    ports: dict[int, str] = {}
    for name, served in deployment.models.items():
        if served.remote:
            yield from _remote(name, served)
            continue
        if served.engine == "fake":
            yield from _script(name, served)
        else:
            yield from _source(name, served)
        yield from _events(name, served)
        for port in range(served.port or 0, (served.port or 0) + served.replicas) if served.port else ():
            if port in ports or port in (deployment.listen.port, deployment.admin.port):
                taken = ports.get(port, "the gateway")
                yield ("models", name, "port"), f"{port}, which is also {taken}'s", "ports of its own"
                break
            ports[port] = name
    yield from _gpus(deployment)


def front_of(deployment: Deployment) -> Gateway:
    """The gateway of a deployment before its engines have addresses; for what does not depend on them."""
    models = {}
    for name, served in deployment.models.items():
        own = served.model_dump(include=set(served.model_fields_set) & _SERVICE, exclude_unset=True, mode="json")
        models[name] = own | {"replicas": [{"url": "http://127.0.0.1:1"}]}
    front = deployment.model_dump(exclude={"models", "kind"}, exclude_unset=True, by_alias=True, mode="json")
    return Gateway.model_validate(front | {"kind": "Gateway", "models": models})


_SERVICE = set(Service.model_fields)


def _remote(name: str, served: ServedModel) -> Iterator[Found]:
    for i, url in enumerate(served.urls):
        try:
            parse_base_url(url)
        except UsageError as error:
            yield ("models", name, "urls", i), repr(url), f"an HTTP address ({error.message})"
        if url in served.urls[:i]:
            yield ("models", name, "urls", i), f"{url!r} twice", "each address once"
    variable = served.api_key_env
    if variable is not None and not os.environ.get(variable):
        yield ("models", name, "api_key_env"), f"{variable!r}, which is not set", "a set variable"


def _script(name: str, served: ServedModel) -> Iterator[Found]:
    """Flags of the fake engine are members of its script."""
    for flag, value in served.flags.items():
        if flag not in Script.__struct_fields__:
            known = ", ".join(Script.__struct_fields__)
            yield ("models", name, "flags", flag), "an unknown flag", f"one of {known}"
            continue
        try:
            wanted = msgspec.json.decode(value)
        except msgspec.DecodeError:
            wanted = value
        try:
            msgspec.convert({flag: wanted}, Script)
        except msgspec.ValidationError as error:
            yield ("models", name, "flags", flag), repr(value), f"a value that fits ({error})"


def _source(name: str, served: ServedModel) -> Iterator[Found]:
    source = served.model or name
    field = ("models", name, "model") if served.model else ("models", name)
    if source in EMBEDDED or source.startswith(HUB):
        return
    if not Path(source).exists():
        yield field, repr(source), f"a path that exists, hf://org/name, or one of {', '.join(EMBEDDED)}"


def _events(name: str, served: ServedModel) -> Iterator[Found]:
    """What keeps an engine's KV cache events from being followed."""
    field = ("models", name, "kv_events")
    if not served.kv_events:
        return
    engine = engine_named(served.engine)
    if engine.kv_events is None:
        yield field, f"true with engine {engine.name}", "it with an engine that tells of its cache: vllm"
        return
    own = set(engine.kv_events("", "")) & set(served.flags)
    for flag in sorted(own):
        yield ("models", name, "flags", flag), "it beside kv_events", "one of the two"
    if (whole(served.flags, "data-parallel-size") or 1) > 1:
        yield field, "true with several data-parallel ranks", "replicas instead: each rank has events of its own"
    if find_spec("zmq") is None:
        yield field, "it without pyzmq", "pyzmq to be installed: setpoint[gateway]"


def _gpus(deployment: Deployment) -> Iterator[Found]:
    if not has_gpu():
        return
    free = len(visible_gpus())
    for name, served in deployment.models.items():
        if served.remote:
            continue
        each = engine_named(served.engine).accelerators(served.flags)
        if each * served.replicas > free:
            need = f"{each * served.replicas} GPUs for {served.replicas} replicas"
            yield ("models", name, "replicas"), need, f"at most the {free} GPUs that are left on this machine"
        free -= min(free, each * served.replicas)


def engine_missing(deployment: Deployment) -> list[str]:
    """What has to be installed before the deployment can be started here, in sentences."""
    said = []
    for engine in dict.fromkeys(served.engine for served in deployment.models.values() if not served.remote):
        one = engine_named(engine)
        if one.version() is None:
            said.append(f"{engine} is not installed here. {one.missing}")
    return said
