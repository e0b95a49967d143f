"""A card file into a card, or into every mistake that is in it."""

import difflib
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from setpoint.errors import CardError, Mistake, UsageError
from setpoint.workload.card import Workload
from setpoint.workload.distribution import Distribution
from setpoint.workload.quantity import Field_, Refused
from setpoint.workload.yaml_values import YamlValues

MAX_BYTES = 2**20

Root = typing.TypeVar("Root", bound=BaseModel)

PATTERNS = {
    "name": "lower-case letters, digits and dashes, at most 64",
    "currency": "a three-letter currency code such as USD",
}
EXPECTED = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "int_type": "a whole number",
    "less_than_equal": "at most {le:g}",
    "model_attributes_type": "a mapping of fields",
    "model_type": "a mapping of fields",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "string_type": "text",
    "tuple_type": "a list",
}


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
    return read_validated(content, YamlValues(file), Workload)


def read_validated(content: bytes, reader: YamlValues, root: type[Root]) -> Root:
    """Reads the YAML of any model; ``reader`` then knows the line of each field.

    Raises:
        CardError: with every mistake.
    """
    if len(content) > MAX_BYTES:
        raise CardError([Mistake(reader.file, None, "the file", "more than 1 MiB", reader.what)])
    raw = reader.read(content)
    if reader.mistakes:
        raise CardError(reader.mistakes)
    try:
        return root.model_validate(raw)
    except ValidationError as error:
        mistakes = [m for e in error.errors(include_url=False) for m in _mistakes(e, raw, reader, root)]
        raise CardError(sorted(mistakes, key=lambda m: m.line or 0)) from None


def shorten(value: object, width: int = 60) -> str:
    """A value as a message shows it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    text = (
        f"{value!r}"
        if not isinstance(value, dict | list | tuple)
        else f"a {'list' if isinstance(value, list | tuple) else 'mapping'}"
    )
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _mistakes(
    error: Any,  # noqa: ANN401 - pydantic's mapping
    raw: object,
    reader: YamlValues,
    root: type[BaseModel],
) -> Iterator[Mistake]:
    path = _in_file(error["loc"], raw)
    kind, message, context = error["type"], str(error["msg"]), error.get("ctx", {})
    if kind == "extra_forbidden":
        fields = _fields_at(path[:-1], raw, root)
        close = difflib.get_close_matches(str(path[-1]), fields, 1)
        hint = f"{close[0]} (did you mean it?)" if close else f"one of {', '.join(fields)}"
        yield reader.mistake(path, "an unknown field", hint)
    elif kind == "missing":
        yield reader.mistake(path, "nothing", "this field")
    elif isinstance(context.get("error"), Refused):
        for below, found, expected in context["error"].fields:
            whole = (*path, *below)
            yield reader.mistake(whole, found or shorten(_at(whole, raw)), expected)
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        tag = (*path, "process")
        yield reader.mistake(tag, shorten(_at(tag, raw)), _choice(list(_TAGS), _at(tag, raw)))
    elif kind in ("literal_error", "enum"):
        yield reader.mistake(
            path, shorten(error["input"]), _choice(re.findall(r"'([^']*)'", context["expected"]), error["input"])
        )
    elif kind == "string_pattern_mismatch":
        yield reader.mistake(
            path, shorten(error["input"]), PATTERNS.get(str(path[-1]), "letters, digits and . _ : / -")
        )
    else:
        template = EXPECTED.get(kind)
        expected = message.removeprefix("Value error, ") if template is None else template.format(**context)
        standing = _at(path, raw)
        found = shorten(error["input"] if standing is None else standing)
        yield reader.mistake(path, found, expected.removeprefix("expected "))


def _choice(names: list[str], found: object) -> str:
    """The names that may stand there, and the one that was probably meant."""
    close = difflib.get_close_matches(str(found).lower(), names, 1)
    listed = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
    return f"{listed} (did you mean {close[0]}?)" if close and len(names) > 1 else listed


def _at(path: Field_, raw: object) -> Any:  # noqa: ANN401 - any YAML value
    """What stands at a path of the file; None for nothing."""
    here: Any = raw
    for part in path:
        here = _child(here, part)
    return here


def _child(here: object, part: str | int) -> Any:  # noqa: ANN401 - any YAML value
    """The value at a key or position; None without one."""
    if isinstance(here, dict):
        return here.get(part)
    if isinstance(here, list) and isinstance(part, int) and part < len(here):
        return here[part]
    return None


def _in_file(loc: tuple[str | int, ...], raw: object) -> Field_:
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


_TAGS = ("constant", "poisson", "gamma", "ramp", "closed", "replay")


def _fields_at(path: Field_, raw: object, root: type[BaseModel]) -> list[str]:
    """Names that may stand in the mapping at a path of the file."""
    models: list[type[BaseModel]] = [root]
    here: Any = raw
    keyed = False  # the next part is a key that the user chose
    for part in path:
        here = _child(here, part)
        if isinstance(part, int) or keyed:
            keyed = False
            continue
        annotations = [f.annotation for m in models for n, f in m.model_fields.items() if part in (n, f.alias)]
        models = [m for a in annotations for m in _models_in(a)]
        keyed = any(typing.get_origin(a) is dict for a in annotations)
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
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, tuple, dict, typing.Annotated):
        return [m for a in typing.get_args(annotation) for m in _models_in(a)]
    return []
