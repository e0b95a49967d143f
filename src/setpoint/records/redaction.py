"""Credentials never reach a record (law 6), not even through a flag or an address that carries one.

Everything written to ``run.json`` and ``log.jsonl`` passes through ``redacted``: values under a name that means a
credential, arguments behind an option of such a name, and the user part of addresses are replaced.
"""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "[redacted]"
_NAMES = r"(?:api[-_ ]?keys?|apikey|authorization|password|passwd|secret|credentials?|bearer|cookie|(?:\w+[-_])?token)"
_NAME = re.compile(rf"^-*(?:[a-z0-9]+[-_])*{_NAMES}$", re.IGNORECASE)
_OPTION = re.compile(rf"^(--?(?:[a-z0-9]+[-_])*{_NAMES})=", re.IGNORECASE)
_USER = re.compile(r"(\w+://)[^/@\s]+@")


def redacted(value: Any) -> Any:  # noqa: ANN401 - JSON is as it comes
    """A copy of JSON-like data without credentials; what holds none comes back equal."""
    if isinstance(value, Mapping):
        return {
            name: REDACTED if _NAME.match(str(name)) and isinstance(item, str) else redacted(item)
            for name, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        kept: list[Any] = []
        hide = False
        for item in value:
            text = isinstance(item, str)
            kept.append(REDACTED if hide and text else redacted(item))
            hide = text and item.startswith("-") and _NAME.match(item) is not None
        return kept
    if isinstance(value, str):
        option = _OPTION.match(value)
        return option.group(0) + REDACTED if option else _USER.sub(r"\1", value)
    return value
