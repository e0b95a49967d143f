"""Engines that somebody else started: asked for a token before the gateway counts on them."""

import asyncio
import os
import time
from dataclasses import dataclass
from typing import Any

from setpoint.client.address import normal_base_url
from setpoint.client.check import check
from setpoint.engines.remote import describe
from setpoint.errors import TargetError
from setpoint.fleet.deployment import ServedModel
from setpoint.gateway.config import DIALECTS
from setpoint.records.target import Target

START_S = 60.0
AGAIN_S = 1.0


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """One, as it said of itself.

    Attributes:
        url: Base URL.
        engine: Name where it was recognised.
        version: Where it says one.
        metrics_url: Where its Prometheus text is.
    """

    url: str
    engine: str | None
    version: str | None
    metrics_url: str | None

    def replica(self, served: ServedModel) -> dict[str, Any]:
        """Its entry in the gateway's file."""
        told = {
            "model": served.model,
            "api_key_env": served.api_key_env,
            "max_in_flight": served.max_in_flight,
            "kv_tokens": served.kv_tokens,
            "engine": self.engine,
            "engine_version": self.version,
            "metrics_url": self.metrics_url,
        }
        return {"url": self.url} | {name: value for name, value in told.items() if value is not None}


async def reach(name: str, served: ServedModel) -> list[RemoteEngine]:
    """The remote engines of a model, each once it has answered with a token.

    Raises:
        TargetError: one did not in time; says what came instead.
    """
    return list(await asyncio.gather(*(_reach(name, served, url) for url in served.urls)))


async def _reach(name: str, served: ServedModel, url: str) -> RemoteEngine:
    key = os.environ.get(served.api_key_env) if served.api_key_env else None
    target = Target(normal_base_url(url), DIALECTS[served.spoken[0]], served.model or name, api_key=key)
    until = time.monotonic() + (served.start_timeout or START_S)
    while True:
        try:
            await check(target, timeout_s=max(1.0, until - time.monotonic()))
        except TargetError:
            if time.monotonic() + AGAIN_S >= until:
                raise
            await asyncio.sleep(AGAIN_S)
            continue
        found = await describe(target)
        return RemoteEngine(target.base_url, found.engine, found.version, found.metrics_url)
