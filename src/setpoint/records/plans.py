"""Plans as records: one JSON document for a card and a model, so that a report can show what was expected."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from setpoint.errors import RecordError
from setpoint.records.files import read_bytes, replace_bytes
from setpoint.records.journal import cannot_write

SCHEMA_VERSION = 1
FOLDER = "plans"


def plan_path(runs: Path, card: str, model: str) -> Path:
    """Where the plan of a card and a model lies: beside the runs."""
    return runs.parent / FOLDER / f"{_slug(card)}-{_slug(model)}.json"


def save_plan(path: Path, document: Mapping[str, Any]) -> None:
    """Writes a plan, in place of an older one.

    Raises:
        RecordError: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from error
    replace_bytes(path, msgspec.json.format(msgspec.json.encode(document), indent=2))


def find_plan(runs: Path, card: str, model: str) -> dict[str, Any] | None:
    """The plan of a card and a model; None without one.

    The model is known to a server by its last name, so that is compared.

    Raises:
        RecordError: it cannot be read, or a later version wrote it.
    """
    path = plan_path(runs, card, model)
    if not path.is_file():
        return None
    try:
        found = msgspec.json.decode(read_bytes(path))
    except msgspec.DecodeError:
        found = None
    if not isinstance(found, dict) or found.get("schema_version") != SCHEMA_VERSION:
        raise RecordError(f"{path} is no plan that this version reads.", fix="Plan again, or remove it.")
    return found


def _slug(name: str) -> str:
    last = name.rstrip("/").rpartition("/")[2].partition("@")[0]
    return re.sub(r"[^a-z0-9.]+", "-", last.lower()).strip("-.") or "unnamed"
