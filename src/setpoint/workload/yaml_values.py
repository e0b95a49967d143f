"""YAML into plain values, each with its line.

Read through the node graph, so that a key given twice is seen and neither deep nesting nor aliases that multiply can
exhaust memory. Plain scalars are those of YAML 1.2's core schema: ``0512`` is no octal number, ``1:30`` no count of
sixties, ``no`` no truth value and ``2024-01-01`` no date; they stay text, for the field that they stand in to judge.
"""

import re
from typing import Any

import yaml

from setpoint.errors import Mistake
from setpoint.workload.quantity import Field_

MAX_NODES = 20_000
MAX_DEPTH = 24

_CORE = "tag:yaml.org,2002:"
_SCALARS = {
    "bool": (r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    "int": (r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
    "float": (
        r"^(?:[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        "-+0123456789.",
    ),
    "null": (r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
}
_PLAIN = {_CORE + name for name in ("str", "map", "seq", *_SCALARS)}


class _TooMuch(yaml.YAMLError):
    """More nodes or levels than a card can need."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _Loader(yaml.SafeLoader):
    """Composes nodes; constructs scalars of the core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own name
    nodes = 0
    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:  # noqa: ANN401 - PyYAML's index
        self.nodes += 1
        self.depth += 1
        if self.nodes > MAX_NODES or self.depth > MAX_DEPTH:
            raise _TooMuch(self.line + 1)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _name, (_pattern, _first) in _SCALARS.items():
    _Loader.add_implicit_resolver(_CORE + _name, re.compile(_pattern), list(_first))


class YamlValues:
    """The values of one document.

    Args:
        file: Its name in mistakes.
        what: What the file should be, as mistakes say it.

    Attributes:
        mistakes: Found so far.
    """

    def __init__(self, file: str, what: str = "a workload card") -> None:
        self.file = file
        self.what = what
        self.mistakes: list[Mistake] = []
        self._lines: dict[Field_, int] = {}
        self._nodes = 0
        self._scalars = _Loader("")

    def read(self, content: bytes) -> Any:  # noqa: ANN401 - whatever the file holds
        """The document's value; mistakes are collected."""
        try:
            node = yaml.compose(content.decode("utf-8-sig"), Loader=_Loader)
        except _TooMuch as error:
            self._note(error.line, "the file", "too many or too deep values", self.what)
            return None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = None if mark is None else mark.line + 1
            problem = (error.problem or error.context or "unreadable").removeprefix("but found ")
            self._note(line, "the file", f"a fault in its YAML ({problem})", "one valid YAML document")
            return None
        except (yaml.YAMLError, UnicodeDecodeError):
            self._note(None, "the file", "bytes that are not text", "YAML in UTF-8")
            return None
        if not isinstance(node, yaml.MappingNode):
            found = "an empty file" if node is None else "no mapping"
            self._note(1, "the file", found, f"a mapping with apiVersion, kind and the fields of {self.what}")
            return None
        return self._value(node, ())

    def _value(self, node: yaml.Node, path: Field_) -> Any:  # noqa: ANN401 - any YAML value
        self._nodes += 1  # again: an alias is one node in the graph and many values
        if self._nodes > MAX_NODES or len(path) > MAX_DEPTH:
            if not self.mistakes:
                self._note(node.start_mark.line + 1, "the file", "too many or too deep values", self.what)
            return None
        self._lines[path] = node.start_mark.line + 1
        if node.tag not in _PLAIN:
            self.mistakes.append(self.mistake(path, f"the tag {node.tag.removeprefix(_CORE)}", "a value without a tag"))
            return None
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(child, (*path, i)) for i, child in enumerate(node.value)]
        try:
            return self._scalars.construct_object(node)
        except (yaml.YAMLError, ValueError, LookupError):
            self.mistakes.append(self.mistake(path, repr(str(node.value)[:60]), "a plain value"))
            return None

    def _mapping(self, node: yaml.MappingNode, path: Field_) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in node.value:
            name = str(key.value) if isinstance(key, yaml.ScalarNode) else ""
            line = key.start_mark.line + 1
            if not name:
                self._note(line, dotted(path), "a key that is not a word", "a field name")
                continue
            if name in out:
                self._note(line, dotted((*path, name)), "the key twice", "it once")
            out[name] = self._value(value, (*path, name))
            self._lines[(*path, name)] = line
        return out

    def _note(self, line: int | None, field: str, found: str, expected: str) -> None:
        self.mistakes.append(Mistake(self.file, line, field, found, expected))

    def mistake(self, path: Field_, found: str, expected: str) -> Mistake:
        """A mistake at a path, with its line or that of its nearest ancestor."""
        line = next((self._lines[path[:n]] for n in range(len(path), -1, -1) if path[:n] in self._lines), None)
        return Mistake(self.file, line, dotted(path), found, expected)


def dotted(path: Field_) -> str:
    """``("promises", 1, "limit")`` as ``promises[1].limit``."""
    text = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path)
    return text.lstrip(".") or "the file"
