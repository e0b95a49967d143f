"""This machine's cores and GPUs, shared out among the replicas of a deployment.

GPUs: each replica of an engine that computes on them gets as many as its parallel ranks, in the order of the file,
none of them twice (``CUDA_VISIBLE_DEVICES``). Cores: one is left to the gateway, the rest is divided evenly among the
replicas that compute on the CPU; an engine whose flags name its threads keeps them. Replicas that are started on demand
count as if they ran: they may.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from setpoint.engines.adapter import Engine
from setpoint.engines.environments import has_gpu


@dataclass(frozen=True, slots=True)
class Share:
    """What one replica may use.

    Attributes:
        flags: For the engine, below the user's own.
        env: For its process.
        words: The same for people.
    """

    flags: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    words: str = ""


def visible_gpus() -> list[str]:
    """GPUs of this machine: those of ``CUDA_VISIBLE_DEVICES`` where it is set, else all that the driver lists."""
    told = os.environ.get("CUDA_VISIBLE_DEVICES")
    if told is not None:
        return [one.strip() for one in told.split(",") if one.strip() and one.strip() != "-1"]
    folder = Path("/proc/driver/nvidia/gpus")
    return [str(i) for i, _ in enumerate(folder.iterdir())] if folder.is_dir() else []


def share_out(
    replicas: Sequence[tuple[Engine, Mapping[str, str]]],
    cores: list[int],
    gpus: list[str],
    *,
    on_gpu: bool | None = None,
) -> list[Share]:
    """A share for each replica, in order.

    Args:
        replicas: Engine and the user's flags.
        cores: Numbers of the cores that this process may use.
        gpus: Names of the GPUs.
        on_gpu: Whether engines that can compute on GPUs do; as on this machine unless given.
    """
    on_gpu = has_gpu() if on_gpu is None else on_gpu
    computing = [e for e, _ in replicas if not (on_gpu and e.accelerators({})) and (e.threads or e.cores)]
    each = max(1, (len(cores) - 1) // max(1, len(computing)))
    left, position, out = list(gpus), 0, []
    for engine, flags in replicas:
        ranks = engine.accelerators(flags)
        if ranks and on_gpu:
            mine, left = left[:ranks], left[ranks:]
            out.append(Share(env={"CUDA_VISIBLE_DEVICES": ",".join(mine)}, words=f"GPU {','.join(mine)}"))
        elif engine.threads and engine.threads not in flags:
            out.append(Share({engine.threads: str(each)}, words=f"{each} of {len(cores)} cores"))
        elif engine.threads:
            out.append(Share(words=f"{flags[engine.threads]} of {len(cores)} cores"))
        elif engine.cores and ranks <= 1:
            mine_ = [cores[(position + i) % len(cores)] for i in range(each)]
            position += each
            listed = ",".join(map(str, mine_))
            out.append(Share(env={engine.cores: listed}, words=f"cores {listed}"))
        else:
            out.append(Share())
    return out


def usable_cores() -> list[int]:
    """Numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))
