"""A card file into a card, or into every mistake that is in it.

YAML is read through its node graph, so that each value knows its line, a key given twice is seen, and neither deep
nesting nor aliases that multiply can exhaust memory.
"""

import difflib
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from setpoint.errors import CardError, Mistake, UsageError
from setpoint.workload.card import Contradictory, Workload
from setpoint.workload.distribution import Distribution

MAX_BYTES = 2**20
MAX_NODES = 20_000
MAX_DEPTH = 24

PATTERNS = {
    "name": "lower-case letters, digits and dashes, at most 64",
    "currency": "a three-letter currency code such as USD",
}

Path_ = tuple[str | int, ...]


def load_card(path: str | Path) -> Workload:
    """Reads a card.

    Raises:
        CardError: with every mistake.
        UsageError: the file cannot be read at all.
    """
    where = Path(path)
    try:
        with where.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise UsageError(
            f"The card {str(path)!r} cannot be read: {reason}.", fix="`setpoint init chat > card.yaml` writes one."
        ) from None
    return parse_card(content, str(path))


def parse_card(content: bytes, file: str) -> Workload:
    """Reads the content of a card file; ``file`` is its name in messages.

    Raises:
        CardError: with every mistake.
    """
    if len(content) > MAX_BYTES:
        raise CardError([Mistake(file, None, "the file", "more than 1 MiB", "a workload card")])
    reader = _Reader(file)
    raw = reader.read(content)
    if reader.mistakes:
        raise CardError(reader.mistakes)
    try:
        return Workload.model_validate(raw)
    except ValidationError as error:
        mistakes = [m for e in error.errors(include_url=False) for m in _mistakes(e, raw, reader)]
        raise CardError(sorted(mistakes, key=lambda m: m.line or 0)) from None


class _Reader:
    """Plain values from YAML, with the line of each path."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[Path_, int] = {}
        self.mistakes: list[Mistake] = []
        self._nodes = 0

    def read(self, content: bytes) -> Any:  # noqa: ANN401 - whatever the file holds
        """The document's value; mistakes are collected."""
        try:
            node = yaml.compose(content.decode("utf-8-sig"), Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = None if mark is None else mark.line + 1
            self._mistake(line, "the file", error.problem or "a YAML error", "valid YAML")
            return None
        except (yaml.YAMLError, UnicodeDecodeError):
            self._mistake(None, "the file", "bytes that are not text", "YAML in UTF-8")
            return None
        except RecursionError:
            self._mistake(None, "the file", "nesting without end", f"at most {MAX_DEPTH} levels")
            return None
        if not isinstance(node, yaml.MappingNode):
            found = "an empty file" if node is None else "no mapping"
            self._mistake(1, "the file", found, "a mapping with apiVersion, kind, name, traffic and promises")
            return None
        return self._value(node, ())

    def _value(self, node: yaml.Node, path: Path_) -> Any:  # noqa: ANN401 - any YAML value
        self._nodes += 1
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            if not self.mistakes:
                self._mistake(node.start_mark.line + 1, "the file", "too many or too deep values", "a workload card")
            return None
        self.lines[path] = node.start_mark.line + 1
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(child, (*path, i)) for i, child in enumerate(node.value)]
        constructor = yaml.SafeLoader("")
        try:
            return constructor.construct_object(node)
        except (yaml.YAMLError, ValueError):
            self._mistake(node.start_mark.line + 1, dotted(path), shorten(node.value), "a plain value")
            return None

    def _mapping(self, node: yaml.MappingNode, path: Path_) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            if not name:
                self._mistake(key.start_mark.line + 1, dotted(path), "a key that is not a word", "a field name")
                continue
            if name in out:
                self._mistake(key.start_mark.line + 1, dotted((*path, name)), "the key twice", "it once")
            out[name] = self._value(value, (*path, name))
        return out

    def _mistake(self, line: int | None, field: str, found: str, expected: str) -> None:
        self.mistakes.append(Mistake(self.file, line, field, found, expected))

    def line(self, path: Path_) -> int | None:
        """The line of a path, or of its nearest ancestor."""
        return next((self.lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self.lines), None)


def dotted(path: Path_) -> str:
    """``("promises", 1, "limit")`` as ``promises[1].limit``."""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    return text.lstrip(".") or "the file"


