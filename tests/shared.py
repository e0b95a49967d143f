"""Recorded facts that lie beside the project: traces, scrapes, logs, configurations.

Tests that need them are marked ``shared``. Where the folder is absent they are not collected, and the header of the
test run says so; every one of them has a sibling on the project's own, smaller fixtures.
"""

import csv
from pathlib import Path

ABSENT = Path("shared-data-is-absent")


def shared_data() -> Path:
    """The folder ``shared/data`` in any folder above; ``ABSENT`` without one."""
    above = (folder / "shared" / "data" for folder in Path(__file__).resolve().parents)
    return next((path for path in above if path.is_dir()), ABSENT)


def table(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file; none where the folder is absent."""
    path = shared_data() / name
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def config(name: str) -> bytes:
    """A model's ``config.json``."""
    return (shared_data() / "model_configs" / f"{name}.json").read_bytes()
