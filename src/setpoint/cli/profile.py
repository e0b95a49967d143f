"""``setpoint profile``: a profiler's trace as a table."""

from pathlib import Path
from typing import Annotated

import typer

from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, stdout, table
from setpoint.errors import UsageError


@app.command("profile")
def profile(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="Kineto trace (.json, .json.gz) or Nsight .sqlite.")],
    *,
    tflops: Annotated[float | None, typer.Option(min=0.001, help="Peak TFLOP/s of the device, dense, in use.")] = None,
    gb_per_s: Annotated[float | None, typer.Option(min=0.001, help="Memory bandwidth of the device, GB/s.")] = None,
    json: Json = False,
) -> None:
    """Kernels by family, their share of the time, host gaps, and what bounds them by roofline.

    Without --tflops and --gb-per-s, or where the trace holds no shapes, the bound is unknown.
    """
    from setpoint.diagnosis.profile.kineto import read_kineto
    from setpoint.diagnosis.profile.nsight import read_nsight
    from setpoint.diagnosis.profile.summary import Roof
    from setpoint.diagnosis.profile.summary import profile as profile_of
    from setpoint.units import format_duration, format_share

    if (tflops is None) != (gb_per_s is None):
        raise UsageError("A roofline has two lines.", fix="Give both --tflops and --gb-per-s, or neither.")
    roof = None if tflops is None or gb_per_s is None else Roof(tflops * 1e12, gb_per_s * 1e9)
    kernels = read_nsight(trace) if trace.suffix in (".sqlite", ".db") else read_kineto(trace)
    if not kernels:
        raise UsageError(f"{trace} holds no GPU kernel.", fix="Profile with CUDA activities on, while requests run.")
    found = profile_of(kernels, roof)
    if json:
        emit_json(found)
        return
    rows = [
        (
            f.name,
            f"{f.calls:,}",
            format_duration(f.time_s),
            format_share(f.share),
            f.bound if f.bound == "unknown" else f"{f.bound} ({f.known_share:.0%} of its time known)",
            f.longest[:60],
        )
        for f in found.families
    ]
    console = stdout()
    console.print(table(("family", "calls", "time", "share", "bound by", "longest kernel"), rows))
    console.print(
        f"{found.devices} device(s) busy {format_share(found.busy_share)} of {format_duration(found.span_s)}; "
        f"{found.gaps:,} gaps of 5 µs or more take {format_duration(found.gap_s)}, "
        f"the longest {format_duration(found.longest_gap_s)}: the host was late there.",
        soft_wrap=True,
    )
