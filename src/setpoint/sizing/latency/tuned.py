"""The fitted terms of one engine on one generation of accelerator for one precision of experts."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from typing import Generic

import numpy as np

from setpoint.hardware import Accelerator
from setpoint.sizing.latency.shape import Shape
from setpoint.sizing.latency.terms import Backend
from setpoint.sizing.latency.work import FloatArray, N


@dataclass(frozen=True, slots=True)
class Stack:
    """What the terms depend on.

    Attributes:
        backend: Engine.
        blackwell: Whether the accelerator is of that generation or later; others are taken as Hopper.
        expert_bits: Bits that routed experts are multiplied in: 16, 8 or 4.
    """

    backend: Backend
    blackwell: bool
    expert_bits: int


def stack_of(shape: Shape, accelerator: Accelerator, backend: Backend) -> Stack:
    """The stack of a model on an accelerator."""
    bits = 16
    for kind in shape.layers:
        for precision in kind.expert.parameters:
            bits = min(bits, {"fp8": 8, "int8": 8, "fp4": 4}.get(accelerator.computes_in(precision), 16))
    return Stack(backend, "Blackwell" in accelerator.architecture, bits)


@dataclass(frozen=True, slots=True)
class Tuned(Generic[N]):
    """Terms with everything they depend on already applied. Shares multiply peaks; ``_s`` are seconds."""

    memory: N
    memory_experts: N
    memory_cache: N
    wide: N
    eight: N
    four: N
    experts: N
    attention: N
    link: N
    collective_s: N
    kernel_s: N
    step_s: N
    token_s: N
    launch_s: N
    tile_rows: N
    passes: N
    interference: N
    host_s: N
    burst: N
    burst_decay: N
    queue: N
    visible: N
    data_parallel: N
    drafted: N


def tuned(values: Mapping[str, float], stack: Stack) -> Tuned[float]:
    """The terms of a stack."""
    backend = stack.backend
    rate = values.get(f"rate.{backend}", 1.0) * (values["blackwell_compute"] if stack.blackwell else 1.0)
    kernel = values.get(f"kernel.{backend}", 1.0) * (values["blackwell_kernel"] if stack.blackwell else 1.0)
    narrow = {16: 1.0, 8: values["eight_bit"], 4: values["four_bit"]}
    return Tuned(
        memory=values["memory"],
        memory_experts=values["memory_experts"],
        memory_cache=values["memory_cache"],
        wide=values["compute"] * rate,
        eight=values["compute"] * rate * narrow[8],
        four=values["compute"] * rate * narrow[4],
        experts=values["compute_experts"] * rate * narrow[stack.expert_bits],
        attention=values["compute_attention"] * rate,
        link=values["link"] * (values["blackwell_link"] if stack.blackwell else 1.0),
        collective_s=values["collective_s"],
        kernel_s=values["kernel_s"] * kernel,
        step_s=values["step_s"] * kernel,
        token_s=values["token_s"],
        launch_s=values[f"launch_s.{backend}"],
        tile_rows=values["tile_rows"],
        passes=values["passes"],
        interference=values[f"interference.{backend}"],
        host_s=values[f"host_s.{backend}"],
        burst=values[f"burst.{backend}"],
        burst_decay=values["burst_decay"],
        queue=values["queue"],
        visible=values[f"visible.{backend}"],
        data_parallel=values["data_parallel"],
        drafted=values["drafted"],
    )


def tuned_rows(values: Mapping[str, float], stacks: tuple[Stack, ...], of_row: np.ndarray) -> Tuned[FloatArray]:
    """The terms of many rows; ``of_row`` holds each row's index into ``stacks``."""
    table = np.array([astuple(tuned(values, stack)) for stack in stacks]).reshape(len(stacks), len(fields(Tuned)))
    return Tuned(*table[of_row].T)
