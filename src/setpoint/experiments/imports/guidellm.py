"""GuideLLM ``benchmarks.json``, report schema versions 1 (GuideLLM 0.4 to 0.7) and 2 (0.8): ``metadata.version``.

One run a benchmark. A request has its first and last token and their number, but no times between: there is no ITL.
Times are Unix timestamps.
"""

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

SCHEMA = 2


class _Timings(msgspec.Struct):
    request_start: float | None = None
    resolve_start: float | None = None
    targeted_start: float | None = None
    first_token_iteration: float | None = None
    first_output_token_iteration: float | None = None
    last_token_iteration: float | None = None
    token_iterations: int = 0
    request_end: float | None = None
    resolve_end: float | None = None


class _Info(msgspec.Struct):
    timings: _Timings
    turn_index: int = 0
    error: str | None = None


class _Usage(msgspec.Struct):
    text_tokens: int | None = None
    total_tokens: int | None = None

    @property
    def tokens(self) -> int | None:
        return self.total_tokens if self.total_tokens is not None else self.text_tokens


class _Request(msgspec.Struct):
    request_id: str
    info: _Info
    input_metrics: _Usage
    output_metrics: _Usage


class _Requests(msgspec.Struct):
    successful: list[_Request]
    errored: list[_Request]
    incomplete: list[_Request]


class _Benchmark(msgspec.Struct):
    requests: _Requests
    config: dict[str, Any] = {}


class _Metadata(msgspec.Struct):
    guidellm_version: str
    version: int = 1


class _Backend(msgspec.Struct):
    model: str | None = None


class _Spec(msgspec.Struct):
    backend: _Backend


class _Config(msgspec.Struct):
    spec: _Spec


class _Report(msgspec.Struct):
    metadata: _Metadata
    benchmarks: list[_Benchmark]
    args: dict[str, Any] = {}  # schema 1
    config: _Config | None = None  # schema 2

    @property
    def model(self) -> Any:  # noqa: ANN401 - as the file has it
        return self.args.get("model") if self.config is None else self.config.spec.backend.model


def read(content: bytes) -> list[Imported]:
    """One run a benchmark of the report.

    Raises:
        UsageError: it is of a newer schema.
        msgspec.DecodeError: a field is missing or malformed; names it.
    """
    report = msgspec.json.decode(content, type=_Report)
    if report.metadata.version > SCHEMA:
        raise UsageError(
            f"metadata.version is {report.metadata.version}, expected at most {SCHEMA}.", fix="Upgrade setpoint."
        )
    return [_run(report, benchmark) for benchmark in report.benchmarks]


def _run(report: _Report, benchmark: _Benchmark) -> Imported:
    kinds = (
        (benchmark.requests.successful, Outcome.COMPLETE),
        (benchmark.requests.errored, Outcome.ERROR),
        (benchmark.requests.incomplete, Outcome.CANCELLED),
    )
    begun = [(start, r, outcome) for requests, outcome in kinds for r in requests if (start := _start(r)) is not None]
    begun.sort(key=lambda x: x[0])
    origin = min((min(start, r.info.timings.targeted_start or start) for start, r, _ in begun), default=0.0)
    rows = [exchange_of(i, _seen(r, start, outcome, origin)) for i, (start, r, outcome) in enumerate(begun)]
    unsent = sum(len(requests) for requests, _ in kinds) - len(begun)
    lacks = [
        "the times between first and last token: no ITL and no stall",
        NO_FINISH,
        NO_CERTIFICATE,
        NO_PINS,
    ]
    if unsent:
        lacks.append(f"the times of {unsent} requests that were never begun; they are left out")
    pins = {"model": report.model, "tool_version": report.metadata.guidellm_version}
    return Imported(rows, pins, _load(benchmark.config), tuple(lacks))


def _start(request: _Request) -> float | None:
    timings = request.info.timings
    return timings.request_start if timings.request_start is not None else timings.resolve_start


def _load(config: dict[str, Any]) -> str:
    strategy = config.get("strategy")
    if not isinstance(strategy, dict):
        return "unknown"
    figures = [f"{key} {strategy[key]}" for key in ("rate", "streams", "max_concurrency") if strategy.get(key)]
    return " ".join([str(strategy.get("type_", "unknown")), *figures])


def _seen(request: _Request, start: float, outcome: Outcome, origin: float) -> Seen:
    t = request.info.timings
    end = next((x for x in (t.request_end, t.resolve_end, t.last_token_iteration) if x is not None), start)
    answered = outcome is Outcome.COMPLETE
    first = t.first_token_iteration if answered else None
    visible = t.first_output_token_iteration if t.first_output_token_iteration is not None else first
    last = t.last_token_iteration if answered else None
    counted = request.output_metrics.tokens
    return Seen(
        scheduled_s=min(t.targeted_start if t.targeted_start is not None else start, start) - origin,
        started_s=start - origin,
        done_s=max(end, last or end) - origin,
        first_s=None if first is None else first - origin,
        visible_s=None if first is None or visible is None else visible - origin,
        last_s=None if last is None else last - origin,
        chunk_s=(),
        prompt_tokens=request.input_metrics.tokens,
        output_tokens=counted if counted is not None else t.token_iterations,
        by_server=counted is not None,
        outcome=outcome_of(request.info.error or "") if outcome is Outcome.ERROR else outcome,
        error="failed" if outcome is Outcome.ERROR else None,
        turn=0,
    )
