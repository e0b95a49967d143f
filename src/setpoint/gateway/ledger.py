"""Usage and access log out of the workers' journals: every line counted once, whatever crashes when.

How far each journal has been read stands in the same transaction as the sums that were made of it. The access log is
written before that transaction and cut back to the length that the last one recorded when a ledger opens.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import fields

from setpoint.errors import SetpointError, UsageError
from setpoint.gateway.identity import keyed_mark, secret_of
from setpoint.gateway.journal import Ended, Line, Opened, read_line, read_lines, written

BATCH_BYTES = 4 * 2**20
BLOCKS_KNOWN = 2**14  # a session's next prompt begins with the blocks of the last one
_encode = msgspec.json.Encoder().encode
_SCHEMA = """
CREATE TABLE IF NOT EXISTS progress (gateway TEXT, file TEXT, done BIGINT NOT NULL, PRIMARY KEY (gateway, file));
CREATE TABLE IF NOT EXISTS opened (
    gateway TEXT, id TEXT, file TEXT NOT NULL, line TEXT NOT NULL, PRIMARY KEY (gateway, id)
);
CREATE TABLE IF NOT EXISTS usage (
    hour BIGINT, tenant TEXT, key TEXT, model TEXT, outcome TEXT,
    requests BIGINT NOT NULL, prompt_tokens BIGINT NOT NULL, completion_tokens BIGINT NOT NULL,
    cached_tokens BIGINT NOT NULL, estimated BIGINT NOT NULL, PRIMARY KEY (hour, tenant, key, model, outcome)
)
"""
_ADD = """
INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (hour, tenant, key, model, outcome) DO UPDATE SET
    requests = usage.requests + excluded.requests,
    prompt_tokens = usage.prompt_tokens + excluded.prompt_tokens,
    completion_tokens = usage.completion_tokens + excluded.completion_tokens,
    cached_tokens = usage.cached_tokens + excluded.cached_tokens,
    estimated = usage.estimated + excluded.estimated
