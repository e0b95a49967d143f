"""The members of a request, taken one by one, so that none is lost unseen."""

import re
from collections.abc import Iterable
from typing import Any, NoReturn, TypeVar, overload

import msgspec

from setpoint.errors import TranslationError

T = TypeVar("T")
_WHERE = re.compile(r"(?P<what>.*?)(?: - at `\$?(?P<path>[^`]*)`)?$", re.DOTALL)
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def refuse(field: str, why: str) -> NoReturn:
    """Names a field that cannot be carried.

    Raises:
        TranslationError: always.
    """
    raise TranslationError(field, f"{why}.", fix="Remove it, or use a model whose engine speaks this dialect.")


def fields_of(body: bytes) -> "Fields":
    """The members of a JSON object.

    Raises:
        TranslationError: the body is not an object.
    """
    try:
        return Fields(_decode(body))
    except msgspec.DecodeError as error:
        raise TranslationError("body", "not a JSON object.") from error


class Fields:
    """Members of one object; null counts as absent.

    Args:
        members: By name, as the bytes they were.
    """

    def __init__(self, members: dict[str, msgspec.Raw]) -> None:
        self._members = {name: raw for name, raw in members.items() if bytes(raw) != b"null"}

    @overload
    def take(self, name: str, kind: type[T]) -> T | None: ...
    @overload
    def take(self, name: str, kind: Any) -> Any: ...  # noqa: ANN401 - a union is no type
    def take(self, name: str, kind: Any) -> Any:
        """The member as a type; None when absent.

        Raises:
            TranslationError: it is something else.
        """
        raw = self._members.pop(name, None)
        if raw is None:
            return None
        try:
            return msgspec.json.decode(raw, type=kind)
        except msgspec.DecodeError as error:
            found = _WHERE.match(str(error))
            what, path = (found["what"], found["path"] or "") if found else ("malformed", "")
            raise TranslationError(f"{name}{path}", f"{what[:1].lower()}{what[1:]}.") from error

    def need(self, name: str, kind: type[T]) -> T:
        """The member as a type.

        Raises:
            TranslationError: it is absent or something else.
        """
        value = self.take(name, kind)
        if value is None:
            raise TranslationError(name, "missing.")
        return value

    def carry(self, names: Iterable[str]) -> dict[str, Any]:
        """The members of these names, as the bytes they were."""
        return {name: self._members.pop(name) for name in names if name in self._members}

    def drop(self, names: Iterable[str]) -> None:
        """Members that mean nothing on the other side."""
        for name in names:
            self._members.pop(name, None)

    def allow(self, name: str, *values: object) -> None:
        """A member that says what is the case anyway.

        Raises:
            TranslationError: it asks for something else.
        """
        raw = self._members.pop(name, None)
        if raw is not None and msgspec.json.decode(raw) not in values:
            refuse(name, "the engine's dialect has no word for it")

    def done(self) -> None:
        """Every member must have been taken.

        Raises:
            TranslationError: one was not.
        """
        for name in self._members:
            refuse(name, "not known here, or without a counterpart in the engine's dialect")
