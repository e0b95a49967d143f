"""PyTorch's profiler (Kineto): Chrome trace JSON, often gzipped.

Kernels have the categories ``kernel``, ``gpu_memcpy`` and ``gpu_memset``, times in microseconds. Where shapes were
recorded, ``args["External id"]`` leads from a kernel to the operator that launched it, with ``Input Dims``.
"""

import gzip
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from setpoint.diagnosis.profile.kernel import Kernel
from setpoint.errors import UsageError

GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
MULTIPLICATIONS = {"aten::mm": 2, "aten::addmm": 3, "aten::bmm": 2, "aten::linear": 2, "aten::matmul": 2}
ELEMENT_BYTES = {"double": 8, "float": 4, "c10::half": 2, "c10::bfloat16": 2, "c10::float8_e4m3fn": 1, "signed char": 1}
Event = dict[str, Any]


def read_kineto(path: Path) -> list[Kernel]:
    """All kernels of a trace, in order of start.

    Raises:
        UsageError: the file cannot be read, is no such trace, or an event is malformed.
    """
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        trace = msgspec.json.decode(content)
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {(error.strerror or str(error)).lower()}.") from None
    except (EOFError, zlib.error, msgspec.DecodeError) as error:
        raise UsageError(f"{path} is no whole JSON trace: {error}.") from None
    events = trace.get("traceEvents") if isinstance(trace, dict) else trace
    if not isinstance(events, list) or not all(isinstance(e, dict) for e in events):
        raise UsageError(f"{path}: traceEvents: found no list of events, expected a PyTorch (Kineto) trace.")
    operators = {
        _args(e).get("External id"): e for e in events if e.get("cat") == "cpu_op" and "Input Dims" in _args(e)
    }
    kernels = [
        _kernel(path, number, event, operators)
        for number, event in enumerate(events)
        if str(event.get("cat", "")).lower() in GPU_CATEGORIES and event.get("ph") == "X"
    ]
    return sorted(kernels, key=lambda k: k.start_s)


def _args(event: Event) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _kernel(path: Path, number: int, event: Event, operators: Mapping[object, Event]) -> Kernel:
    args = _args(event)
    operator = operators.get(args.get("External id"))
    work = None if operator is None else _work(str(operator.get("name")), _args(operator))
    try:
        return Kernel(
            name=str(event["name"]),
            device=int(args.get("device", 0)),
            stream=int(args.get("stream", 0)),
            start_s=float(event["ts"]) * 1e-6,
            length_s=float(event["dur"]) * 1e-6,
            flops=None if work is None else work[0],
            bytes=None if work is None else work[1],
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"{path}: traceEvents[{number}]: a kernel without {error}, expected name, ts and dur."
        ) from None


def _work(operator: str, args: Mapping[str, Any]) -> tuple[float, float] | None:
    """Operations and least bytes of a matrix multiplication; None for anything else."""
    count = MULTIPLICATIONS.get(operator)
    found = args.get("Input Dims")
    dims = [d for d in found if _is_shape(d)] if isinstance(found, list) else []
    if count is None or len(dims) < 2:
        return None
    left, right = dims[-2], dims[-1]
    if operator == "aten::linear":
        right = [*right[:-2], right[-1], right[-2]]
    if left[-1] != right[-2]:
        return None
    types = args.get("Input type")
    kinds = [str(t).lower() for t in types] if isinstance(types, list) else []
    size = next((ELEMENT_BYTES[k] for k in kinds if k in ELEMENT_BYTES), None)
    if size is None:
        return None
    rows = math.prod(left[:-1])
    inner, columns = int(left[-1]), int(right[-1])
    return 2.0 * rows * inner * columns, float(size * (math.prod(left) + math.prod(right) + rows * columns))


def _is_shape(dims: object) -> bool:
    """Whether this is the shape of a matrix, or of a batch of them."""
    return isinstance(dims, list) and len(dims) >= 2 and all(isinstance(d, int) for d in dims)
