"""``setpoint hardware``: the catalogue of accelerators, and a probe of this machine."""

from pathlib import Path
from typing import Annotated

import typer

from setpoint.cli.app import app
from setpoint.cli.output import Json, emit_json, stderr, stdout, table
from setpoint.units import format_bytes, format_number

group = typer.Typer(no_args_is_help=True, help="Accelerators: list, show, and probe this machine.")
app.add_typer(group, name="hardware")

OwnFile = Annotated[
    Path | None, typer.Option("--hardware-file", help="Your own accelerators and prices (YAML or CSV).")
]
_NARROW = 90


@group.command("list")
def list_hardware(*, hardware_file: OwnFile = None, json: Json = False) -> None:
    """List the accelerators that are known; figures that no source confirms are marked assumed."""
    from setpoint.hardware import catalogue
    from setpoint.report.plan_document import chip_document

    chips = list(catalogue(None if hardware_file is None else str(hardware_file)).values())
    if json:
        emit_json([chip_document(chip) for chip in chips])
        return
    console = stdout()
    rows = []
    for chip in chips:
        dense = chip.rate("bf16")
        price = f"{chip.prices[0].low:g} to {chip.prices[0].high:g}" if chip.prices else "unknown"
        origins = {f.origin for f in (chip.memory_bytes, chip.bandwidth_bytes_per_s, dense)}
        row = (
            chip.name,
            f"{chip.usable_bytes.value / 2**30:.1f}",
            format_number(chip.bandwidth_bytes_per_s.value / 1e9),
            format_number(dense.value / 1e12),
            "assumed" if "assumed" in origins else min(origins),
            chip.architecture,
            chip.links.name,
            price,
        )
        rows.append(row if console.width >= _NARROW else row[:5])
    columns = ("accelerator", "GiB", "GB/s", "BF16 TFLOP/s", "origin", "architecture", "link", "USD/h")
    console.print(table(columns if console.width >= _NARROW else columns[:5], rows))


@group.command("show")
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="E.g. H100-SXM; case and dashes do not matter.")],
    *,
    hardware_file: OwnFile = None,
    json: Json = False,
) -> None:
    """Show one accelerator, each figure with its origin and source."""
    from setpoint.hardware import catalogue, find
    from setpoint.report.plan_document import chip_document

    chip = find(name, catalogue(None if hardware_file is None else str(hardware_file)))
    if json:
        emit_json(chip_document(chip))
        return
    console = stdout()
    console.print(f"{chip.name}: {chip.vendor} {chip.architecture}, {chip.links.name}", markup=False)
    rows = [(n, _shown(n, f.value), str(f.origin), f.source) for n, f in chip.figures().items()]
    console.print(table(("figure", "value", "origin", "source"), rows))
    for price in chip.prices:
        when = price.date.isoformat() if price.date else "undated"
        text = f"{price.low:g} to {price.high:g} USD/h, {price.seller}, {when} ({price.source})"
        console.print(text, soft_wrap=False, markup=False)


@group.command("probe")
def probe_machine(*, json: Json = False) -> None:
    """Measure this machine: memory bandwidth, matrix throughput, and GPUs where NVML answers. Takes some seconds."""
    from setpoint.hardware.probe import probe

    stderr().print("measuring; takes some seconds and all processors")
    found = probe()
    if json:
        emit_json(found)
        return
    console = stdout()
    rows = [
        (m.name, _rate(m.median, m.unit), f"{_rate(m.low, m.unit)} to {_rate(m.high, m.unit)}")
        for m in found.measurements
    ]
    console.print(table((f"measured, {found.processors} processors", "median", "spread"), rows))
    if found.gpus == "unsupported":
        console.print(f"GPUs: unsupported: {found.reason}", markup=False)
    for device in found.devices:
        text = f"{device.name}: {format_bytes(device.memory_bytes)}, {device.link}, {device.links} links, {device.bus}"
        console.print(text, markup=False)


def _rate(value: float, unit: str) -> str:
    return f"{format_number(value / 1e9)} G{unit}"


def _shown(name: str, value: float) -> str:
    if name.endswith("_flops"):
        return f"{format_number(value / 1e12)} TFLOP/s"
    if name.endswith("bytes_per_s"):
        return f"{format_number(value / 1e9)} GB/s"
    if name.endswith("_bytes"):
        return format_bytes(value)
    return f"{value:g} W" if name == "power_w" else f"{value:g}"
