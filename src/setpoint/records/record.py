"""Reading a run, whatever state its writer left it in."""

import fcntl
import json
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from setpoint.errors import RecordError
from setpoint.records.exchange import Exchange
from setpoint.records.files import read_bytes
from setpoint.records.journal import JournalReader
from setpoint.records.meta import RunMeta, Status, read_meta
from setpoint.records.parquet import (
    BATCH_ROWS,
    DISTRIBUTION_SCHEMA,
    EXCHANGE_SCHEMA,
    QUALITY_SCHEMA,
    SIGNAL_SCHEMA,
    empty_frame,
    exchanges_of,
    frames_of,
    read_parquet,
    read_parquet_batches,
)
from setpoint.records.quality import DistributionRow, QualityRow
from setpoint.records.signal import SignalRow

META = "run.json"
EXCHANGES = "exchanges.parquet"
SIGNALS = "signals.parquet"
LOG = "log.jsonl"
LOCK = ".writing"
SIGNAL_JOURNAL = "signals.journal"
QUALITY = "quality.parquet"
QUALITY_JOURNAL = "quality.journal"
DISTRIBUTIONS = "distributions.parquet"
DISTRIBUTION_JOURNAL = "distributions.journal"
GONE = "the process that wrote it ended without closing it"


def exchange_journal(run: Path, worker: int) -> Path:
    """Where a worker process appends its exchanges."""
    return run / f"exchanges-{worker}.journal"


def exchange_journals(run: Path) -> list[Path]:
    """All exchange journals of a run, by worker."""
    return sorted(run.glob("exchanges-[0-9]*.journal"), key=lambda p: (len(p.name), p.name))


def being_written(run: Path) -> bool:
    """Whether a living process holds the run's lock. The kernel drops the lock when its holder dies."""
    try:
        fd = os.open(run / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


class RunRecord:
    """One run folder. Nothing is read before it is asked for, but for ``run.json``.

    Args:
        path: The run folder.

    Raises:
        RecordError: There is no readable ``run.json``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stored = read_meta(path / META)

    @cached_property
    def meta(self) -> RunMeta:
        """The run's facts. A run left ``running`` by a process that is gone reads as ``incomplete``."""
        stored = self._stored
        if stored.status is Status.RUNNING and not being_written(self.path):
            return msgspec.structs.replace(stored, status=Status.INCOMPLETE, reason=GONE)
        return stored

    @property
    def id(self) -> str:
        """Name of the run."""
        return self._stored.id

    @property
    def complete(self) -> bool:
        """Whether the run was closed as planned."""
        return self.meta.status is Status.COMPLETE

    @property
    def converted(self) -> bool:
        """Whether the exchanges are in Parquet; else they are read from the journals."""
        return (self.path / EXCHANGES).exists()

    def exchanges(self, columns: list[str] | None = None) -> pl.DataFrame:
        """All exchanges in order of ``index``, or some columns of them.

        A long run with long answers is large: leave out the ``chunk_*`` columns where they are not needed.

        Raises:
            RecordError: The rows cannot be read.
        """
        if self.converted:
            wanted = None if columns is None else list(dict.fromkeys([*columns, "index"]))
            frame = read_parquet(self.path / EXCHANGES, EXCHANGE_SCHEMA, wanted)
        else:
            frame = pl.concat([empty_frame(EXCHANGE_SCHEMA), *self.iter_frames()])
        frame = frame.sort("index", maintain_order=True)
        return frame if columns is None else frame.select(columns)

    def iter_frames(self, batch: int = BATCH_ROWS, columns: list[str] | None = None) -> Iterator[pl.DataFrame]:
        """Exchanges in frames of at most ``batch`` rows, in order of writing (not of ``index``).

        Raises:
            RecordError: The rows cannot be read.
        """
        if self.converted:
            yield from read_parquet_batches(self.path / EXCHANGES, EXCHANGE_SCHEMA, batch, columns)
            return
        for frame in frames_of(self._journaled(), EXCHANGE_SCHEMA, batch):
            yield frame if columns is None else frame.select(columns)

    def iter_exchanges(self, batch: int = BATCH_ROWS) -> Iterator[Exchange]:
        """Exchanges one by one in order of writing, with at most ``batch`` of them in memory.

        Raises:
            RecordError: The rows cannot be read.
        """
        if not self.converted:
            yield from self._journaled()
            return
        for frame in self.iter_frames(batch):
            yield from exchanges_of(frame)

    def _journaled(self) -> Iterator[Exchange]:
        for path in exchange_journals(self.path):
            yield from JournalReader(path).rows(Exchange)

    def torn_entries(self) -> int:
        """Entries at the ends of the journals that a crash left half written; 0 once converted."""
        torn = 0
        for path in [] if self.converted else exchange_journals(self.path):
            reader = JournalReader(path)
            for _ in reader.bodies():
                pass
            torn += reader.torn
        return torn

    def signals(self) -> pl.DataFrame:
        """Signal readings in order of time: ``time_s, signal, value, state, source``.

        Raises:
            RecordError: The rows cannot be read.
        """
        return self._sheet(SIGNALS, SIGNAL_JOURNAL, SignalRow, SIGNAL_SCHEMA).sort("time_s", maintain_order=True)

    def quality(self) -> pl.DataFrame:
        """Graded answers in order of grading (see ``QualityRow``); no rows when nothing was graded.

        Raises:
            RecordError: The rows cannot be read.
        """
        return self._sheet(QUALITY, QUALITY_JOURNAL, QualityRow, QUALITY_SCHEMA)

    def distributions(self) -> pl.DataFrame:
        """Token distributions after pinned texts (see ``DistributionRow``); no rows when none were taken.

        Raises:
            RecordError: The rows cannot be read.
        """
        return self._sheet(DISTRIBUTIONS, DISTRIBUTION_JOURNAL, DistributionRow, DISTRIBUTION_SCHEMA)

    def _sheet(self, file: str, journal_name: str, kind: type[msgspec.Struct], schema: pl.Schema) -> pl.DataFrame:
        """Rows of one kind: from Parquet, else from the journal, else none."""
        if (self.path / file).exists():
            return read_parquet(self.path / file, schema)
        journal = self.path / journal_name
        rows = JournalReader(journal).rows(kind) if journal.exists() else iter(())
        return pl.concat([empty_frame(schema), *frames_of(rows, schema, BATCH_ROWS)])

    def log(self) -> list[dict[str, Any]]:
        """Events in order of writing; a torn last line is left out.

        Raises:
            RecordError: A line other than the last is no JSON object.
        """
        path = self.path / LOG
        if not path.exists():
            return []
        lines = read_bytes(path).split(b"\n")
        events = []
        for number, line in enumerate(lines, 1):
            if not line:
                continue
            try:
                events.append(dict(json.loads(line)))
            except (ValueError, TypeError) as e:
                if number == len(lines):
                    break
                raise RecordError(f"{path}:{number}: found no JSON object: {e}.") from e
        return events
