"""Reading a configuration field by field: what is missing, of the wrong type or out of range names its field."""

import json
import math
from collections.abc import Mapping
from typing import Any

from setpoint.errors import ModelSpecError

LARGEST_FILE = 64 * 2**20
"""Bytes; the largest configuration in the wild (one entry per expert and matrix) has about 4 MB."""
LARGEST_NUMBER = 10**9
MOST_LAYERS = 2048
MOST_NESTING = 64


def read_json(content: bytes, where: str) -> dict[str, Any]:
    """A JSON object from a file of bounded size and depth.

    Raises:
        ModelSpecError: it is larger than 64 MiB, nested deeper than 64 levels, not JSON, or not an object.
    """
    if len(content) > LARGEST_FILE:
        raise ModelSpecError(f"{where} has {len(content)} bytes, more than any model configuration ({LARGEST_FILE}).")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise ModelSpecError(f"{where} is not JSON: {reason}.", fix="Download the file again.") from None
    if not isinstance(found, dict):
        raise ModelSpecError(f"{where} holds a {type(found).__name__}, expected an object.")
    if _depth(found) > MOST_NESTING:
        raise ModelSpecError(f"{where} is nested deeper than {MOST_NESTING} levels.")
    return found


def _depth(value: object) -> int:
    level, deepest = [value], 0
    while level and deepest <= MOST_NESTING:
        deepest += 1
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
    return deepest


class Fields:
    """One object of a configuration.

    Args:
        values: The object.
        where: File name, or file and path of the object, for messages.
    """

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self.values = values
        self.where = where
        self.read: set[str] = set()

    def wrong(self, name: str, expected: str) -> ModelSpecError:
        """The error for a field: what was found and what was expected."""
        if name not in self.values:
            return ModelSpecError(f"{self.where}: {name} is missing, expected {expected}.")
        return ModelSpecError(f"{self.where}: {name} is {str(self.values[name])[:80]!r}, expected {expected}.")

    def has(self, *names: str) -> bool:
        """Whether one of the fields is there and not null."""
        self.read.update(names)
        return any(self.values.get(name) is not None for name in names)

    def _first(self, names: tuple[str, ...]) -> str | None:
        self.read.update(names)
        return next((name for name in names if self.values.get(name) is not None), None)

    def integer(self, *names: str, default: int | None = None, least: int = 1) -> int:
        """The first of the fields that is there, as a whole number.

        Raises:
            ModelSpecError: none is there and there is no default, or it is no whole number from ``least`` to 1e9.
        """
        name = self._first(names)
        if name is None:
            if default is None:
                raise self.wrong(names[0], "a whole number")
            return default
        value = self.values[name]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST_NUMBER:
            raise self.wrong(name, f"a whole number from {least} to {LARGEST_NUMBER}")
        return value

    def number(self, name: str) -> float:
        """A finite number above 0."""
        self.read.add(name)
        value = self.values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
            raise self.wrong(name, "a number above 0")
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """The first of the fields that is there, as true or false."""
        name = self._first(names)
        if name is None:
            return default
        value = self.values[name]
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def text(self, *names: str, default: str | None = None) -> str:
        """The first of the fields that is there, as text."""
        name = self._first(names)
        if name is None:
            if default is None:
                raise self.wrong(names[0], "text")
            return default
        value = self.values[name]
        if not isinstance(value, str):
            raise self.wrong(name, "text")
        return value

    def items(self, *names: str) -> list[Any] | None:
        """The first of the fields that is there, as a list of bounded length; None when none is there."""
        name = self._first(names)
        if name is None:
            return None
        value = self.values[name]
        if not isinstance(value, list) or len(value) > MOST_LAYERS:
            raise self.wrong(name, f"a list of at most {MOST_LAYERS} items")
        return value

    def whole(self, name: str, least: int = 0) -> list[int] | None:
        """A list of whole numbers; None when it is not there."""
        found = self.items(name)
        if found is not None and not all(isinstance(x, int) and least <= x <= LARGEST_NUMBER for x in found):
            raise self.wrong(name, "a list of whole numbers")
        return found

    def inner(self, name: str) -> "Fields | None":
        """An object inside; None when it is not there."""
        self.read.add(name)
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(value, f"{self.where}: {name}")

    def layers(self) -> int:
        """``num_hidden_layers``, bounded."""
        count = self.integer("num_hidden_layers", "n_layer", "num_layers")
        if count > MOST_LAYERS:
            raise self.wrong("num_hidden_layers", f"at most {MOST_LAYERS}")
        return count
