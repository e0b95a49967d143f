"""A server that somebody else started: what it is, as far as it says so."""

import contextlib
from dataclasses import dataclass

import msgspec

from setpoint.client.client import Client
from setpoint.engines.signals import NotMetrics, parse_exposition, recognise
from setpoint.errors import TargetError
from setpoint.records.target import Target

ASK_S = 5.0


@dataclass(frozen=True, slots=True)
class Remote:
    """What a remote server is.

    Attributes:
        engine: Name where it can be recognised; None otherwise.
        version: As it says; None otherwise.
        metrics_url: Where its Prometheus text is; None without.
    """

    engine: str | None
    version: str | None
    metrics_url: str | None

    def pins(self) -> dict[str, object]:
        """For run records; what is not known stays unknown."""
        return {"engine": self.engine, "engine_version": self.version}


async def describe(target: Target) -> Remote:
    """Asks ``/metrics``, ``/version`` and the headers of ``/v1/models``; none of them has to exist."""
    client = Client(target)
    engine, metrics_url = await _by_metrics(client, target)
    version = None
    with contextlib.suppress(TargetError, msgspec.DecodeError):
        response = await client.fetch("GET", "/version", timeout_s=ASK_S)
        if response.status == 200:
            said = msgspec.json.decode(response.body, type=dict[str, object]).get("version")
            version = str(said) if said is not None else None
    if engine is None:
        with contextlib.suppress(TargetError):
            response = await client.fetch("GET", "/v1/models", timeout_s=ASK_S)
            server = response.fields.get("server", "").lower()
            owners = ("vllm", "sglang", "llamacpp", "ollama")
            body = response.body[:4096].decode("utf-8", "replace").lower()
            engine = "llamacpp" if "llama.cpp" in server else next((o for o in owners if f'"{o}"' in body), None)
    return Remote(engine, version, metrics_url)


async def _by_metrics(client: Client, target: Target) -> tuple[str | None, str | None]:
    url = target.metrics_url or f"{target.base_url}/metrics"
    for path in ("/metrics", "/prometheus/metrics"):
        with contextlib.suppress(TargetError, NotMetrics):
            response = await client.fetch("GET", path, timeout_s=ASK_S)
            if response.status == 200:
                engine = recognise(parse_exposition(response.body.decode("utf-8", "replace")))
                if engine is not None:
                    return engine, target.metrics_url or f"{target.base_url}{path}"
    return None, url if target.metrics_url else None
