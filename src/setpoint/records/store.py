"""The folder of all runs: create, list, open."""

import re
import secrets
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from setpoint.clock import utc_now
from setpoint.errors import RecordError, UsageError
from setpoint.records.files import read_bytes
from setpoint.records.journal import cannot_write
from setpoint.records.meta import SCHEMA_VERSION, RunMeta, Series, Status, check_version, damaged
from setpoint.records.record import GONE, META, RunRecord, being_written
from setpoint.records.writer import RunWriter

_ID = re.compile(r"^(\d{8}-\d{6})-.+-[0-9a-f]{6}$")


class _Promise(msgspec.Struct):
    promise: str = ""
    state: str = ""


class _Head(msgspec.Struct):
    """The part of ``run.json`` that a list needs; decoding skips the rest."""

    id: str
    created: str
    card_name: str
    status: Status
    reason: str | None = None
    series: Series | None = None
    verdicts: list[_Promise] = []


class RunListing(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a list of runs.

    Attributes:
        id: Name of the run.
        path: Its folder.
        created: UTC, ISO 8601; empty when ``run.json`` is unreadable.
        card_name: Name of the card; empty likewise.
        status: What became of it; None likewise.
        reason: Why it is incomplete.
        series: The search or sweep that it is a step of.
        verdicts: (promise, state) pairs.
        error: Why ``run.json`` cannot be read; None when it can.
    """

    id: str
    path: Path
    created: str = ""
    card_name: str = ""
    status: Status | None = None
    reason: str | None = None
    series: Series | None = None
    verdicts: tuple[tuple[str, str], ...] = ()
    error: str | None = None


class RunStore:
    """All runs below one folder, usually ``.setpoint/runs``.

    Args:
        root: The folder; created with the first run.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def create(self, card_name: str, *, at: datetime | None = None) -> RunWriter:
        """Begin a run in a folder of its own; safe beside other processes that do the same.

        Args:
            card_name: Name of the card; its folder-safe form becomes part of the id.
            at: Wall-clock time to name the run after; now by default.

        Raises:
            RecordError: The folder cannot be written.
        """
        now = at or utc_now()
        slug = re.sub(r"[^a-z0-9]+", "-", card_name.lower()).strip("-")[:48].strip("-") or "run"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            while True:
                run_id = f"{now:%Y%m%d-%H%M%S}-{slug}-{secrets.token_hex(3)}"
                try:
                    (self.root / run_id).mkdir()
                    break
                except FileExistsError:
                    if not (self.root / run_id).is_dir():
                        raise
        except OSError as e:
            raise cannot_write(self.root, e) from e
        meta = RunMeta(id=run_id, created=now.isoformat(timespec="microseconds"), card_name=card_name)
        return RunWriter(self.root / run_id, meta)

    def ids(self) -> list[str]:
        """Names of all run folders, newest second first. Reads no file."""
        if not self.root.is_dir():
            return []
        return sorted((p.name for p in self.root.iterdir() if _ID.match(p.name)), reverse=True)

    def list(self) -> list[RunListing]:
        """All runs, newest first; unreadable ones are listed with the reason."""
        return sorted(self._listings(), key=lambda run: (run.id[:15], run.created), reverse=True)

    def _listings(self) -> Iterator[RunListing]:
        decoder = msgspec.json.Decoder(_Head)
        for run_id in self.ids():
            path = self.root / run_id
            try:
                yield _listing(path, decoder)
            except RecordError as e:
                yield RunListing(id=run_id, path=path, error=str(e))

    def open(self, ref: str | Path) -> RunRecord:
        """Open a run by full id, by a unique beginning or end of it, by path, or as ``latest``.

        Raises:
            UsageError: No run, or more than one, is meant.
            RecordError: Its ``run.json`` cannot be read.
        """
        path = Path(ref)
        if path.name == META:
            path = path.parent
        if (path / META).is_file():
            return RunRecord(path)
        word = str(ref)
        ids = self.ids()
        if word == "latest":
            return RunRecord(self.root / self._latest(ids))
        found = [i for i in ids if i == word] or [i for i in ids if i.startswith(word) or i.endswith(word)]
        if not word or not found:
            raise UsageError(
                f"no run {word!r} in {self.root} ({len(ids)} runs there).",
                fix="Give an id, a unique beginning or end of one, a path, or latest; `setpoint runs` lists them.",
            )
        if len(found) > 1:
            some = ", ".join(found[:5]) + (", …" if len(found) > 5 else "")
            raise UsageError(f"{word!r} is not unique: {some}.", fix="Give more of the id.")
        return RunRecord(self.root / found[0])

    def recover(self, ref: str | Path) -> RunRecord:
        """Close a run whose writer died: its journals become Parquet, and it is marked incomplete.

        A run that was closed, and one that is still being written, are returned as they are.

        Raises:
            UsageError: As in ``open``.
            RecordError: It cannot be read or written.
        """
        record = self.open(ref)
        meta = record.meta
        if meta.reason != GONE or being_written(record.path):
            return record
        return RunWriter(record.path, msgspec.structs.replace(meta, status=Status.RUNNING, reason=None)).abort(GONE)

    def _latest(self, ids: Sequence[str]) -> str:
        """The newest run; runs begun in the same second are told apart by ``run.json``."""
        if not ids:
            raise UsageError(f"no run in {self.root} yet.", fix="`setpoint bench` or `setpoint assess` makes one.")
        same_second = [i for i in ids if i[:15] == ids[0][:15]]
        if len(same_second) == 1:
            return ids[0]
        decoder = msgspec.json.Decoder(_Head)

        def created(run_id: str) -> str:
            try:
                return _listing(self.root / run_id, decoder).created
            except RecordError:
                return ""

        return max(same_second, key=created)


def _listing(path: Path, decoder: "msgspec.json.Decoder[_Head]") -> RunListing:
    content = read_bytes(path / META)
    try:
        head = decoder.decode(content)
    except msgspec.DecodeError as e:
        check_version(path / META, content)
        raise damaged(path / META, e) from e
    if f'"schema_version": {SCHEMA_VERSION},'.encode() not in content[:64]:
        check_version(path / META, content)
    gone = head.status is Status.RUNNING and not being_written(path)
    return RunListing(
        id=head.id,
        path=path,
        created=head.created,
        card_name=head.card_name,
        status=Status.INCOMPLETE if gone else head.status,
        reason=GONE if gone else head.reason,
        series=head.series,
        verdicts=tuple((v.promise, v.state) for v in head.verdicts),
    )
