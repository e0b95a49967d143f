"""A deployment from a plan: the placement that was chosen, as flags of the engine that it was planned for.

The plan knows a model's name, not where it was read from, and weights in other formats than the stored ones are another
checkpoint, except for FP8, which vLLM makes while it loads.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from setpoint.errors import UsageError
from setpoint.records.plans import SCHEMA_VERSION


class _Placement(msgspec.Struct):
    placement: str
    tp: int
    pp: int
    dp: int
    expert_parallel: bool
    weights: str
    as_stored: bool
    kv_dtype: str
    replicas: int | None
    state: str


class _Model(msgspec.Struct):
    name: str


class _Plan(msgspec.Struct):
    schema_version: int
    kind: str
    model: _Model
    engine: str
    max_model_len: int
    placements: list[_Placement]


def deployment_from_plan(path: Path, *, model: str, choice: int = 1) -> tuple[str, list[str]]:
    """A deployment file, and sentences on what the plan leaves open.

    Args:
        path: A plan as ``setpoint plan --json`` prints it or keeps it in ``.setpoint/plans``.
        model: Where the model is: path or hf://org/name[@revision].
        choice: Which placement, from 1, the best.

    Raises:
        UsageError: it is no plan, has no such placement, or is for an engine that is not started here.
    """
    plan = _read(path)
    if not plan.engine.startswith("vLLM "):
        raise UsageError(f"The plan {str(path)!r} is for {plan.engine}; only vLLM is started here.")
    if not 1 <= choice <= len(plan.placements):
        raise UsageError(f"The plan {str(path)!r} has {len(plan.placements)} placements; there is no number {choice}.")
    placement = plan.placements[choice - 1]
    notes = [
        f"{placement.placement} ({placement.state}) was planned for {plan.engine}; `setpoint engines list` has yours"
    ]
    if not placement.as_stored and placement.weights != "fp8":
        notes.append(f"the plan is for weights in {placement.weights}: `model` has to be a checkpoint of those")
    served: dict[str, Any] = {
        "model": model,
        "engine": "vllm",
        "replicas": placement.replicas or 1,
        "flags": dict(_flags(plan, placement)),
        "dialects": ["chat", "completions"],
    }
    document = {
        "apiVersion": "setpoint/v1",
        "kind": "Deployment",
        "auth": {"anonymous": "local"},
        "models": {plan.model.name: served},
        "tenants": {"local": {}},
    }
    head = f"# From the plan {path.name}: {placement.placement}. `setpoint serve check` explains every mistake.\n"
    return head + yaml.safe_dump(document, sort_keys=False), notes


def _flags(plan: _Plan, placement: _Placement) -> Mapping[str, str | int | bool]:
    flags: dict[str, str | int | bool] = {"max-model-len": plan.max_model_len}
    ranks = {"tensor": placement.tp, "pipeline": placement.pp, "data": placement.dp}
    flags |= {f"{kind}-parallel-size": count for kind, count in ranks.items() if count > 1}
    if placement.expert_parallel:
        flags["enable-expert-parallel"] = True
    if placement.kv_dtype != "auto":
        flags["kv-cache-dtype"] = placement.kv_dtype
    if not placement.as_stored and placement.weights == "fp8":
        flags["quantization"] = "fp8"
    return flags


def _read(path: Path) -> _Plan:
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=_Plan)
    except OSError as error:
        raise UsageError(
            f"The plan {str(path)!r} cannot be read: {(error.strerror or 'unreadable').lower()}."
        ) from None
    except msgspec.DecodeError:
        plan = None
    if plan is None or plan.kind != "plan" or plan.schema_version != SCHEMA_VERSION:
        raise UsageError(f"{str(path)!r} is no plan of this version.", fix="`setpoint plan CARD --json` prints one.")
    return plan
