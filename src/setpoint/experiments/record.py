"""The record of an experiment: ``.setpoint/experiments/<id>/experiment.json``, which leads to its runs."""

import re
import secrets
from pathlib import Path
from typing import Any

import msgspec

from setpoint.clock import utc_now
from setpoint.errors import RecordError, UsageError
from setpoint.experiments.agreement import Agreement
from setpoint.experiments.analysis import Analysis
from setpoint.experiments.beside import Beside
from setpoint.experiments.conclusion import Conclusion
from setpoint.quality.compare import Comparison
from setpoint.records.files import read_bytes, replace_bytes
from setpoint.records.journal import cannot_write

SCHEMA_VERSION = 1
FILE = "experiment.json"
_ID = re.compile(r"^\d{8}-\d{6}-.+-[0-9a-f]{6}$")


class ArmRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an experiment.

    Attributes:
        run: Its id in the folder of runs.
        block: From 0; None in the screening of a search.
        arm: ``A``, ``B``, or a value under screening.
        position: In its block or round.
        load_average: Of the machine over a minute when it began.
    """

    run: str
    block: int | None
    arm: str
    position: int
    load_average: float


class QualityRun(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation of an arm.

    Attributes:
        run: Its id in the folder of runs.
        arm: ``A`` or ``B``.
        kind: ``distributions`` (idle) or ``suites``.
    """

    run: str
    arm: str
    kind: str


class ExperimentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``experiment.json``.

    Attributes:
        schema_version: 1.
        id: ``<time>-<card>-<short id>``, the name of the folder.
        created: UTC, ISO 8601.
        status: ``running``, ``complete`` or ``incomplete``.
        reason: Why it is incomplete; None otherwise.
        card_name: Of the card.
        card: The whole card as JSON.
        changes: As ``--change`` takes them.
        before: Pin → value in arm A; known after the first block.
        after: Pin → value in arm B.
        blocks: Planned.
        seed: Of orders and schedules.
        orders: Order of the arms, one a block.
        load: In words.
        duration_s: Send window of each run.
        runs: In order of time.
        screened: Of a search: value → the primary endpoint in each round.
        analysis: The verdict; None before the first block is done.
        beside: What is reported beside speed.
        asked: Everything that was asked for: an experiment goes on only where it is equal.
        quality_runs: Evaluations of the arms.
        quality: The answers of B against those of A, one comparison a kind.
        agreement: How far their texts agree; None where they were not read in one go.
        conclusion: Speed and answers together; None before both are there.
        notes: Sentences for the reader.
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    created: str
    status: str = "running"
    reason: str | None = None
    card_name: str
    card: dict[str, Any]
    changes: list[str]
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    blocks: int
    seed: int
    orders: list[str]
    load: str
    duration_s: float
    runs: list[ArmRun] = []
    screened: dict[str, list[float | None]] = {}
    analysis: Analysis | None = None
    beside: list[Beside] = []
    asked: dict[str, Any] = {}
    quality_runs: list[QualityRun] = []
    quality: list[Comparison] = []
    agreement: Agreement | None = None
    conclusion: Conclusion | None = None
    notes: list[str] = []


class ExperimentStore:
    """All experiments below one folder, usually ``.setpoint/experiments``.

    Args:
        root: The folder; created with the first experiment.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(root)

    def new_id(self, card_name: str) -> str:
        """A name for an experiment that begins now."""
        return f"{utc_now():%Y%m%d-%H%M%S}-{card_name}-{secrets.token_hex(3)}"

    def path_of(self, record_id: str) -> Path:
        """The file of an experiment."""
        return self.root / record_id / FILE

    def save(self, record: ExperimentRecord) -> Path:
        """Writes a record in one step; returns its file.

        Raises:
            RecordError: the file system refused.
        """
        path = self.path_of(record.id)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(path, error) from error
        replace_bytes(path, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
        return path

    def ids(self) -> list[str]:
        """Names of all experiments, newest first."""
        if not self.root.is_dir():
            return []
        return sorted((p.name for p in self.root.iterdir() if _ID.match(p.name)), reverse=True)

    def open(self, ref: str) -> ExperimentRecord:
        """By id, by a unique beginning or end of one, or ``latest``.

        Raises:
            UsageError: none, or more than one, is meant.
            RecordError: it cannot be read.
        """
        ids = self.ids()
        found = ids[:1] if ref == "latest" else [i for i in ids if i == ref or i.startswith(ref) or i.endswith(ref)]
        if len(found) != 1:
            what = "is not unique" if found else "is no experiment"
            raise UsageError(
                f"{ref!r} {what} in {self.root} ({len(ids)} there).", fix="Give more of its id, or latest."
            )
        path = self.path_of(found[0])
        try:
            record = msgspec.json.decode(read_bytes(path), type=ExperimentRecord)
        except msgspec.DecodeError as error:
            raise RecordError(
                f"{path} is damaged: {error}.", fix="Its runs are not lost: see `setpoint runs`."
            ) from error
        if record.schema_version > SCHEMA_VERSION:
            raise RecordError(f"{path} has schema version {record.schema_version}.", fix="Upgrade setpoint to read it.")
        return record
