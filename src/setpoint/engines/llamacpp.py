"""llama.cpp, embedded: the prebuilt PyPI package ``xllamacpp``, run as a child process."""

import importlib.metadata
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from setpoint.engines.adapter import Cause, Engine, Flags, Launch, Plan, whole
from setpoint.engines.files import sha256_of

CAUSES = (
    Cause(r"unknown model architecture", "this version does not know the model's architecture", "Use another model."),
    Cause(
        r"failed to load model|invalid magic|not a gguf|gguf_init_from_file|tensor .* out of bounds|data is not within",
        "the model file is missing or damaged",
        "Fetch it again: setpoint models pull NAME.",
    ),
    Cause(r"unknown flag", "a flag is not known", "See docs/engines.md for the flags."),
)


def version() -> str | None:
    """Version of the package: its own build information is empty."""
    try:
        return importlib.metadata.version("xllamacpp")
    except importlib.metadata.PackageNotFoundError:
        return None


def launch(plan: Plan) -> Launch:
    """Runs ``setpoint.engines.llamacpp_server`` in our own interpreter."""
    argv = [sys.executable, "-m", "setpoint.engines.llamacpp_server", str(plan.model), plan.served_name, str(plan.port)]
    argv += [f"{name}={value}" for name, value in plan.flags.items()]
    return Launch(tuple(argv), {"SETPOINT_ENGINE_KEY": plan.api_key})


def default_flags() -> Flags:
    """Pinned although nobody gave them: what decides speed on a CPU.

    One core is left to the load generator. Threads that spin on each other collapse when anything else wants a core:
    on two shared cores, two threads were seen to fall from 6.6 to 0.8 answers a second, one thread stayed at 4.
    """
    cores = len(os.sched_getaffinity(0))
    return {"n_parallel": "4", "n_ctx": "8192", "n_threads": str(max(1, cores - 1))}


def facts(model: Path) -> Mapping[str, object]:
    """Revision and precision of a GGUF file."""
    precision = next((part for part in model.stem.split(".")[1:] if part[:1] in "QFBI"), None)
    return {"model_file": model.name, "model_revision": f"sha256:{sha256_of(model)}", "precision": precision}


LLAMACPP = Engine(
    name="llamacpp",
    version=version,
    missing="Install it with: pip install 'setpoint[local]'",
    launch=launch,
    causes=CAUSES,
    start_limit_s=120.0,
    facts=facts,
    default_flags=default_flags,
    slots=lambda flags: whole(flags, "n_parallel"),
    kv_tokens=lambda flags: whole(flags, "n_ctx"),  # of all slots together
    threads="n_threads",
)
