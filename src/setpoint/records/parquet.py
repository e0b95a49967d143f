"""Rows to Parquet and back, in batches: what is in memory at once never grows with the run.

Column names and meanings are those of ``Exchange`` and ``SignalRow``; ``docs/records.md`` lists them for people
who query the files.
"""

import os
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import polars as pl
from polars.io.plugins import register_io_source

from setpoint.errors import RecordError
from setpoint.records.exchange import Exchange
from setpoint.records.files import replace_file
from setpoint.records.journal import cannot_write
from setpoint.records.quality import DistributionRow, QualityRow
from setpoint.records.signal import SignalRow

BATCH_ROWS = 4096
_ROW_GROUP_ROWS = 16_384

_EXCHANGE_COLUMNS: dict[str, pl.DataType | type[pl.DataType]] = {
    "index": pl.Int64,
    "session": pl.Int64,
    "turn": pl.Int64,
    "warmup": pl.Boolean,
    "worker": pl.Int32,
    "scheduled_s": pl.Float64,
    "started_s": pl.Float64,
    "connected_s": pl.Float64,
    "sent_s": pl.Float64,
    "headers_s": pl.Float64,
    "first_token_s": pl.Float64,
    "first_visible_s": pl.Float64,
    "last_token_s": pl.Float64,
    "done_s": pl.Float64,
    "chunk_s": pl.List(pl.Float64),
    "chunk_tokens": pl.List(pl.Int32),
    "chunk_kinds": pl.String,
    "outcome": pl.String,
    "status": pl.Int32,
    "finish_reason": pl.String,
    "error": pl.String,
    "retry_after_s": pl.Float64,
    "planned_prompt_tokens": pl.Int64,
    "planned_output_tokens": pl.Int64,
    "prompt_tokens": pl.Int64,
    "completion_tokens": pl.Int64,
    "cached_tokens": pl.Int64,
    "reasoning_tokens": pl.Int64,
    "tokens_source": pl.String,
    "visible_chars": pl.Int64,
    "reasoning_chars": pl.Int64,
    "tool_calls": pl.Int64,
    "server_prefill_s": pl.Float64,
    "server_decode_s": pl.Float64,
    "draft_tokens": pl.Int64,
    "accepted_tokens": pl.Int64,
    "reused_connection": pl.Boolean,
    "within": pl.String,
}
EXCHANGE_SCHEMA = pl.Schema(_EXCHANGE_COLUMNS)
SIGNAL_SCHEMA = pl.Schema(
    {
        "time_s": pl.Float64,
        "signal": pl.String,
        "value": pl.Float64,
        "state": pl.String,
        "source": pl.String,
    }
)
QUALITY_SCHEMA = pl.Schema(
    {
        "suite": pl.String,
        "suite_digest": pl.String,
        "required_coverage": pl.Float64,
        "task": pl.String,
        "family": pl.String,
        "epoch": pl.Int32,
        "grader": pl.String,
        "score": pl.Float64,
        "blame": pl.String,
        "reason": pl.String,
        "outcome": pl.String,
        "started_s": pl.Float64,
        "first_visible_s": pl.Float64,
        "done_s": pl.Float64,
        "completion_tokens": pl.Int64,
        "digest": pl.String,
        "under_load": pl.Boolean,
    }
)
DISTRIBUTION_SCHEMA = pl.Schema(
    {
        "text": pl.String,
        "position": pl.Int32,
        "repeat": pl.Int32,
        "rank": pl.Int32,
        "token": pl.String,
        "logprob": pl.Float64,
    }
)

Row = TypeVar("Row", bound=msgspec.Struct)


def frame_of(rows: Iterable[msgspec.Struct], schema: pl.Schema) -> pl.DataFrame:
    """One frame from rows that have the schema's columns as attributes."""
    rows = list(rows)
    return pl.DataFrame({name: [getattr(row, name) for row in rows] for name in schema}, schema=schema)


def frames_of(rows: Iterable[msgspec.Struct], schema: pl.Schema, batch: int) -> Iterator[pl.DataFrame]:
    """Frames of at most ``batch`` rows, in order; none when there are no rows."""
    rows = iter(rows)
    while part := list(islice(rows, batch)):
        yield frame_of(part, schema)


