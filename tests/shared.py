"""The project's facts, which lie beside the repository: ``shared/data`` in a folder above this one."""

import csv
from pathlib import Path


def data_folder() -> Path:
    for parent in Path(__file__).resolve().parents:
        if (parent / "shared" / "data").is_dir():
            return parent / "shared" / "data"
    raise AssertionError("shared/data is in no folder above the tests; they need it")


def table(name: str) -> list[dict[str, str]]:
    with (data_folder() / name).open(newline="") as file:
        return list(csv.DictReader(file))


def config(name: str) -> bytes:
    return (data_folder() / "model_configs" / f"{name}.json").read_bytes()
