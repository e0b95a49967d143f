"""One run as evidence: its exchanges as columns, its signals, and what it says about client and engine."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from setpoint.diagnosis.concurrency import Concurrency
from setpoint.diagnosis.standstill import Span, standstills
from setpoint.metrics.table import ExchangeTable, Floats, Mask
from setpoint.protocol.judgement import CUT_SHORT
from setpoint.protocol.wire import CONTEXT_FULL
from setpoint.records.record import RunRecord
from setpoint.records.signal import SignalState
from setpoint.workload.card import Workload

BEFORE_S = 1.0  # signals are read from half a second before the first send
SLOT_FLAGS = ("max_num_seqs", "n_parallel", "max_running_requests", "max_batch_size", "slots")
PARALLEL_FLAGS = ("tensor_parallel_size", "tp_size", "tp")
CPU_ENGINES = ("llamacpp", "ollama")
NEVER_PREEMPT = ("llamacpp",)  # a full KV cache ends requests with an error, or refuses them (server-context.cpp)


@dataclass(frozen=True)
class Readings:
    """One signal over time.

    Attributes:
        times_s: On the run's clock, ascending.
        values: In the signal's base unit.
    """

    times_s: Floats
    values: Floats


@dataclass(frozen=True)
class Observation:
    """A run.

    Attributes:
        run: Its id.
        probe: Name of the probe that it was made for; None for a run under the card's own traffic.
        table: Its measured exchanges, in order of schedule.
        signals: Readings that have a value, by signal.
        pins: As recorded.
        card: As recorded; None where this version cannot read it.
        client: The client certificate; empty without one.
        cores: Logical cores of the client's machine; None when unknown.
        server_prefill_s: Prefill time by the server's own clock, one an exchange; NaN where it did not say.
        errors: Short reason of each exchange that failed, "" of the others; empty when they were not recorded.
        connect_s: What each new connection took, warm-up included; empty over TLS, whose handshake is part of it.
    """

    run: str
    probe: str | None
    table: ExchangeTable
    signals: Mapping[str, Readings]
    pins: Mapping[str, Any]
    card: Workload | None
    client: Mapping[str, Any]
    cores: int | None
    server_prefill_s: Floats
    errors: tuple[str, ...] = ()
    connect_s: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def from_record(cls, record: RunRecord) -> "Observation":
        """From a run's record.

        Raises:
            RecordError: it cannot be read.
        """
        meta = record.meta
        table = ExchangeTable.from_record(record).measured
        extra = record.exchanges([
            "index", "warmup", "server_prefill_s", "error", "started_s", "connected_s", "reused_connection",
        ])  # fmt: skip
        connect_s = np.zeros(0) if str(meta.target.get("base_url")).startswith("https") else _connects(extra)
        extra = extra.filter(~pl.col("warmup"))
        prefill = dict(zip(extra["index"].to_list(), extra["server_prefill_s"].to_list(), strict=True))
        errors = dict(zip(extra["index"].to_list(), extra["error"].to_list(), strict=True))
        try:
            card = Workload.model_validate(meta.card)
        except ValueError:
            card = None
        return cls(
            run=meta.id,
            probe=meta.pins.get("probe"),
            table=table,
            signals=_readings(record.signals()),
            pins=meta.pins,
            card=card,
            client=meta.client or {},
            cores=meta.environment.get("cores_logical"),
            server_prefill_s=np.array([_number(prefill.get(int(i))) for i in table.index], dtype=np.float64),
            errors=tuple(str(errors.get(int(i)) or "") for i in table.index),
            connect_s=connect_s,
        )

    # time

    @property
    def start_s(self) -> float:
        """First planned send; 0 without exchanges."""
        return float(self.table.scheduled_s.min()) if len(self.table) else 0.0

    @property
    def end_s(self) -> float:
        """End of the last exchange; 0 without exchanges."""
        return float(self.table.done_s.max()) if len(self.table) else 0.0

    @property
    def last_send_s(self) -> float:
        """Last planned send; 0 without exchanges."""
        return float(self.table.scheduled_s.max()) if len(self.table) else 0.0

    @property
    def rate_per_s(self) -> float | None:
        """Planned sends per second; None with fewer than two."""
        span_s = self.last_send_s - self.start_s
        return None if len(self.table) < 2 or span_s <= 0 else (len(self.table) - 1) / span_s

    # exchanges

    @cached_property
    def prompt_tokens(self) -> Floats:
        """Prompt tokens: as the server counted, else as planned."""
        counted = self.table.prompt_tokens
        return np.where(np.isnan(counted), self.table.planned_prompt_tokens.astype(np.float64), counted)

    @cached_property
    def uncached_tokens(self) -> Floats:
        """Prompt tokens that had to be computed, as far as the server says so."""
        return np.maximum(self.prompt_tokens - np.nan_to_num(self.table.cached_tokens), 0.0)

    @cached_property
    def wait_s(self) -> Floats:
        """From the last request byte to the first token of any kind; NaN without one."""
        return self.table.first_token_s - self.table.sent_s

    @cached_property
    def gap_ends_s(self) -> Floats:
        """When each visible chunk but the first of its answer arrived, in no order."""
        table = self.table
        position = np.arange(int(table.gaps.sum())) - np.repeat(np.cumsum(table.gaps) - table.gaps, table.gaps)
        gaps = table.gap_s[np.repeat(table.gap_at, table.gaps) + position].astype(np.float64)
        total = np.cumsum(gaps)
        before = np.concatenate([[0.0], total])[np.cumsum(table.gaps) - table.gaps]
        return np.asarray(np.repeat(table.first_visible_s - before, table.gaps) + total)

    @cached_property
    def in_flight(self) -> Concurrency:
        """Exchanges sent and not done."""
        return Concurrency(self.table.sent_s, self.table.done_s)

    @cached_property
    def streams(self) -> Concurrency:
        """Answers that stream."""
        return Concurrency(self.table.first_token_s, self.table.last_token_s)

    @cached_property
    def alone(self) -> Mask:
        """Exchanges whose wait no other exchange overlapped."""
        return np.asarray(self.in_flight.touching(self.table.sent_s, self.table.first_token_s) == 1, dtype=np.bool_)

    @cached_property
    def cache_full(self) -> Mask:
        """Exchanges that failed because the engine's KV cache was full, by what the server said."""
        found = [CONTEXT_FULL in error for error in self.errors] or [False] * len(self.table)
        return self.table.failed & np.array(found, dtype=np.bool_)

    @cached_property
    def cut_short(self) -> Mask:
        """Exchanges whose answer the server cut before the length that was asked for."""
        found = [CUT_SHORT in error for error in self.errors] or [False] * len(self.table)
        return self.table.failed & np.array(found, dtype=np.bool_)

    @cached_property
    def standstills(self) -> list[Span]:
        """Spans in which the engine stood still, as far as its CPU time was read."""
        work = [self.signals.get(name) for name in ("engine_cpu_time", "engine_cpu_wait")]
        series = [(w.times_s, w.values) for w in work if w is not None]
        return standstills(self.table, self.gap_ends_s, series if len(series) == len(work) else [])

    # signals

    def mean(self, name: str) -> float | None:
        """Mean of a gauge while requests were sent; None without readings."""
        values = self._within(name, self.start_s, max(self.last_send_s, self.start_s + 1.0))
        return float(values.mean()) if len(values) else None

    def peak(self, name: str) -> float | None:
        """Highest reading of a gauge; None without readings."""
        values = self._within(name, self.start_s, self.end_s)
        return float(values.max()) if len(values) else None

    def growth(self, name: str) -> tuple[float, float] | None:
        """How much a counter grew, and over how many seconds; None with fewer than two readings."""
        found = self.signals.get(name)
        if found is None:
            return None
        inside = (found.times_s >= self.start_s - BEFORE_S) & (found.times_s <= self.end_s + BEFORE_S)
        times, values = found.times_s[inside], found.values[inside]
        if len(values) < 2 or times[-1] <= times[0]:
            return None
        return float(np.maximum(np.diff(values), 0.0).sum()), float(times[-1] - times[0])

    def _within(self, name: str, from_s: float, to_s: float) -> Floats:
        found = self.signals.get(name)
        if found is None:
            return np.zeros(0)
        return found.values[(found.times_s >= from_s) & (found.times_s <= to_s)]

    # the engine, as pinned

    @property
    def slots(self) -> int | None:
        """Requests that the engine may run at once; None when no flag says so."""
        return self._flag(SLOT_FLAGS)

    @property
    def tensor_parallel(self) -> int | None:
        """Accelerators that share each layer; None when no flag says so."""
        return self._flag(PARALLEL_FLAGS)

    @property
    def slot_tokens(self) -> tuple[int, str] | None:
        """Tokens of context that one request may have, and the setting that says so; None when none does.

        llama.cpp divides ``n_ctx`` among its slots unless they share it (``kv_unified``), and tells over HTTP what one
        slot has; vLLM and SGLang bound one request by itself.
        """
        reported = self.pins.get("reported") or {}
        for names in (("max_model_len",), ("context_length",)):
            bound = self._flag(names) or _whole(reported.get(names[0]))
            if bound is not None:
                return bound, f"{names[0]}={bound}"
        own = _whole(reported.get("n_ctx"))
        if own is not None:
            return own, f"n_ctx={own} a slot"
        whole, slots = self._flag(("n_ctx",)), self._flag(("n_parallel",))
        if whole is None or slots is None:
            return None
        shared = str((self.pins.get("engine_flags") or {}).get("kv_unified", "")).lower() in ("true", "1")
        if shared:
            return whole, f"n_ctx={whole}, shared by n_parallel={slots} slots"
        return whole // max(slots, 1), f"n_ctx={whole} divided among n_parallel={slots} slots"

    @property
    def computes_on_cpu(self) -> bool:
        """Whether the engine's CPU time is its model's, so that it says nothing about its front end."""
        version = str(self.pins.get("engine_version") or "")
        return self.pins.get("engine") in CPU_ENGINES or "cpu" in version

    @property
    def never_preempts(self) -> bool:
        """Whether the engine is one that takes no running request's place in the KV cache away."""
        return self.pins.get("engine") in NEVER_PREEMPT

    def _flag(self, names: tuple[str, ...]) -> int | None:
        flags = self.pins.get("engine_flags") or {}
        for name, value in flags.items():
            if str(name).replace("-", "_") in names and (found := _whole(value)) is not None:
                return found
        return None


def _whole(value: object) -> int | None:
    return int(str(value)) if str(value).isdigit() else None


def _connects(rows: pl.DataFrame) -> Floats:
    """Seconds that each new connection took."""
    new = rows.filter(~pl.col("reused_connection") & pl.col("connected_s").is_not_null())
    took = (new["connected_s"] - new["started_s"]).to_numpy().astype(np.float64)
    return np.asarray(took[took > 0])


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _readings(frame: pl.DataFrame) -> dict[str, Readings]:
    good = frame.filter((pl.col("state") == SignalState.OK.value) & pl.col("value").is_not_null()).sort("time_s")
    return {
        str(name): Readings(part["time_s"].to_numpy().astype(np.float64), part["value"].to_numpy().astype(np.float64))
        for (name,), part in good.group_by("signal")
    }
