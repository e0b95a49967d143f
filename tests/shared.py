"""Recorded facts: those kept in ``tests/recorded``, and larger ones that lie beside the project.

Tests that need the larger ones are marked ``shared``. Where their folder is absent they are not collected, and the
header of the test run says so; every one of them has a sibling on the facts that are kept here.
"""

import csv
from pathlib import Path

ABSENT = Path("shared-data-is-absent")
RECORDED = Path(__file__).parent / "recorded"


def shared_data() -> Path:
    """The folder ``shared/data`` in any folder above; ``ABSENT`` without one."""
    above = (folder / "shared" / "data" for folder in Path(__file__).resolve().parents)
    return next((path for path in above if path.is_dir()), ABSENT)


def table(name: str) -> list[dict[str, str]]:
    """Rows of a CSV file that is kept here."""
    with (RECORDED / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def config(name: str) -> bytes:
    """A model's ``config.json``, as published."""
    return _of_model(f"{name}.json").read_bytes()


def quantization(name: str) -> bytes | None:
    """Its ``hf_quant_config.json``; None without one."""
    path = _of_model(f"{name}.hf_quant.json")
    return path.read_bytes() if path.exists() else None


def _of_model(file: str) -> Path:
    kept = RECORDED / "model_configs" / file
    return kept if kept.exists() else shared_data() / "model_configs" / file
