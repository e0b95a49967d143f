"""Promises: one limit each, in one line or as a mapping."""

import difflib
import re
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, model_serializer, model_validator
from pydantic_core import CoreSchema

from setpoint.units import format_duration, format_quantile, format_share, parse_duration, parse_quantile, parse_share
from setpoint.workload.quantity import Duration, Quantile, Share


class Metric(StrEnum):
    """What may be promised."""

    TTFT = "ttft"
    ITL = "itl"
    TPOT = "tpot"
    E2E = "e2e"
    ANSWERED = "answered"
    AVAILABILITY = "availability"
    QUALITY = "quality"


class Boundary(StrEnum):
    """Where TTFT begins and ends; whether E2E is of one request or of a whole task."""

    SCHEDULED = "scheduled"  # planned send to first visible delta
    SENT = "sent"  # last request byte to first visible delta
    ANY_TOKEN = "any_token"  # noqa: S105 - planned send to first delta of any kind
    TASK = "task"  # E2E of an agent's whole task: first turn's planned send to last turn's end


LATENCIES = frozenset({Metric.TTFT, Metric.ITL, Metric.TPOT, Metric.E2E})
_LATENCY_LINE = re.compile(
    r"^(?P<quantile>p[\d.]+)\s+(?P<metric>\w+)\s*(<=|≤|<)\s*(?P<limit>[^()]+?)(\s+from\s+(?P<boundary>[\w ]+))?$",
    re.IGNORECASE,
)
_SHARE_LINE = re.compile(r"^(?P<metric>\w+)(\((?P<suite>[\w.-]+)\))?\s*(>=|≥|>)\s*(?P<share>.+)$", re.IGNORECASE)
_EXAMPLES = '"p95 ttft <= 800 ms" or "answered >= 99%"'


class Promise(BaseModel):
    """One limit.

    Attributes:
        metric: What is limited.
        quantile: For latencies: the share of requests (of gaps, for ITL) that must keep the limit.
        limit_s: For latencies: the limit in seconds.
        at_least: For answered, availability and quality: the least share or score.
        boundary: For TTFT: which of its boundaries; scheduled unless named. For E2E of agents: task.
        suite: For quality: the suite that measures it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    metric: Metric
    quantile: Quantile | None = None
    limit_s: Duration | None = Field(default=None, alias="limit")
    at_least: Share | None = None
    boundary: Boundary | None = None
    suite: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_line(cls, raw: object) -> object:
        return _parse_line(raw) if isinstance(raw, str) else raw

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.metric in LATENCIES:
            if self.quantile is None or self.limit_s is None or self.at_least is not None:
                raise ValueError(f"expected quantile and limit for {self.metric}, as in {_EXAMPLES}")
            if self.limit_s <= 0:
                raise ValueError("expected a limit above zero")
        elif self.at_least is None or self.quantile is not None or self.limit_s is not None:
            raise ValueError(f"expected at_least for {self.metric}, as in {_EXAMPLES}")
        if self.boundary is Boundary.TASK and self.metric is not Metric.E2E:
            raise ValueError("expected the boundary task with e2e only")
        if self.boundary not in (None, Boundary.TASK) and self.metric is not Metric.TTFT:
            raise ValueError("expected such a boundary with ttft only")
        if self.suite is not None and self.metric is not Metric.QUALITY:
            raise ValueError("expected a suite with quality only")
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """One line, or the mapping."""
        fields = handler.resolve_ref_schema(handler(schema))
        line = {"type": "string", "examples": ["p95 ttft <= 800 ms", "answered >= 99%"]}
        return {"anyOf": [line, fields]}

    @model_serializer
    def _write(self) -> dict[str, Any]:
        fields = {
            "metric": self.metric.value,
            "quantile": self.quantile,
            "limit": self.limit_s,
            "at_least": self.at_least,
            "boundary": None if self.boundary is None else self.boundary.value,
            "suite": self.suite,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def label(self) -> str:
        """The promise in words, e.g. ``p95 TTFT ≤ 800 ms``."""
        if self.metric in LATENCIES:
            assert self.quantile is not None
            assert self.limit_s is not None
            named = {Boundary.SENT: " from sent", Boundary.ANY_TOKEN: " to any token", Boundary.TASK: " of the task"}
            where = named.get(self.boundary or Boundary.SCHEDULED, "")
            name = f"{format_quantile(self.quantile)} {self.metric.value.upper()}{where}"
            return f"{name} ≤ {format_duration(self.limit_s)}"
        assert self.at_least is not None
        suite = f" ({self.suite})" if self.suite else ""
        return f"{self.metric.value}{suite} ≥ {format_share(self.at_least)}"


def _parse_line(line: str) -> dict[str, Any]:
    """The one-line form as a mapping.

    Raises:
        ValueError: not such a line; says what may stand there.
    """
    latency = _LATENCY_LINE.match(line.strip())
    if latency is not None:
        boundary = latency["boundary"]
        return {
            "metric": _metric(latency["metric"]),
            "quantile": parse_quantile(latency["quantile"]),
            "limit": parse_duration(latency["limit"]),
            "boundary": None if boundary is None else boundary.strip().lower().replace(" ", "_"),
        }
    share = _SHARE_LINE.match(line.strip())
    if share is None:
        raise ValueError(f"expected a promise such as {_EXAMPLES}")
    return {"metric": _metric(share["metric"]), "at_least": parse_share(share["share"]), "suite": share["suite"]}


def _metric(word: str) -> str:
    if word.lower() not in list(Metric):
        close = difflib.get_close_matches(word.lower(), list(Metric), 1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        raise ValueError(f"expected one of the metrics {', '.join(Metric)}{hint}")
    return word.lower()
