"""The gateway's configuration that follows from a deployment and its launches."""

import os
from pathlib import Path
from typing import Any

import yaml

from setpoint.errors import SetpointError
from setpoint.fleet.deployment import Deployment
from setpoint.fleet.launches import EngineLaunch
from setpoint.fleet.reading import front_of
from setpoint.fleet.remotes import RemoteEngine

FILE = "gateway.yaml"


def gateway_document(
    deployment: Deployment, launches: list[EngineLaunch], remotes: dict[str, list[RemoteEngine]]
) -> dict[str, Any]:
    """The gateway's file as plain values; keys of engines are named by their variables."""
    front = front_of(deployment).model_dump(by_alias=True, exclude_unset=True, mode="json")
    for name, served in deployment.models.items():
        local = [_replica(one) for one in launches if one.model == name]
        front["models"][name] |= {
            "dialects": list(served.spoken),
            "replicas": [*local, *(one.replica(served) for one in remotes.get(name, ()))],
        }
    return front


def _replica(launch: EngineLaunch) -> dict[str, Any]:
    url, events = f"http://127.0.0.1:{launch.plan.port}", launch.kv_events
    told = {
        "max_in_flight": launch.slots,
        "kv_tokens": None if launch.kv_tokens is None else max(1024, launch.kv_tokens),
        # Only vLLM says how large its cache came out; what else its page says is known, since nobody else calls it.
        "metrics_url": f"{url}/metrics" if launch.engine.name == "vllm" else None,
        "kv_events": None if events is None else events.model_dump(include={"endpoint", "replay"}),
    }
    return {
        "url": url,
        "name": launch.name,
        "model": launch.plan.served_name,
        "api_key_env": launch.key_variable,
        "engine": launch.engine.name,
        "engine_version": launch.engine.version(),
        "engine_config": launch.digest,
    } | {name: value for name, value in told.items() if value is not None}


def write_front(deployment: Deployment, launches: list[EngineLaunch], remotes: dict[str, list[RemoteEngine]]) -> Path:
    """Writes the gateway's file into the state folder, and puts the engines' keys into this process's environment.

    Raises:
        SetpointError: it cannot be written.
    """
    for one in launches:
        os.environ[one.key_variable] = one.plan.api_key
    folder = Path(deployment.state).absolute()
    path = folder / FILE
    text = "# Written by setpoint serve from its deployment; changes here are lost.\n"
    text += yaml.safe_dump(gateway_document(deployment, launches, remotes), sort_keys=False)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SetpointError(f"The state folder {folder} cannot be used: {(error.strerror or 'no').lower()}.") from None
    return path
