"""AIPerf ``profile_export.jsonl``: a record a request, as 0.13 writes it and its documentation of 0.14 tells.

Wall-clock nanoseconds for the moments, durations with their unit for the metrics.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from setpoint.errors import UsageError
from setpoint.experiments.imports.imported import (
    NO_CERTIFICATE,
    NO_FINISH,
    NO_PINS,
    Imported,
    Seen,
    exchange_of,
    outcome_of,
)
from setpoint.records.exchange import Outcome

SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0}


class _Metadata(msgspec.Struct):
    request_start_ns: int
    request_end_ns: int
    benchmark_phase: str
    session_num: int = 0
    turn_index: int | None = 0
    credit_issued_ns: int | None = None
    was_cancelled: bool = False
    x_correlation_id: str | None = None


class _Value(msgspec.Struct):
    value: Any
    unit: str


class _Error(msgspec.Struct):
    code: int | None = None
    type: str | None = None


class _Record(msgspec.Struct):
    metadata: _Metadata
    metrics: dict[str, _Value]
    error: _Error | None = None


def read(content: bytes) -> list[Imported]:
    """The one run of a file.

    Raises:
        UsageError: a line is malformed; names it.
    """
    records = []
    decoder = msgspec.json.Decoder(_Record)
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            try:
                records.append(decoder.decode(line))
            except msgspec.DecodeError as error:
                raise UsageError(f"line {number}: {error}.") from None
    records.sort(key=lambda r: r.metadata.request_start_ns)
    origin = min((min(r.metadata.request_start_ns, _planned(r)) for r in records), default=0)
    sessions: dict[str, int] = {}
    rows = []
    for i, record in enumerate(records):
        key = record.metadata.x_correlation_id or f"request {i}"
        rows.append(exchange_of(i, _seen(record, origin, sessions.setdefault(key, len(sessions)))))
    lacks = ["the model's name", NO_FINISH, NO_CERTIFICATE, NO_PINS]
    if any(r.error is None and "usage_completion_tokens" not in r.metrics for r in records):
        lacks.insert(1, "who counted output tokens: the server's usage or the tool's tokenizer")
    if any(r.metadata.credit_issued_ns is None for r in records):
        lacks.insert(0, "the planned send of each request: TTFT counts from the actual send")
    return [Imported(rows, {"model": None}, "unknown", tuple(lacks))]


def _planned(record: _Record) -> int:
    issued = record.metadata.credit_issued_ns
    return record.metadata.request_start_ns if issued is None else min(issued, record.metadata.request_start_ns)


def _seen(record: _Record, origin: int, session: int) -> Seen:
    meta, metrics = record.metadata, record.metrics
    start = (meta.request_start_ns - origin) * 1e-9
    taken = _seconds(metrics, "request_latency")  # to the last part of the answer; the end was noted some time after it
    end = max((meta.request_end_ns - origin) * 1e-9, start) if taken is None else start + taken
    outcome, error = Outcome.COMPLETE, None
    if meta.was_cancelled:
        outcome = Outcome.CANCELLED
    elif record.error is not None:
        outcome, error = outcome_of(record.error.type or "", record.error.code), record.error.type or "failed"
    ttft = _seconds(metrics, "time_to_first_token") if outcome is Outcome.COMPLETE else None
    first = None if ttft is None else start + ttft
    visible = _seconds(metrics, "time_to_first_output_token")
    counted = _count(metrics, "usage_completion_tokens")
    prompt = _count(metrics, "usage_prompt_tokens")
    chunks = [] if first is None else [first]
    for gap in _gaps(metrics) if chunks else ():
        chunks.append(chunks[-1] + gap)
    last = chunks[-1] if chunks else None
    return Seen(
        scheduled_s=(_planned(record) - origin) * 1e-9,
        started_s=start,
        done_s=max(end, last or end),
        first_s=first,
        visible_s=first if visible is None or first is None else max(start + visible, first),
        last_s=last,
        chunk_s=chunks,
        prompt_tokens=_count(metrics, "input_sequence_length") if prompt is None else prompt,
        output_tokens=_count(metrics, "output_sequence_length") if counted is None else counted,
        by_server=counted is not None,
        outcome=outcome,
        error=error,
        status=record.error.code if record.error is not None and outcome is not Outcome.CANCELLED else None,
        session=session,
        turn=meta.turn_index or 0,
        warmup=meta.benchmark_phase == "warmup",
    )


def _scale(name: str, value: _Value) -> float:
    if value.unit not in SECONDS:
        raise UsageError(f"metrics.{name}.unit is {value.unit!r}, expected one of {', '.join(SECONDS)}.")
    return SECONDS[value.unit]


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise UsageError(f"metrics.{name}.value is {str(value)[:40]!r}, expected a number of at least 0.")
    return float(value)


def _seconds(metrics: Mapping[str, _Value], name: str) -> float | None:
    found = metrics.get(name)
    return None if found is None else _number(name, found.value) * _scale(name, found)


def _count(metrics: Mapping[str, _Value], name: str) -> int | None:
    found = metrics.get(name)
    return None if found is None else int(_number(name, found.value))


def _gaps(metrics: Mapping[str, _Value]) -> list[float]:
    found = metrics.get("inter_chunk_latency")
    if found is None:
        return []
    if not isinstance(found.value, list):
        raise UsageError("metrics.inter_chunk_latency.value is no list, expected one gap a chunk.")
    scale = _scale("inter_chunk_latency", found)
    return [_number("inter_chunk_latency", gap) * scale for gap in found.value]
