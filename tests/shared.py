"""Recorded facts that lie beside the project: traces, scrapes, logs.

Tests that need them are marked ``shared``. Where the folder is absent they are not collected, and the header of the
test run says so; every one of them has a sibling on the project's own, smaller fixtures.
"""

from pathlib import Path

ABSENT = Path("shared-data-is-absent")


def shared_data() -> Path:
    """The folder ``shared/data`` in any folder above; ``ABSENT`` without one."""
    above = (folder / "shared" / "data" for folder in Path(__file__).resolve().parents)
    return next((path for path in above if path.is_dir()), ABSENT)
