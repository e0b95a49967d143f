"""The pages: links lead somewhere, each verb has its page, and each command on them can be typed."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from setpoint.cli.app import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]
BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
DEFAULTS = ("place", "run")  # what `setpoint plan CARD`, `gateway FILE` and `serve FILE` mean
LINK = re.compile(r"\]\(([^)\s]+)\)")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def anchors(page: Path) -> set[str]:
    """As GitHub names headings."""
    found = re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def commands(name: str) -> list[str]:
    """Lines of a page's code blocks that call setpoint, without prompts, comments and what is piped to them."""
    lines = [line for block in BLOCK.findall(text_of(name)) for line in block.replace("\\\n", " ").splitlines()]
    found = [line.strip().removeprefix("$ ") for line in lines]
    return [re.split(r"\s+#|\s+[|>&]", line)[0] for line in found if line.startswith("setpoint ")]


@pytest.mark.parametrize("name", NAMES)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for link in LINK.findall(BLOCK.sub("", text_of(name))):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("name", NAMES)
def test_commands_can_be_typed(name: str) -> None:
    for line in commands(name):
        words = shlex.split(line)[1:]
        command: Any = typer.main.get_command(app)
        while words and hasattr(command, "commands"):
            default = next((d for d in DEFAULTS if d in command.commands), None)
            verb = words.pop(0) if words[0] in command.commands else default
            assert verb is not None, line
            command = command.commands[verb]
        known = {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
        for word in words:
            if word.startswith("--"):
                assert word.split("=")[0] in known, f"{line}: {word}"


def test_every_verb_is_on_a_page() -> None:
    shown = "\n".join(text_of(name) for name in NAMES if name.startswith("docs/"))
    tree: Any = typer.main.get_command(app)
    names = []
    for verb, command in tree.commands.items():
        inner = [sub for sub in getattr(command, "commands", ()) if sub not in DEFAULTS]
        names += [f"{verb} {sub}" for sub in inner] or [verb]
    assert [name for name in names if not re.search(rf"setpoint {name}\b", shown)] == []
