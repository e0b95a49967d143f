"""``assessment.json``: how an assessment's budget was spent and what each part came to.

It lies beside the first run of the series, so that a report tells from records alone what was not run, and why.
"""

from enum import StrEnum
from pathlib import Path

import msgspec

from setpoint.errors import RecordError
from setpoint.records.files import read_bytes, replace_bytes

SCHEMA_VERSION = 1
FILE = "assessment.json"


class Stage(StrEnum):
    """What became of a part."""

    DONE = "done"
    UNDECIDED = "undecided"  # it ran, and the budget could not decide everything
    NOT_RUN = "not run"
    FAILED = "failed"
    INTERRUPTED = "interrupted"


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One part of an assessment.

    Attributes:
        name: ``search``, ``diagnosis``, ``quality`` or ``experiment``.
        stage: What became of it.
        words: What it came to, in a sentence.
        allotted_s: Of the budget.
        spent_s: Of it.
        takes: What it would take to say more; empty where nothing is open.
    """

    name: str
    stage: Stage
    words: str
    allotted_s: float
    spent_s: float
    takes: str = ""


class AssessmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``assessment.json``.

    Attributes:
        schema_version: 1.
        series: Of the runs.
        budget_s: Of everything.
        parts: In the order run.
        experiment: Id of the first experiment; None where none was begun.
    """

    schema_version: int = SCHEMA_VERSION
    series: str
    budget_s: float
    parts: list[Part] = []
    experiment: str | None = None


def save_assessment(record: AssessmentRecord, folder: Path) -> None:
    """Writes it in one step.

    Raises:
        RecordError: the file system refused.
    """
    replace_bytes(folder / FILE, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")


def read_assessment(folder: Path) -> AssessmentRecord | None:
    """The assessment whose first run this is; None without one.

    Raises:
        RecordError: it is damaged, or comes from a newer version.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        record = msgspec.json.decode(read_bytes(path), type=AssessmentRecord)
    except msgspec.DecodeError as error:
        raise RecordError(f"{path} is damaged: {error}.", fix="Its runs are not lost: see `setpoint runs`.") from error
    if record.schema_version > SCHEMA_VERSION:
        raise RecordError(f"{path} has schema version {record.schema_version}.", fix="Upgrade setpoint to read it.")
    return record
