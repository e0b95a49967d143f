"""The accelerators that are known, and how one is named on a command line."""

import difflib
import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from pathlib import Path

from setpoint.errors import UsageError
from setpoint.hardware.accelerator import Accelerator, Fleet
from setpoint.hardware.reading import read_accelerators

MAX_COUNT = 4096


@cache
def _packaged() -> Mapping[str, Accelerator]:
    file = resources.files("setpoint.hardware") / "accelerators.yaml"
    return read_accelerators(file.read_bytes(), "the packaged catalogue", format_="yaml")


def catalogue(own: str | Path | None = None) -> Mapping[str, Accelerator]:
    """All known accelerators by name.

    Args:
        own: A user's YAML or CSV file; an accelerator of a known name replaces the packaged one as a whole.

    Raises:
        UsageError: the file cannot be read, or a field in it cannot be used.
    """
    if own is None:
        return _packaged()
    path = Path(own)
    form = path.suffix.lower().removeprefix(".").replace("yml", "yaml")
    if form not in ("yaml", "csv"):
        raise UsageError(f"The hardware file {str(own)!r} is neither .yaml nor .csv.", fix="Rename or convert it.")
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "unreadable").lower()
        raise UsageError(f"The hardware file {str(own)!r} cannot be read: {reason}.") from None
    added = read_accelerators(content, str(own), format_=form)
    replaced = {_key(name) for name in added}
    return {**{n: a for n, a in _packaged().items() if _key(n) not in replaced}, **added}


def find(name: str, accelerators: Mapping[str, Accelerator] | None = None) -> Accelerator:
    """The accelerator of that name or alias; case, spaces and dashes do not matter.

    Raises:
        UsageError: none or more than one is meant; the message names the nearest.
    """
    known = catalogue() if accelerators is None else accelerators
    by_key = {_key(label): a for a in known.values() for label in (a.name, *a.aliases)}
    wanted = _key(name)
    if wanted in by_key:
        return by_key[wanted]
    starts = sorted({a.name for key, a in by_key.items() if wanted and key.startswith(wanted)})
    near = starts or [by_key[k].name for k in difflib.get_close_matches(wanted, list(by_key), n=3, cutoff=0.6)]
    near = list(dict.fromkeys(near))
    fix = f"Did you mean {' or '.join(near)}?" if near else "`setpoint hardware list` shows those that are known."
    raise UsageError(f"No accelerator is called {name!r}.", fix=fix)


def parse_fleet(text: str, accelerators: Mapping[str, Accelerator] | None = None) -> Fleet:
    """``H100-SXM:4`` is four of them; without a number it is one.

    Raises:
        UsageError: unknown accelerator, or the count is not a whole number from 1 to 4096.
    """
    name, colon, number = text.strip().rpartition(":")
    if not colon:
        return Fleet(find(number, accelerators), 1)
    if not re.fullmatch(r"[0-9]{1,9}", number.strip()) or not 1 <= int(number) <= MAX_COUNT:
        raise UsageError(
            f"{text!r} says {number!r} accelerators; expected a whole number from 1 to {MAX_COUNT}.",
            fix="Write for instance H100-SXM:4.",
        )
    return Fleet(find(name, accelerators), int(number))


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())
