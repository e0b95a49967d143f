"""Result files of other load generators as run records. A new format is a file here and a line in ``FORMATS``.

What a tool did not write down is not made up: it stays unknown, and the record's notes say so.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from setpoint.errors import UsageError
from setpoint.experiments.imports import aiperf, guidellm, inference_perf, vllm_bench
from setpoint.experiments.imports.imported import Imported
from setpoint.metrics.summary import summarise
from setpoint.metrics.table import ExchangeTable
from setpoint.records.meta import Series
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore

FORMATS: dict[str, Callable[[bytes], list[Imported]]] = {
    "vllm": vllm_bench.read,
    "guidellm": guidellm.read,
    "aiperf": aiperf.read,
    "inference-perf": inference_perf.read,
}
MOST_BYTES = 4 << 30


def import_file(path: Path, store: RunStore, pins: Mapping[str, str] | None = None) -> list[RunRecord]:
    """Reads a result file into run records, one a load.

    Args:
        path: The file.
        store: Where records go.
        pins: What the user knows and the file does not say: dotted pin → value.

    Raises:
        UsageError: it cannot be read, is of no known format, or lacks what a record needs.
        RecordError: a record cannot be written.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UsageError(f"{path} is larger than {MOST_BYTES >> 30} GiB.", fix="Import a part of it.")
        content = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {(error.strerror or str(error)).lower()}.") from None
    name = recognise(content)
    if name is None:
        raise UsageError(
            f"{path} is no result file of {', '.join(FORMATS)}.",
            fix="Give vllm bench serve --save-detailed JSON, GuideLLM benchmarks.json, AIPerf profile_export.jsonl or "
            "inference-perf per_request_lifecycle_metrics.json.",
        )
    try:
        found = FORMATS[name](content)
    except (msgspec.DecodeError, UsageError) as error:
        words = error.message if isinstance(error, UsageError) else f"{error}."
        fix = error.fix if isinstance(error, UsageError) else "Give the whole file as the tool wrote it."
        raise UsageError(f"{path} ({name}): {words}", fix=fix) from None
    if not any(run.rows for run in found):
        raise UsageError(f"{path} ({name}) holds no request.")
    series = Series(id=f"import-{path.stem[:40]}", kind="import", step=0) if len(found) > 1 else None
    return [_write(run, name, path, store, series, step, pins or {}) for step, run in enumerate(found)]


def recognise(content: bytes) -> str | None:
    """The format of a result file; None for no known one."""
    head = content[:4096].lstrip()
    if head.startswith(b"["):
        return "inference-perf" if b'"start_time"' in head or head.startswith(b"[]") else None
    first = content.split(b"\n", 1)[0]
    if b'"metadata"' in first and b'"metrics"' in first and b'"request_start_ns"' in first:
        return "aiperf"
    if b'"benchmarks"' in content and b'"guidellm_version"' in content:
        return "guidellm"
    return "vllm" if b'"request_throughput"' in content and b'"model_id"' in content else None


def _write(
    run: Imported, name: str, path: Path, store: RunStore, series: Series | None, step: int, told: Mapping[str, str]
) -> RunRecord:
    pins: dict[str, Any] = {"imported_from": name, "load": run.load, **run.pins}
    for pin, value in told.items():
        _set(pins, pin, value)
    notes = [f"Imported from {name}, {path.name}.", *(f"Lacks: {sentence}" for sentence in run.lacks)]
    if told:
        notes.append(f"Told by whoever imported it: {', '.join(f'{pin}={value}' for pin, value in told.items())}.")
    with store.create(f"import-{name}") as writer:
        journal = writer.journal(0)
        for row in run.rows:
            journal.append(row)
        table = ExchangeTable.from_exchanges(run.rows)
        return writer.finish(
            pins=pins,
            target={"model": pins.get("model") or "unknown"},
            series=None if series is None else msgspec.structs.replace(series, step=step),
            summary=summarise(table).to_dict(),
            notes=notes,
        )


def _set(pins: dict[str, Any], pin: str, value: str) -> None:
    *groups, name = pin.split(".")
    for group in groups:
        inner = pins.setdefault(group, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--pin is {pin!r}; {group} is a value, not a group.")
        pins = inner
    pins[name] = value
