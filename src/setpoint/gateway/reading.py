"""A configuration file into a configuration, or into every mistake that is in it."""

import ipaddress
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from setpoint.client.address import parse_base_url
from setpoint.errors import CardError, Mistake, UsageError
from setpoint.gateway.config import RENEWALS, Gateway, Redis, Replica
from setpoint.workload.quantity import Field_
from setpoint.workload.reading import MAX_BYTES, read_validated
from setpoint.workload.yaml_values import YamlValues

MIN_SECRET_CHARS = 32
Found = tuple[Field_, str, str]


def load_config(path: str | Path) -> Gateway:
    """Reads and checks a configuration.

    Raises:
        CardError: with every mistake.
        UsageError: the file cannot be read at all.
    """
    return parse_config(content_of(path), str(path))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of a configuration file. It knows names and forms; what must fit together it does not."""
    schema = Gateway.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Setpoint gateway"}


def content_of(path: str | Path) -> bytes:
    """The bytes of a configuration, one more than the limit at most.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise UsageError(f"The configuration {str(path)!r} cannot be read: {reason}.") from None


def parse_config(content: bytes, file: str) -> Gateway:
    """Reads and checks the content of a configuration file; ``file`` is its name in messages.

    Raises:
        CardError: with every mistake.
    """
    reader = YamlValues(file, "a gateway configuration")
    config = read_validated(content, reader, Gateway)
    found = [reader.mistake(*one) for one in contradictions(config)]
    if found:
        raise CardError(sorted(found, key=_line))
    return config


def _line(mistake: Mistake) -> int:
    return mistake.line or 0


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def contradictions(config: Gateway) -> Iterator[Found]:
    """Fields that cannot be meant together, or that name what does not exist: path, found, expected."""
    yield from _names(config)
    for name, model in config.models.items():
        seen: set[str] = set()
        for i, replica in enumerate(model.replicas):
            yield from _replica(("models", name, "replicas", i), replica, seen)
    yield from _addresses(config)
    variables: tuple[tuple[Field_, str | None], ...] = (
        (("usage_url_env",), config.usage_url_env),
        (("redis", "url_env"), config.redis.url_env if config.redis else None),
        (("redis", "secret_env"), config.redis.secret_env if config.redis else None),
    )
    for path, variable in variables:
        if variable is not None and not os.environ.get(variable):
            yield path, f"{variable!r}, which is not set", "a set variable"
    if config.redis is not None:
        yield from _redis(config.redis)


def _redis(redis: Redis) -> Iterator[Found]:
    length = len(os.environ.get(redis.secret_env, ""))
    if 0 < length < MIN_SECRET_CHARS:
        found = f"{redis.secret_env!r}, which holds {length} characters"
        yield ("redis", "secret_env"), found, f"a secret of at least {MIN_SECRET_CHARS}, such as openssl rand -hex 32"
    if redis.idempotency_lease < RENEWALS * redis.timeout:
        found = f"{redis.idempotency_lease:g} s"
        yield (
            ("redis", "idempotency_lease"),
            found,
            f"at least {RENEWALS} times redis.timeout, so that it can be renewed",
        )


def _replica(at: Field_, replica: Replica, seen: set[str]) -> Iterator[Found]:
    try:
        address = parse_base_url(replica.url)
    except UsageError as error:
        yield (*at, "url"), repr(replica.url), f"an HTTP address ({error.message})"
        return
    label = replica.name or address.authority
    if label in seen:
        yield at, f"{label!r} twice", "replicas with names of their own"
    seen.add(label)
    if replica.api_key_env is not None and not os.environ.get(replica.api_key_env):
        yield (*at, "api_key_env"), f"{replica.api_key_env!r}, which is not set", "a set variable"
    if replica.kv_events is not None and find_spec("zmq") is None:
        yield (*at, "kv_events"), "it without pyzmq", "pyzmq to be installed: setpoint[gateway]"
    if replica.ca_file is not None and not Path(replica.ca_file).is_file():
        yield (*at, "ca_file"), repr(replica.ca_file), "a file that exists"


def _addresses(config: Gateway) -> Iterator[Found]:
    who = config.auth.anonymous
    if who is not None and not is_loopback(config.listen.host):
        where = repr(config.listen.host)
        yield ("auth", "anonymous"), f"it while listening on {where}", "it only on 127.0.0.1, ::1 or localhost"
    if who is not None and who not in config.tenants and not config.auth.undeclared_tenants:
        yield ("auth", "anonymous"), repr(who), _one_of(config.tenants, "a tenant of this file")
    tls = config.listen.tls
    for name, tenant in config.auth.certificates.items():
        at = ("auth", "certificates", name)
        if tls is None or tls.client_ca is None:
            yield at, "it without an authority for client certificates", "listen.tls.client_ca"
        if tenant not in config.tenants and not config.auth.undeclared_tenants:
            yield at, repr(tenant), _one_of(config.tenants, "a tenant of this file")
    if config.admin.open and not is_loopback(config.admin.host):
        where = repr(config.admin.host)
        yield ("admin", "open"), f"true while listening on {where}", "false where other machines reach the address"
    files = {} if tls is None else {"certificate": tls.certificate, "key": tls.key, "client_ca": tls.client_ca}
    for field, file in files.items():
        if file is not None and not Path(file).is_file():
            yield ("listen", "tls", field), repr(file), "a file that exists"


def _names(config: Gateway) -> Iterator[Found]:
    taken = dict.fromkeys(config.models, "a model")
    for name, model in config.models.items():
        for i, alias in enumerate(model.aliases):
            if alias in taken:
                yield ("models", name, "aliases", i), repr(alias), "a name that nothing else has"
            taken[alias] = "an alias"
        for i, other in enumerate(model.fallbacks):
            if other not in config.models or other == name:
                others = [m for m in config.models if m != name]
                yield ("models", name, "fallbacks", i), repr(other), _one_of(others, "another model of this file")
        for other in model.split:
            if other not in config.models or config.models[other].split:
                plain = [m for m, one in config.models.items() if not one.split]
                yield ("models", name, "split", other), repr(other), _one_of(plain, "a model with replicas")
    for name, tenant in config.tenants.items():
        for i, model_name in enumerate(tenant.models or ()):
            if model_name not in config.models:
                yield ("tenants", name, "models", i), repr(model_name), _one_of(config.models, "a model of this file")


def _one_of(names: object, otherwise: str) -> str:
    listed = ", ".join(str(name) for name in names) if isinstance(names, list | dict) else ""
    return f"one of {listed}" if listed else otherwise
