"""What is reported beside speed: acceptance of drafts, cache hits, memory, preemptions, failures, cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from setpoint.diagnosis.observation import Observation
from setpoint.experiments.endpoint import output_tokens_per_s
from setpoint.records.record import RunRecord
from setpoint.units import format_bytes, format_number, format_share


@dataclass(frozen=True, slots=True)
class Beside:
    """One figure of both arms.

    Attributes:
        name: As printed.
        a: Mean over the runs of the first arm that have it; None: none does.
        b: Of the second.
        unit: ``share``, ``bytes``, ``per_run`` or a currency a million output tokens.
    """

    name: str
    a: float | None
    b: float | None
    unit: str

    def shown(self, value: float | None) -> str:
        """A figure as printed."""
        if value is None:
            return "unknown"
        if self.unit == "share":
            return format_share(value)
        return format_bytes(value) if self.unit == "bytes" else format_number(value)


def beside_speed(a: Sequence[RunRecord], b: Sequence[RunRecord], price_per_hour: float | None = None) -> list[Beside]:
    """All such figures.

    Args:
        a: Runs of the first arm.
        b: Of the second.
        price_per_hour: Of the service, the same in both arms; None leaves cost unknown.

    Raises:
        RecordError: a record cannot be read.
    """
    arms = [[(r, Observation.from_record(r)) for r in arm] for arm in (a, b)]

    def row(name: str, unit: str, of: Callable[[RunRecord, Observation], float | None]) -> Beside:
        return Beside(name, _mean([of(*x) for x in arms[0]]), _mean([of(*x) for x in arms[1]]), unit)

    return [
        row("accepted of drafted tokens", "share", lambda record, _: _acceptance(record)),
        row("prompt tokens from the cache", "share", lambda _, o: _cached(o)),
        row("peak memory of the engine", "bytes", lambda _, o: o.peak("engine_memory")),
        row("peak share of the KV cache in use", "share", lambda _, o: o.peak("kv_usage")),
        row("preemptions a run", "per_run", lambda _, o: _growth(o, "preemptions")),
        row("unanswered requests", "share", lambda _, o: float(o.table.failed.mean()) if len(o.table) else None),
        row("cost of a million output tokens", "cost", lambda _, o: _cost(o, price_per_hour)),
    ]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None and np.isfinite(v)]
    return float(np.mean(known)) if known else None


def _acceptance(record: RunRecord) -> float | None:
    frame = record.exchanges(["warmup", "draft_tokens", "accepted_tokens"]).filter(
        ~pl.col("warmup") & (pl.col("draft_tokens") > 0)
    )
    drafted = frame["draft_tokens"].sum()
    return float(frame["accepted_tokens"].sum()) / float(drafted) if drafted else None


def _cached(observation: Observation) -> float | None:
    table = observation.table
    known = table.answered & ~np.isnan(table.cached_tokens) & ~np.isnan(table.prompt_tokens)
    prompt = float(table.prompt_tokens[known].sum())
    return float(table.cached_tokens[known].sum()) / prompt if prompt else None


def _growth(observation: Observation, name: str) -> float | None:
    found = observation.growth(name)
    return None if found is None else found[0]


def _cost(observation: Observation, price_per_hour: float | None) -> float | None:
    speed = output_tokens_per_s(observation.table)
    if price_per_hour is None or not np.isfinite(speed) or speed <= 0:
        return None
    return price_per_hour / 3600 / speed * 1e6