"""
_ACCESS = "\0access"  # the progress entry of the access log


@dataclass(frozen=True, slots=True)
class UsageRow:
    """Sums of one group.

    Attributes:
        group: Values of the columns grouped by.
        requests: Exchanges, whatever became of them.
        prompt_tokens: Of which ``cached_tokens`` came from a cache.
        completion_tokens: Generated.
        cached_tokens: See above.
        estimated: Exchanges whose engine did not count.
    """

    group: tuple[str, ...]
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    estimated: int


class _Database(Protocol):
    def execute(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a cursor of either library
        """Runs one statement."""
        ...

    def commit(self) -> None:
        """Ends the transaction."""
        ...

    def rollback(self) -> None:
        """Undoes the transaction."""
        ...

    def close(self) -> None:
        """Ends."""
        ...


class _Postgres:
    """psycopg with SQLite's parameter marks."""

    def __init__(self, url: str) -> None:
        try:
            import psycopg  # noqa: PLC0415 - an extra
        except ImportError:
            raise UsageError("Usage in PostgreSQL needs psycopg.", fix="Install setpoint[gateway].") from None
        try:
            self._connection = psycopg.connect(url, connect_timeout=5)
        except psycopg.Error as error:
            raise SetpointError(f"PostgreSQL cannot be used: {type(error).__name__}.") from None
        self.commit, self.rollback, self.close = (
            self._connection.commit, self._connection.rollback, self._connection.close,
        )  # fmt: skip

    def execute(self, sql: str, parameters: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - a cursor
        return self._connection.execute(sql.replace("?", "%s"), parameters)


class Ledger:
    """The accounts of one gateway.

    Args:
        folder: The gateway's state.
        url: PostgreSQL; SQLite in the folder unless given.
        access_log: File that gets a line for each exchange.
        gateway: Name of this gateway where several write to one database.

    Raises:
        SetpointError: the database cannot be used.
    """

    def __init__(
        self, folder: Path, *, url: str | None = None, access_log: Path | None = None, gateway: str = ""
    ) -> None:
        self._lock = threading.Lock()  # journals are read in a thread, sums are asked for in the event loop
        self._journals = folder / "run" / "journal"
        self._access_log = access_log
        self._gateway = gateway
        self._mark = lru_cache(maxsize=BLOCKS_KNOWN)(partial(keyed_mark, secret_of(folder)))
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._db: _Database
        if url is not None:
            self._db = _Postgres(url)
        else:
            self._db = sqlite3.connect(folder / "usage.db", timeout=10, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
        for statement in _SCHEMA.split(";"):
            self._db.execute(statement)
        self._db.commit()
        self._cut_back()

    def _cut_back(self) -> None:
        """Drops lines of the access log that the last crash kept from being recorded."""
        if self._access_log is None:
            return
        size = self._access_log.stat().st_size if self._access_log.exists() else 0
        known = self._done(_ACCESS)
        if known is None or size < known:  # the first time, or somebody has moved the file away
            self._set_done(_ACCESS, size)
            self._db.commit()
        elif size > known:
            os.truncate(self._access_log, known)

    def _done(self, file: str) -> int | None:
        row = self._db.execute(
            "SELECT done FROM progress WHERE gateway = ? AND file = ?", (self._gateway, file)
        ).fetchone()
        return None if row is None else int(row[0])

    def _set_done(self, file: str, done: int) -> None:
        self._db.execute(
            "INSERT INTO progress VALUES (?, ?, ?) ON CONFLICT (gateway, file) DO UPDATE SET done = excluded.done",
            (self._gateway, file, done),
        )

    def ingest(self, alive: set[int], observe: Callable[[Ended], None] = lambda _: None) -> int:
        """Reads what is new; returns the number of exchanges that ended.

        Args:
            alive: Process ids of workers that still write. What others left open is accounted as lost.
            observe: Told each exchange once it is on record.
        """
        with self._lock:
            return self._ingest(alive, observe)

    def _ingest(self, alive: set[int], observe: Callable[[Ended], None]) -> int:
        count = 0
        for path in sorted(self._journals.glob("*.jsonl")):
            try:
                count += self._ingest_file(path, closed=int(path.stem.split("-")[2]) not in alive, observe=observe)
            except Exception:
                self._db.rollback()
                raise
        return count

    def _ingest_file(self, path: Path, *, closed: bool, observe: Callable[[Ended], None]) -> int:
        count, whole = 0, False
        while not whole:
            done = self._done(path.name) or 0
            with path.open("rb") as file:
                file.seek(done)
                part = file.read(BATCH_BYTES)
            data = part[: part.rfind(b"\n") + 1] if closed else written(part)
            whole = len(part) < BATCH_BYTES or (not closed and 0 in part)
            if not whole and not data:
                data = part  # what a machine's crash has left
            opened, ended = _lines(data)
            if whole and closed:
                ended += self._lost(path.name, opened, {line.id for line in ended})
                opened = {}
            if data or ended:
                self._record(path.name, done + len(data), opened, ended)
                self._db.commit()
            for line in ended:
                observe(line)
            count += len(ended)
        if closed:
            self._db.execute("DELETE FROM progress WHERE gateway = ? AND file = ?", (self._gateway, path.name))
            path.unlink()  # before the commit: a crash between the two leaves an entry without a file, no more
            self._db.commit()
        return count

    def _record(self, file: str, done: int, opened: dict[str, Opened], ended: list[Ended]) -> None:
        left = {str(row[0]) for row in self._db.execute("SELECT id FROM opened WHERE gateway = ?", (self._gateway,))}
        for number in left.intersection(line.id for line in ended) if left else ():
            self._db.execute("DELETE FROM opened WHERE gateway = ? AND id = ?", (self._gateway, number))
        for line_opened in opened.values():
            text = msgspec.json.encode(line_opened).decode()
            self._db.execute(
                "INSERT INTO opened VALUES (?, ?, ?, ?) ON CONFLICT (gateway, id) DO NOTHING",
                (self._gateway, line_opened.id, file, text),
            )
        for row in _sums(ended):
            self._db.execute(_ADD, row)
        self._set_done(file, done)
        self._log(ended)

    def _lost(self, file: str, opened: dict[str, Opened], ended: set[str]) -> list[Ended]:
        """Exchanges that a killed worker had under way: their prompt was computed, what more nobody knows."""
        rows = self._db.execute(
            "SELECT line FROM opened WHERE gateway = ? AND file = ?", (self._gateway, file)
        ).fetchall()
        lines = [read_line(str(row[0])) for row in rows] + list(opened.values())
        left = {line.id: line for line in lines if isinstance(line, Opened) and line.id not in ended}
        return [_as_lost(line) for line in left.values()]

    def _log(self, ended: list[Ended]) -> None:
        if self._access_log is None or not ended:
            return
        with self._access_log.open("ab") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(b"".join(access_line(line, self._mark) for line in ended))
            file.flush()
            size = file.tell()
        self._set_done(_ACCESS, size)

    def usage(self, *, by: tuple[str, ...] = ("tenant", "model"), since_s: float = 0.0) -> list[UsageRow]:
        """Sums since a Unix time (in whole hours), grouped by columns among hour, tenant, key, model and outcome."""
        assert set(by) <= {"hour", "tenant", "key", "model", "outcome"}
        columns = ", ".join(by)
        sums = "sum(requests), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens), sum(estimated)"
        sql = f"SELECT {columns}, {sums} FROM usage WHERE hour >= ? GROUP BY {columns} ORDER BY {columns}"  # noqa: S608 - names from a fixed set
        with self._lock:
            rows = self._db.execute(sql, (int(since_s // 3600),)).fetchall()
            self._db.rollback()
        n = len(by)
        return [UsageRow(tuple(str(v) for v in r[:n]), *(int(v) for v in r[n:])) for r in rows]

    def close(self) -> None:
        """Ends."""
        self._db.close()


def _lines(data: bytes) -> tuple[dict[str, Opened], list[Ended]]:
    """Exchanges that only began in these lines, and those that ended. A damaged line was cut by a machine's crash."""
    opened: dict[str, Opened] = {}
    ended: list[Ended] = []
    for line in _decoded(data):
        if type(line) is Opened:
            opened[line.id] = line
        elif isinstance(line, Ended):
            opened.pop(line.id, None)
            ended.append(line)
    return opened, ended


def _decoded(data: bytes) -> list[Line]:
    with contextlib.suppress(msgspec.DecodeError):
        return read_lines(data)
    lines = []
    for text in data.splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            lines.append(read_line(text.strip(b"\0")))
    return lines


def _as_lost(line: Opened) -> Ended:
    return Ended(
        id=line.id, time=line.time, tenant=line.tenant, key=line.key, model=line.model, replica=line.replica,
        dialect=line.dialect, status=502, sent_status=200, outcome="error", reason="the gateway's process ended",
        prompt_tokens=line.prompt_tokens, completion_tokens=0, estimated=True,
        latency_s=max(0.0, time.time() - line.time),
    )  # fmt: skip


def _sums(ended: list[Ended]) -> Iterator[tuple[Any, ...]]:
    groups: dict[tuple[int, str, str, str, str], list[int]] = {}
    for line in ended:
        group = (int(line.time // 3600), line.tenant, line.key or "", line.model, line.outcome)
        sums = groups.get(group)
        if sums is None:
            sums = groups[group] = [0] * 5
        sums[0] += 1
        sums[1] += line.prompt_tokens
        sums[2] += line.completion_tokens
        sums[3] += line.cached_tokens or 0
        sums[4] += line.estimated
    for group, sums in groups.items():
        yield (*group, *sums)


_LEFT_OUT = ("itl", "itl_sum_s", "trace")
_ALWAYS = tuple(f.name for f in fields(Ended) if f.name not in _LEFT_OUT and f.default is not None)
_SOMETIMES = tuple(f.name for f in fields(Ended) if f.name not in _LEFT_OUT and f.default is None)
_values = attrgetter(*_ALWAYS, *_SOMETIMES)
_Access = msgspec.defstruct(
    "_Access", [*[(name, Any) for name in _ALWAYS], *[(name, Any, None) for name in _SOMETIMES]], omit_defaults=True
)


def access_line(line: Ended, mark: Callable[[str], str]) -> bytes:
    """A line as ``setpoint card from-trace`` reads it, its block hashes keyed by ``mark``."""
    said = _Access(*_values(line))
    if line.prefix_blocks is not None:
        said.prefix_blocks = [mark(str(block)) for block in line.prefix_blocks]  # type: ignore[attr-defined]
    return _encode(said) + b"\n"
