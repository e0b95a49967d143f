"""``run.json``: everything about a run that is not a row. Schema version 1."""

from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from setpoint.errors import RecordError
from setpoint.records.files import read_bytes
from setpoint.records.redaction import redacted
from setpoint.records.target import Target
from setpoint.workload.schedule import Schedule

SCHEMA_VERSION = 1


class Status(StrEnum):
    """What became of a run."""

    RUNNING = "running"
    COMPLETE = "complete"
    INCOMPLETE = "incomplete"


class ScheduleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The schedule in brief; fields as in ``workload.schedule.Schedule``."""

    seed: int
    digest: str
    offered_per_s: float | None
    concurrency: int | None
    duration_s: float
    requests: int

    @classmethod
    def of(cls, schedule: Schedule) -> "ScheduleFacts":
        """The facts of a schedule."""
        return cls(
            seed=schedule.seed,
            digest=schedule.digest(),
            offered_per_s=schedule.offered_per_s,
            concurrency=schedule.concurrency,
            duration_s=schedule.duration_s,
            requests=schedule.requests,
        )


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """What groups the runs of one search, sweep, experiment or assessment.

    Attributes:
        id: Shared by all runs of the series.
        kind: ``goodput``, ``sweep``, ``assess``, ...
        step: Position in the series, from 0.
    """

    id: str
    kind: str
    step: int


class RunMeta(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``run.json``.

    Attributes:
        schema_version: 1. A newer one is refused by this version of setpoint.
        id: ``<time>-<card>-<short id>``, the name of the folder.
        created: UTC, ISO 8601.
        status: ``running`` until closed; then ``complete`` or ``incomplete``.
        reason: Why it is incomplete; None otherwise.
        card_name: Name of the card.
        card: The whole card as JSON; empty until known.
        pins: What must be equal for two runs to be comparable (see ``pins``).
        target: Address, dialect and model; never the key (see ``target_facts``).
        schedule: Seed, digest and size of the schedule.
        series: The search or sweep that this run is a step of.
        client: The client certificate: lag, CPU share, floor.
        environment: Facts about the machine of the client (see ``environment``).
        summary: What ``metrics.summarise`` said when the run was closed.
        verdicts: What ``metrics.judge_all`` said.
        notes: Sentences for the reader of the record.
        quality: What an evaluation found beside the rows (suites, controls, serving checks); None without one.
    """

    schema_version: int = SCHEMA_VERSION
    id: str
    created: str
    status: Status = Status.RUNNING
    reason: str | None = None
    card_name: str
    card: dict[str, Any] = {}
    pins: dict[str, Any] = {}
    target: dict[str, Any] = {}
    schedule: ScheduleFacts | None = None
    series: Series | None = None
    client: dict[str, Any] | None = None
    environment: dict[str, Any] = {}
    summary: dict[str, Any] | None = None
    verdicts: list[dict[str, Any]] = []
    notes: list[str] = []
    quality: dict[str, Any] | None = None


class _Version(msgspec.Struct):
    schema_version: int


def target_facts(target: Target) -> dict[str, Any]:
    """What a record may say about a target: no key, and no credentials inside the address."""

    def address(url: str) -> str:
        parts = urlsplit(url)
        return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))

    return {
        "base_url": address(target.base_url),
        "dialect": target.dialect.value,
        "model": target.model,
        "metrics_url": None if target.metrics_url is None else address(target.metrics_url),
        "verify_tls": target.verify_tls,
    }


def encode_meta(meta: RunMeta) -> bytes:
    """``run.json`` as it is written: indented, one trailing newline, without credentials.

    Raises:
        RecordError: It holds a value that JSON cannot hold.
    """
    try:
        built = redacted(msgspec.to_builtins(meta))
        return msgspec.json.format(msgspec.json.encode(built), indent=2) + b"\n"
    except (TypeError, ValueError) as e:
        raise RecordError(f"run.json of {meta.id} cannot be written as JSON: {e}.") from e


def read_meta(path: Path) -> RunMeta:
    """Read a ``run.json`` of this or an older schema version.

    Raises:
        RecordError: It cannot be read, is damaged, or comes from a newer version.
    """
    content = read_bytes(path)
    check_version(path, content)
    try:
        return msgspec.json.decode(content, type=RunMeta)
    except msgspec.DecodeError as e:
        raise damaged(path, e) from e


def check_version(path: Path, content: bytes) -> None:
    """Refuse a damaged file, and one that only a newer setpoint understands.

    Raises:
        RecordError: It is one of these.
    """
    try:
        version = msgspec.json.decode(content, type=_Version).schema_version
    except msgspec.DecodeError as e:
        raise damaged(path, e) from e
    if version > SCHEMA_VERSION:
        raise RecordError(
            f"{path} has schema version {version}; this setpoint reads up to {SCHEMA_VERSION}.",
            fix="Upgrade setpoint (pip install -U setpoint), or read the Parquet files beside it directly.",
        )
    if version < 1:
        raise RecordError(f"{path} has schema version {version}, expected 1 or above.")


def damaged(path: Path, error: Exception) -> RecordError:
    """What to tell the user about a ``run.json`` that does not decode."""
    return RecordError(
        f"{path} is damaged: {error}.",
        fix="Its exchanges are not lost: read exchanges.parquet beside it, or restore run.json from a copy.",
    )
