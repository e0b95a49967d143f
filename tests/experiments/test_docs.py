"""The page tells what the code takes."""

import re
from pathlib import Path

import msgspec

from setpoint.cli import run
from setpoint.experiments.design import FEWEST_BLOCKS
from setpoint.experiments.imports import FORMATS
from setpoint.experiments.playbook import Technique

PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_every_field_of_a_playbook_row_is_explained_and_no_other() -> None:
    table = PAGE.split("### How to add a row")[1].split("## ")[0]
    named = {
        name for line in re.findall(r"^\| (`.+?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    }
    assert named == {field.name for field in msgspec.structs.fields(Technique)}


def test_every_format_that_is_imported_is_listed() -> None:
    table = PAGE.split("## Results of other load generators")[1].lower()
    assert all(name.split("-")[0] in table for name in FORMATS)


def test_the_fewest_blocks_are_as_stated() -> None:
    assert FEWEST_BLOCKS == 5
    assert "fewer than five blocks" in PAGE


def test_every_verb_on_the_page_exists() -> None:
    for line in re.findall(r"^setpoint (experiment \w+|runs \w+)", PAGE, re.MULTILINE):
        assert run([*line.split(), "--help"]) == 0
