"""Writing a run: journals while it runs, Parquet when it is closed, readable at every moment between."""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from setpoint.clock import utc_now
from setpoint.errors import RecordError
from setpoint.records.exchange import Exchange
from setpoint.records.files import replace_bytes
from setpoint.records.journal import Journal, JournalReader, cannot_write
from setpoint.records.meta import RunMeta, Status, encode_meta
from setpoint.records.parquet import (
    DISTRIBUTION_SCHEMA,
    EXCHANGE_SCHEMA,
    QUALITY_SCHEMA,
    SIGNAL_SCHEMA,
    write_parquet,
)
from setpoint.records.quality import DistributionRow, QualityRow
from setpoint.records.record import (
    DISTRIBUTION_JOURNAL,
    DISTRIBUTIONS,
    EXCHANGES,
    LOCK,
    LOG,
    META,
    QUALITY,
    QUALITY_JOURNAL,
    SIGNAL_JOURNAL,
    SIGNALS,
    RunRecord,
    exchange_journal,
    exchange_journals,
)
from setpoint.records.redaction import redacted
from setpoint.records.signal import SignalRow


def open_journal(run: Path, worker: int) -> Journal[Exchange]:
    """The journal of one worker, for a worker process that knows only the run's folder.

    Raises:
        RecordError: It cannot be created.
    """
    return Journal(exchange_journal(run, worker))