def write_parquet(path: Path, rows: Iterable[msgspec.Struct], schema: pl.Schema) -> int:
    """Stream rows into a new Parquet file that replaces ``path`` in one step.

    Returns:
        The number of rows written.

    Raises:
        RecordError: The file system refused; ``path`` is as before.
    """
    written = 0

    # The signature is what register_io_source calls; a sink asks for no projection, predicate or slice.
    def batches(
        _columns: list[str] | None, _predicate: pl.Expr | None, _rows: int | None, _batch: int | None
    ) -> Iterator[pl.DataFrame]:
        nonlocal written
        for frame in frames_of(rows, schema, BATCH_ROWS):
            written += frame.height
            yield frame

    def fill(temporary: Path) -> None:
        frame = register_io_source(batches, schema=schema)
        frame.sink_parquet(temporary, compression="zstd", row_group_size=_ROW_GROUP_ROWS, engine="streaming")

    try:
        replace_file(path, fill)
    except pl.exceptions.PolarsError as e:
        # Polars reports what the system said as text only.
        number = re.search(r"os error (\d+)", str(e))
        cause = OSError(int(number[1]), os.strerror(int(number[1]))) if number else OSError(_first_line(e))
        raise cannot_write(path, cause) from e
    return written


def read_parquet(path: Path, schema: pl.Schema, columns: list[str] | None = None) -> pl.DataFrame:
    """A whole Parquet file, or some columns of it; columns that an older version did not write are null.

    Raises:
        RecordError: It cannot be read.
    """
    return _collect(path, scan(path, schema).select(columns or list(schema)))


def read_parquet_batches(
    path: Path, schema: pl.Schema, batch: int, columns: list[str] | None = None
) -> Iterator[pl.DataFrame]:
    """A Parquet file in frames of at most ``batch`` rows.

    Raises:
        RecordError: It cannot be read.
    """
    lazy = scan(path, schema).select(columns or list(schema))
    total = _collect(path, lazy.select(pl.len())).item()
    for start in range(0, total, batch):
        yield _collect(path, lazy.slice(start, batch))


def scan(path: Path, schema: pl.Schema) -> pl.LazyFrame:
    """A lazy frame over a Parquet file with exactly the columns of ``schema``.

    Raises:
        RecordError: It cannot be read.
    """
    try:
        lazy = pl.scan_parquet(path)
        present = set(lazy.collect_schema().names())
    except (OSError, pl.exceptions.PolarsError) as e:
        raise _unreadable(path, e) from e
    return lazy.select(
        pl.col(name) if name in present else pl.lit(None, dtype=kind).alias(name) for name, kind in schema.items()
    )


def exchanges_of(frame: pl.DataFrame) -> list[Exchange]:
    """The rows of a frame with all exchange columns; nulls of a column that an older version lacks become defaults."""
    rows = frame.to_dicts()
    for name in _DEFAULTED:
        if frame[name].null_count() == frame.height:
            for row in rows:
                del row[name]
    return msgspec.convert(rows, list[Exchange])


def empty_frame(schema: pl.Schema) -> pl.DataFrame:
    """No rows."""
    return pl.DataFrame(schema=schema)


def struct_names(kind: type[Any]) -> tuple[str, ...]:
    """Field names of a row type, in order."""
    return tuple(field.name for field in msgspec.structs.fields(kind))


def _collect(path: Path, lazy: pl.LazyFrame) -> pl.DataFrame:
    try:
        return lazy.collect()
    except (OSError, pl.exceptions.PolarsError) as e:
        raise _unreadable(path, e) from e


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _unreadable(path: Path, error: Exception) -> RecordError:
    return RecordError(f"cannot read {path}: {_first_line(error)}.", fix="Restore it from a copy, or delete the run.")


_DEFAULTED = tuple(f.name for f in msgspec.structs.fields(Exchange) if f.default is not msgspec.NODEFAULT)
assert tuple(EXCHANGE_SCHEMA) == struct_names(Exchange)
assert tuple(SIGNAL_SCHEMA) == struct_names(SignalRow)
assert tuple(QUALITY_SCHEMA) == struct_names(QualityRow)
assert tuple(DISTRIBUTION_SCHEMA) == struct_names(DistributionRow)
