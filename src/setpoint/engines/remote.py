"""A server that somebody else started: what it is, as far as it says so."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from setpoint.client.client import Client
from setpoint.engines.signals import NotMetrics, Samples, parse_exposition, recognise
from setpoint.errors import TargetError
from setpoint.records.target import Target

ASK_S = 5.0
PROPS = ("total_slots", "model_path", "build_info")
SETTINGS = ("n_ctx",)  # of ``default_generation_settings``
OF_THE_MODEL = ("max_model_len", "root", "parent")
CACHE_CONFIG = "vllm:cache_config_info"
NOT_A_SETTING = ("engine",)


@dataclass(frozen=True, slots=True)
class Remote:
    """What a remote server is.

    Attributes:
        engine: Name where it can be recognised; None otherwise.
        version: As it says; None otherwise.
        metrics_url: Where its Prometheus text is; None without.
        reported: What it says of its settings: llama.cpp's ``/props``, the model's row in ``/v1/models``, vLLM's
            ``cache_config_info``.
    """

    engine: str | None
    version: str | None
    metrics_url: str | None
    reported: Mapping[str, str] = field(default_factory=dict)

    def pins(self) -> dict[str, object]:
        """For run records; what is not known stays unknown."""
        known: dict[str, object] = {"engine": self.engine, "engine_version": self.version}
        return known | ({"reported": dict(self.reported)} if self.reported else {})


async def describe(target: Target) -> Remote:
    """Asks ``/metrics``, ``/version`` and the headers of ``/v1/models``; none of them has to exist."""
    client = Client(target)
    engine, metrics_url, reported = await _by_metrics(client, target)
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
    reported |= await _by_props(client) | await _by_models(client, target.model)
    return Remote(engine, version, metrics_url, reported)


async def _by_props(client: Client) -> dict[str, str]:
    """The settings that llama.cpp's ``/props`` tells."""
    said = await _json(client, "/props")
    settings = said.get("default_generation_settings")
    return _told(said, PROPS) | _told(settings if isinstance(settings, dict) else {}, SETTINGS)


async def _by_models(client: Client, model: str) -> dict[str, str]:
    """What ``/v1/models`` says of the model, e.g. vLLM's ``max_model_len``."""
    rows = (await _json(client, "/v1/models")).get("data")
    own = [r for r in rows if isinstance(r, dict) and r.get("id") == model] if isinstance(rows, list) else []
    return _told(own[0], OF_THE_MODEL) if own else {}


async def _json(client: Client, path: str) -> dict[str, Any]:
    with contextlib.suppress(TargetError, msgspec.DecodeError):
        response = await client.fetch("GET", path, timeout_s=ASK_S)
        if response.status == 200:
            return msgspec.json.decode(response.body, type=dict[str, Any])
    return {}


def _told(said: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, str]:
    return {name: str(said[name]) for name in names if isinstance(said.get(name), str | int | float)}


def settings_of(samples: Samples) -> dict[str, str]:
    """The labels of vLLM's ``cache_config_info``, which are settings."""
    return {
        name: value
        for labels, _ in samples.get(CACHE_CONFIG, [])[:1]
        for name, value in labels.items()
        if name not in NOT_A_SETTING and value != "None"
    }


async def _by_metrics(client: Client, target: Target) -> tuple[str | None, str | None, dict[str, str]]:
    url = target.metrics_url or f"{target.base_url}/metrics"
    for path in ("/metrics", "/prometheus/metrics"):
        with contextlib.suppress(TargetError, NotMetrics):
            response = await client.fetch("GET", path, timeout_s=ASK_S)
            if response.status == 200:
                samples = parse_exposition(response.body.decode("utf-8", "replace"))
                engine = recognise(samples)
                if engine is not None:
                    return engine, target.metrics_url or f"{target.base_url}{path}", settings_of(samples)
    return None, url if target.metrics_url else None, {}
