"""A suite: tasks in one JSONL file, a task a line, with an optional first line about the suite itself."""

import json
from dataclasses import dataclass
from hashlib import sha256
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from setpoint.errors import SuiteError
from setpoint.quality.graders.registry import parameters_of
from setpoint.quality.task import Task

BUILT_IN = ("core",)
Kind = TypeVar("Kind", bound=BaseModel)


class Header(BaseModel):
    """The first line of a suite file, if it says ``suite``.

    Attributes:
        suite: Its name; the file's name unless given.
        description: For people.
        required_coverage: Share of the answers that must be measured for a verdict.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    description: str = ""
    required_coverage: float = Field(default=0.95, gt=0, le=1)


@dataclass(frozen=True, slots=True)
class Suite:
    """Tasks that are scored together.

    Attributes:
        name: As promised in cards.
        description: For people.
        required_coverage: Share of the answers that must be measured for a verdict.
        tasks: At least one; ids are unique.
        digest: SHA-256 of everything above: two scores are comparable when it is equal.
    """

    name: str
    description: str
    required_coverage: float
    tasks: tuple[Task, ...]
    digest: str


def promised_suite(name: str, folder: Path) -> Suite:
    """The suite that a promise names: one that comes with Setpoint, or ``<name>.jsonl`` beside the card.

    Raises:
        SuiteError: there is none, it calls itself otherwise, or a line is wrong.
    """
    suite = load_suite(name if name in BUILT_IN else str(folder / f"{name}.jsonl"))
    if suite.name != name:
        raise SuiteError(
            f"{folder / name}.jsonl calls itself {suite.name!r} and the card promises quality({name}).",
            fix="Give both the same name.",
        )
    return suite


def load_suite(ref: str) -> Suite:
    """A suite that comes with Setpoint, by name, or a JSONL file, by path.

    Raises:
        SuiteError: there is none, or a line is wrong; names file, line and field.
    """
    if ref in BUILT_IN:
        text = (resources.files("setpoint.quality.suites") / f"{ref}.jsonl").read_text(encoding="utf-8")
        return read_suite(text, f"{ref}.jsonl")
    path = Path(ref)
    if not path.is_file():
        raise SuiteError(f"There is no suite {ref!r}.", fix=f"Name {', '.join(BUILT_IN)}, or a JSONL file of tasks.")
    try:
        return read_suite(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path} cannot be read: {error}.") from error


def read_suite(text: str, file: str) -> Suite:
    """A suite from the text of its file.

    Raises:
        SuiteError: as ``load_suite``.
    """
    header = Header(suite=Path(file).stem)
    tasks: list[Task] = []
    seen: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        try:
            raw = json.loads(line)
        except ValueError as error:
            raise SuiteError(f"{where}: found no JSON: {error}.", fix="Write one task a line.") from None
        if not isinstance(raw, dict):
            raise SuiteError(f"{where}: found {type(raw).__name__}, expected a JSON object.")
        if "suite" in raw and not tasks:
            header = _validated(Header, raw, where)
            continue
        task = _validated(Task, raw, where)
        parameters_of(task, where)
        if task.id in seen:
            raise SuiteError(f"{where}: id: found {task.id!r} again (line {seen[task.id]}), expected unique ids.")
        seen[task.id] = number
        tasks.append(task)
    if not tasks:
        raise SuiteError(f"{file} holds no task.")
    content = [header.model_dump(mode="json"), *(t.model_dump(mode="json", exclude_defaults=True) for t in tasks)]
    digest = sha256(json.dumps(content, sort_keys=True, ensure_ascii=False).encode()).hexdigest()
    return Suite(header.suite, header.description, header.required_coverage, tuple(tasks), digest)


def _validated(kind: type[Kind], raw: dict[str, Any], where: str) -> Kind:
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        raise SuiteError(f"{where}: {first_mistake(error)}.") from None


def first_mistake(error: ValidationError) -> str:
    """The first mistake that pydantic found: field, what was expected, what stands there."""
    mistake = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in mistake["loc"])
    found = "" if mistake["type"] == "missing" else f" (found {str(mistake['input'])[:60]!r})"
    said = mistake["msg"].removeprefix("Value error, ")
    return f"{field + ': ' if field else ''}{said[:1].lower()}{said[1:]}{found}"