def shorten(value: object, width: int = 60) -> str:
    """A value as a message shows it."""
    if value is None:
        return "nothing"
    text = (
        f"{value!r}"
        if not isinstance(value, dict | list | tuple)
        else f"a {'list' if isinstance(value, list | tuple) else 'mapping'}"
    )
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _mistakes(error: Any, raw: object, reader: _Reader) -> Iterator[Mistake]:  # noqa: ANN401 - pydantic's mapping
    path = _in_file(error["loc"], raw)
    kind, message, context = error["type"], str(error["msg"]), error.get("ctx", {})
    line = reader.line(path)
    if kind == "extra_forbidden":
        fields = _fields_at(path[:-1], raw)
        close = difflib.get_close_matches(str(path[-1]), fields, 1)
        hint = f"{close[0]} (did you mean it?)" if close else f"one of {', '.join(fields)}"
        yield Mistake(reader.file, line, dotted(path), "an unknown field", hint)
    elif kind == "missing":
        yield Mistake(reader.file, line, dotted(path), "nothing", "this field")
    elif isinstance(context.get("error"), Contradictory):
        yield from _contradicting(context["error"].found, raw, reader)
    elif kind == "string_pattern_mismatch":
        yield Mistake(reader.file, line, dotted(path), shorten(error["input"]), PATTERNS.get(str(path[-1]), message))
    else:
        expected = context.get("expected") or message.removeprefix("Value error, ").removeprefix("expected ")
        expected = expected[:1].lower() + expected[1:]
        yield Mistake(reader.file, line, dotted(path), shorten(error["input"]), expected)


def _contradicting(found: list[tuple[str, str]], raw: object, reader: _Reader) -> Iterator[Mistake]:
    """Fields that cannot both be meant, with what stands there."""
    for field, expected in found:
        path: Path_ = tuple(int(p) if p.isdigit() else p for p in field.replace("[", ".").replace("]", "").split("."))
        here: Any = raw
        for part in path:
            here = _child(here, part)
        yield Mistake(reader.file, reader.line(path), field, shorten(here), expected.removeprefix("expected "))


def _child(here: object, part: str | int) -> Any:  # noqa: ANN401 - any YAML value
    """The value at a key or position; None without one."""
    if isinstance(here, dict):
        return here.get(part)
    if isinstance(here, list) and isinstance(part, int) and part < len(here):
        return here[part]
    return None


def _in_file(loc: tuple[str | int, ...], raw: object) -> Path_:
    """Pydantic's location without the tags and function names that it inserts for unions and validators."""
    path: list[str | int] = []
    here: Any = raw
    for i, part in enumerate(loc):
        last = i == len(loc) - 1
        child = _child(here, part)
        if child is not None or (isinstance(here, dict) and part in here):
            here = child
        elif not last or not isinstance(here, dict) or "[" in str(part) or str(part) in _TAGS:
            continue
        path.append(part)
    return tuple(path)


_TAGS = frozenset({"constant", "poisson", "gamma", "ramp", "closed", "replay"})


def _fields_at(path: Path_, raw: object) -> list[str]:
    """Names that may stand in the mapping at a path of the file."""
    models: list[type[BaseModel]] = [Workload]
    here: Any = raw
    for part in path:
        here = _child(here, part)
        if isinstance(part, int):
            continue
        annotations = [f.annotation for m in models for n, f in m.model_fields.items() if part in (n, f.alias)]
        models = [m for a in annotations for m in _models_in(a)]
        tag = here.get("process") if isinstance(here, dict) else None
        tagged = [m for m in models if "process" in m.model_fields and tag in _literals(m)]
        models = tagged or models
    names = {f.alias or n: None for m in models if not issubclass(m, Distribution) for n, f in m.model_fields.items()}
    return list(names)


def _literals(model: type[BaseModel]) -> tuple[Any, ...]:
    return typing.get_args(model.model_fields["process"].annotation)


def _models_in(annotation: Any) -> list[type[BaseModel]]:  # noqa: ANN401 - any annotation
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, tuple, typing.Annotated):
        return [m for a in typing.get_args(annotation) for m in _models_in(a)]
    return []
