"""An Nsight Systems export to SQLite (``nsys export --type sqlite``): tables ``CUPTI_ACTIVITY_KIND_*``, nanoseconds."""

import sqlite3
from contextlib import closing
from pathlib import Path

from setpoint.diagnosis.profile.kernel import Kernel
from setpoint.errors import UsageError

_KERNELS = """
    SELECT names.value, k.deviceId, k.streamId, k.start, k.end
    FROM CUPTI_ACTIVITY_KIND_KERNEL AS k LEFT JOIN StringIds AS names ON names.id = k.demangledName
"""
_COPIES = "SELECT '{0}', deviceId, streamId, start, end FROM CUPTI_ACTIVITY_KIND_{1}"


def read_nsight(path: Path) -> list[Kernel]:
    """All kernels of an export, in order of start.

    Raises:
        UsageError: the file cannot be read or is no such export.
    """
    if not path.is_file():
        raise UsageError(f"There is no file {path}.")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as base:
            tables = {str(name) for (name,) in base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables:
                raise UsageError(f"{path}: found no table CUPTI_ACTIVITY_KIND_KERNEL: it records no CUDA kernel.")
            rows = base.execute(_KERNELS).fetchall()
            for name in ("MEMCPY", "MEMSET"):
                if f"CUPTI_ACTIVITY_KIND_{name}" in tables:
                    rows += base.execute(_COPIES.format(name.lower(), name)).fetchall()
    except sqlite3.Error as error:
        raise UsageError(
            f"{path} is no Nsight Systems export: {error}.", fix="nsys export --type sqlite FILE"
        ) from None
    try:
        kernels = [
            Kernel(str(name or "unnamed"), int(device), int(stream), start * 1e-9, (end - start) * 1e-9)
            for name, device, stream, start, end in rows
        ]
    except (TypeError, ValueError):
        raise UsageError(
            f"{path}: a kernel lacks a device, a stream, a start or an end.", fix="Export it again with nsys."
        ) from None
    return sorted(kernels, key=lambda k: k.start_s)
