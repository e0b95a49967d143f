"""The operators' pages say what is so."""

import re
from pathlib import Path

from typer.main import get_command

from setpoint.cli.app import app
from setpoint.gateway.reading import load_config

ROOT = Path(__file__).parents[2]


def test_every_guarantee_names_a_test_that_exists() -> None:
    rows = [line for line in (ROOT / "docs/gateway-guarantees.md").read_text().splitlines() if line.startswith("| ")]
    assert len(rows) > 30
    for row in rows[1:]:
        names = re.findall(r"`(?:(test_\w+\.py)::)?(test_\w+)`", row)
        assert names, row
        file = ""
        for in_file, name in names:
            file = in_file or file
            assert f"def {name}(" in (ROOT / "tests/gateway" / file).read_text(), name


def test_the_example_is_a_good_configuration() -> None:
    config = load_config(ROOT / "examples/gateway.yaml")
    assert len(config.models["smollm2-135m-instruct"].replicas) == 2


def test_every_command_of_the_page_exists_with_its_options() -> None:
    text = (ROOT / "docs/gateway.md").read_text()
    commands = re.findall(r"^setpoint ((?:gateway|keys|usage)\b[^#\n]*)", text, re.MULTILINE)
    assert len(commands) >= 10
    for command in commands:
        words = command.split()
        tree = get_command(app).commands[words[0]]  # type: ignore[attr-defined]
        if words[0] != "usage":
            tree = tree.commands[words[1] if words[1] in tree.commands else "run"]
        known = {option for parameter in tree.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, command