class RunWriter:
    """Owns one run folder from creation to close. Used by one process; workers get a journal each.

    As a context manager it closes the run as incomplete when the block ends without ``finish``.

    Attributes:
        path: The run folder.
        meta: What ``run.json`` says now.
    """

    def __init__(self, path: Path, meta: RunMeta) -> None:
        self.path = path
        self.meta = meta
        self._journals: dict[int, Journal[Exchange]] = {}
        self._signals: Journal[SignalRow] | None = None
        self._quality: Journal[QualityRow] | None = None
        self._distributions: Journal[DistributionRow] | None = None
        self._lock, self._log = -1, -1
        try:
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._log = os.open(path / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._write_meta(meta)
        except OSError as e:
            self._close_files()
            raise cannot_write(path, e) from e
        except RecordError:
            self._close_files()
            raise

    @property
    def id(self) -> str:
        """Name of the run."""
        return self.meta.id

    @property
    def closed(self) -> bool:
        """Whether ``finish`` or ``abort`` has been called."""
        return self.meta.status is not Status.RUNNING

    def journal(self, worker: int) -> Journal[Exchange]:
        """The journal of one worker of this process; the same one when asked twice."""
        self._must_be_open()
        if worker not in self._journals:
            self._journals[worker] = open_journal(self.path, worker)
        return self._journals[worker]

    def signals(self, rows: Iterable[SignalRow]) -> None:
        """Append signal readings.

        Raises:
            RecordError: The file system refused.
        """
        self._must_be_open()
        if self._signals is None:
            self._signals = Journal(self.path / SIGNAL_JOURNAL)
        for row in rows:
            self._signals.append(row)

    def quality(self, rows: Iterable[QualityRow]) -> None:
        """Append graded answers.

        Raises:
            RecordError: The file system refused.
        """
        self._must_be_open()
        if self._quality is None:
            self._quality = Journal(self.path / QUALITY_JOURNAL)
        for row in rows:
            self._quality.append(row)

    def distributions(self, rows: Iterable[DistributionRow]) -> None:
        """Append token distributions.

        Raises:
            RecordError: The file system refused.
        """
        self._must_be_open()
        if self._distributions is None:
            self._distributions = Journal(self.path / DISTRIBUTION_JOURNAL)
        for row in rows:
            self._distributions.append(row)

    def log(self, event: str, **fields: object) -> None:
        """Append one event with the wall-clock time; credentials in its fields are redacted.

        The caller keeps prompts and answers out of the fields.

        Raises:
            RecordError: The file system refused, or a field is not JSON.
        """
        self._must_be_open()
        try:
            line = {"time": utc_now().isoformat(timespec="milliseconds"), "event": event}
            line |= redacted(msgspec.to_builtins(fields))
            os.write(self._log, msgspec.json.encode(line) + b"\n")
        except OSError as e:
            raise cannot_write(self.path / LOG, e) from e
        except TypeError as e:
            raise RecordError(f"log event {event}: {e}.") from e

    def update(self, meta: RunMeta | None = None, **changes: object) -> RunMeta:
        """Replace ``run.json`` in one step, by a whole ``RunMeta`` or by fields of it.

        Identity and status stay: only ``finish`` and ``abort`` change the status.

        Raises:
            RecordError: The file system refused; the old ``run.json`` stands.
        """
        self._must_be_open()
        return self._write_meta(self._merged(meta, changes))

    def finish(self, meta: RunMeta | None = None, **changes: object) -> RunRecord:
        """Close the run as complete: journals become Parquet, then ``run.json`` says so.

        Raises:
            RecordError: The file system refused; the run stays readable from its journals and is marked
                incomplete if that much can still be written.
        """
        return self._close(self._merged(meta, changes), Status.COMPLETE, None)

    def abort(self, reason: str, meta: RunMeta | None = None, **changes: object) -> RunRecord:
        """Close the run as incomplete, with the reason. Nothing that was finished is lost.

        Raises:
            RecordError: As in ``finish``.
        """
        return self._close(self._merged(meta, changes), Status.INCOMPLETE, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        if not self.closed:
            self.abort("ended early" if kind is None else f"ended by {kind.__name__}")

    def _must_be_open(self) -> None:
        if self.closed:
            raise RecordError(f"run {self.id} is closed ({self.meta.status}); nothing can be added to it.")

    def _merged(self, meta: RunMeta | None, changes: dict[str, object]) -> RunMeta:
        own = self.meta
        return msgspec.structs.replace(
            meta or own,
            **changes,
            id=own.id,
            created=own.created,
            status=own.status,
            reason=own.reason,
            schema_version=own.schema_version,
        )

    def _write_meta(self, meta: RunMeta) -> RunMeta:
        replace_bytes(self.path / META, encode_meta(meta))
        self.meta = meta
        return meta

    def _close(self, meta: RunMeta, status: Status, reason: str | None) -> RunRecord:
        self._must_be_open()
        try:
            self._convert()
            self._write_meta(msgspec.structs.replace(meta, status=status, reason=reason))
        except RecordError as e:
            why = e.message if reason is None else f"{reason}; then {e.message}"
            self.meta = msgspec.structs.replace(meta, status=Status.INCOMPLETE, reason=why)
            self._try_to_mark()
            raise
        finally:
            self._release()
        sheets = (SIGNAL_JOURNAL, QUALITY_JOURNAL, DISTRIBUTION_JOURNAL)
        for path in [*exchange_journals(self.path), *(self.path / name for name in sheets)]:
            path.unlink(missing_ok=True)
        return RunRecord(self.path)

    def _convert(self) -> None:
        for journal in self._journals.values():
            journal.close()
        for sheet in (self._signals, self._quality, self._distributions):
            if sheet is not None:
                sheet.close()
        readers = [JournalReader(path) for path in exchange_journals(self.path)]
        write_parquet(self.path / EXCHANGES, (row for r in readers for row in r.rows(Exchange)), EXCHANGE_SCHEMA)
        torn = sum(r.torn for r in readers)
        if torn:
            self.log("torn_entries", count=torn, lost_bytes=sum(r.lost_bytes for r in readers))
        journal_path = self.path / SIGNAL_JOURNAL
        signal_rows = JournalReader(journal_path).rows(SignalRow) if journal_path.exists() else iter(())
        write_parquet(self.path / SIGNALS, signal_rows, SIGNAL_SCHEMA)
        graded = self.path / QUALITY_JOURNAL
        if graded.exists():
            write_parquet(self.path / QUALITY, JournalReader(graded).rows(QualityRow), QUALITY_SCHEMA)
        taken = self.path / DISTRIBUTION_JOURNAL
        if taken.exists():
            write_parquet(self.path / DISTRIBUTIONS, JournalReader(taken).rows(DistributionRow), DISTRIBUTION_SCHEMA)

    def _try_to_mark(self) -> None:
        """Mark the run incomplete where the disk still takes a small file; a reader finds out by the lock else."""
        try:
            replace_bytes(self.path / META, encode_meta(self.meta))
        except RecordError:
            return

    def _release(self) -> None:
        (self.path / LOCK).unlink(missing_ok=True)
        self._close_files()

    def _close_files(self) -> None:
        for fd in (self._log, self._lock):
            if fd >= 0:
                os.close(fd)
