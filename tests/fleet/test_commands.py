"""``setpoint serve`` without starting anything, as a user types it; and its page."""

import re
import shlex
from pathlib import Path

import yaml
from tests.cli.command import ROOT, answer, setpoint
from tests.fleet.conftest import deployment_of
from typer.main import get_command

from setpoint.cli.app import app
from setpoint.fleet.deployment import RestartPolicy, ServedModel
from setpoint.gateway.config import Service


def written(folder: Path, text: str | None = None) -> None:
    content = text or yaml.safe_dump(deployment_of(folder, model={"replicas": 2, "flags": {"slots": 2}}))
    (folder / "deployment.yaml").write_text(content, encoding="utf-8")


def test_check_says_that_it_is_good_or_what_is_not(tmp_path: Path) -> None:
    written(tmp_path)
    good = setpoint(tmp_path, "serve", "check", "deployment.yaml")
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout == "deployment.yaml: a good deployment of 1 models with 2 replicas.\n"
    written(tmp_path, (tmp_path / "deployment.yaml").read_text().replace("replicas", "replcas"))
    bad = setpoint(tmp_path, "serve", "check", "deployment.yaml")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert re.search(r"^setpoint: deployment.yaml:\d+: models.fake.replcas: found an unknown field, ", bad.stderr)
    told = setpoint(tmp_path, "serve", "check", "deployment.yaml", "--json")
    assert (told.returncode, answer(told)["ok"]) == (2, False)
    assert set(answer(told)["mistakes"][0]) == {"file", "line", "field", "found", "expected"}
    refused = setpoint(tmp_path, "serve", "deployment.yaml")
    assert (refused.returncode, refused.stderr) == (2, bad.stderr)


def test_a_dry_run_prints_commands_that_a_shell_takes_and_no_key(tmp_path: Path) -> None:
    written(tmp_path)
    done = setpoint(tmp_path, "serve", "deployment.yaml", "--dry-run")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines[::2]] == ["fake/r0", "fake/r1"]
    for line in lines[1::2]:
        words = shlex.split(line)
        assert "setpoint.testing.fake_engine" in words
        assert '"api_key":"$SETPOINT_ENGINE_KEY"' in words[-1]
    assert not (tmp_path / "state").exists()


def test_every_command_of_the_page_exists_with_its_options() -> None:
    commands = re.findall(r"^setpoint serve ([^#\n]*)", (ROOT / "docs/serve.md").read_text(), re.MULTILINE)
    assert len(commands) >= 4
    tree = get_command(app).commands["serve"].commands  # type: ignore[attr-defined]
    for command in commands:
        words = command.split()
        verb = tree.get(words[0], tree["run"])
        known = {option for parameter in verb.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, command


def test_the_page_names_every_field() -> None:
    text = (ROOT / "docs/serve.md").read_text()
    own = [*(set(ServedModel.model_fields) - set(Service.model_fields)), *RestartPolicy.model_fields]
    assert [name for name in own if f"`{name}`" not in text] == []
