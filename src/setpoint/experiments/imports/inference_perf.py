"""inference-perf ``per_request_lifecycle_metrics.json``: a list of requests, read from its source of 2026.

Both forms of ``info``: the old one with ``output_token_times`` in it, and the one with ``response_metrics``. Times are
seconds of one monotonic clock. The file holds prompts and answers: they are not read into the record.
"""

from typing import Any

import msgspec

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


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Response(msgspec.Struct):
    output_tokens: int = 0
    server_usage: _Usage | None = None
    chunk_times: list[float] = []
    output_token_times: list[float] = []


class _Info(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    output_token_times: list[float] = []
    response_metrics: _Response | None = None

    @property
    def response(self) -> _Response:
        if self.response_metrics is not None:
            return self.response_metrics
        return _Response(output_tokens=self.output_tokens or 0, output_token_times=self.output_token_times)


class _Error(msgspec.Struct):
    error_type: str


class _Request(msgspec.Struct):
    start_time: float
    end_time: float
    info: _Info | None
    error: _Error | None
    scheduled_time: float | None = None
    request: str | None = None
    session_id: str | None = None


class _Body(msgspec.Struct):
    model: str | None = None


def read(content: bytes) -> list[Imported]:
    """The one run of a file.

    Raises:
        msgspec.DecodeError: a field is missing or malformed; names it.
    """
    found = sorted(msgspec.json.decode(content, type=list[_Request]), key=lambda r: r.start_time)
    origin = min((min(r.start_time, _planned(r)) for r in found), default=0.0)
    rows = [exchange_of(i, _seen(r, origin)) for i, r in enumerate(found)]
    lacks = [NO_FINISH, NO_CERTIFICATE, NO_PINS]
    if any(r.scheduled_time is None for r in found):
        lacks.insert(0, "the planned send of each request: TTFT counts from the actual send")
    pins: dict[str, Any] = {"model": _model(found)}
    return [Imported(rows, pins, "unknown", tuple(lacks))]


def _model(found: list[_Request]) -> str | None:
    """From the first request's own body, of which nothing else is kept."""
    for request in found[:1]:
        try:
            return msgspec.json.decode(request.request or "", type=_Body).model
        except msgspec.DecodeError:
            return None
    return None


def _planned(request: _Request) -> float:
    planned = request.scheduled_time
    return request.start_time if planned is None else min(planned, request.start_time)


def _seen(request: _Request, origin: float) -> Seen:
    start, end = request.start_time - origin, request.end_time - origin
    scheduled = _planned(request) - origin
    info = request.info or _Info()
    if request.error is not None:
        kind = request.error.error_type
        code = kind.removeprefix("HTTP Error ")
        status = int(code) if code.isdigit() else None
        return Seen(
            scheduled, start, max(end, start), None, None, None, (), info.input_tokens, None, by_server=False,
            outcome=outcome_of(kind, status), error=kind[:60], status=status,
        )  # fmt: skip
    response = info.response
    usage = response.server_usage or _Usage()
    chunks = [t - origin for t in response.chunk_times or response.output_token_times]
    first, last = (chunks[0], chunks[-1]) if chunks else (None, None)
    counted = usage.completion_tokens
    return Seen(
        scheduled,
        start,
        max(end, last or end),
        first,
        first,
        last,
        chunks,
        prompt_tokens=usage.prompt_tokens if usage.prompt_tokens is not None else info.input_tokens,
        output_tokens=counted if counted is not None else response.output_tokens,
        by_server=counted is not None,
        outcome=Outcome.COMPLETE,
        cached_tokens=None if usage.prompt_tokens_details is None else usage.prompt_tokens_details.cached_tokens,
    )
