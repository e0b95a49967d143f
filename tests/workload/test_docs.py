"""The page about the card names every field, its blocks are good cards, and its commands run."""

import re
import shlex
import shutil
import typing
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel
from tests.workload.cards import text

from setpoint.cli import run
from setpoint.workload.card import Workload, json_schema
from setpoint.workload.distribution import Distribution
from setpoint.workload.reading import parse_card

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "card.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = re.findall(r"^\$ (.+)$", PAGE, re.MULTILINE)


def overlaid(part: dict[str, Any]) -> bytes:
    """A whole card: the parts that a block names in the place of the same parts of the small card."""
    card = yaml.safe_load(text(prompt="300"))
    for name, value in part.items():
        card[name] = {**card[name], **value} if name == "traffic" else value
    return yaml.safe_dump(card).encode()


@pytest.mark.parametrize("block", BLOCKS)
def test_every_block_is_a_good_card_or_a_part_of_one(block: str) -> None:
    part = yaml.safe_load(block)
    content = block.encode() if "apiVersion" in part else overlaid(part)
    card = parse_card(content, "docs/card.md")
    assert set(part) <= set(card.to_dict())
    jsonschema.validate(yaml.safe_load(content), json_schema())


def test_the_page_shows_every_process_and_metric() -> None:
    cards = [yaml.safe_load(block) for block in BLOCKS]
    shown = {c["traffic"]["arrivals"]["process"] for c in cards if "arrivals" in c.get("traffic", {})}
    assert shown == {"constant", "poisson", "gamma", "ramp", "closed", "replay"}
    read = [parse_card(overlaid(c), "x") for c in cards if "promises" in c and "apiVersion" not in c]
    assert len({p.metric for card in read for p in card.promises}) == 7
    assert {p.boundary for card in read for p in card.promises if p.boundary} == {"scheduled", "sent", "any_token"}


def fields_of(model: type[BaseModel], prefix: str) -> set[str]:
    out: set[str] = set()
    for name, field in model.model_fields.items():
        path = f"{prefix}{field.alias or name}"
        parts = [m for m in models_in(field.annotation) if not issubclass(m, Distribution)]
        out |= {path} if not parts else {f for m in parts for f in fields_of(m, f"{path}.")}
    return out


def models_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [m for a in typing.get_args(annotation) for m in models_in(a)]


def test_every_field_has_its_row_and_no_row_is_without_a_field() -> None:
    rows = re.findall(r"^\| `([a-zA-Z_.]+)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted(fields_of(Workload, ""))


def test_every_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "tests" / "workload" / "traces", tmp_path, dirs_exist_ok=True)
    (tmp_path / "docs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert len(COMMANDS) == 8
    for command in COMMANDS:
        words, _, target = command.partition(" > ")
        program, *arguments = shlex.split(words)
        assert program == "setpoint"
        assert run(arguments) == 0, command
        printed = capsys.readouterr().out
        if target:
            Path(target).write_text(printed, encoding="utf-8")
    assert (tmp_path / "docs" / "card.schema.json").read_bytes() == (ROOT / "docs" / "card.schema.json").read_bytes()
    assert parse_card((tmp_path / "monday.yaml").read_bytes(), "monday.yaml").name == "azure"
