"""The playbook: what can be changed about a service, a row a technique, in ``playbook.yaml``."""

from functools import cache
from pathlib import Path

import msgspec
import yaml

from setpoint.diagnosis.hypotheses import HYPOTHESES
from setpoint.errors import UsageError

FILE = Path(__file__).with_name("playbook.yaml")
UNDECIDED = "undecided"
NO_CHECK = "none"
FORMULAS = ("slots",)


class Knob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one engine is told.

    Attributes:
        flag: Its flag, as ``--flag`` takes it.
        value: The new value, or ``double`` or ``halve`` of the pinned one.
    """

    flag: str
    value: str


class Technique(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row.

    Attributes:
        name: As in records, e.g. ``more_slots``.
        title: As printed.
        relief: Bottleneck that it needs → share of that bottleneck's time that it is expected to remove.
        formula: What replaces the share where the pins allow it; ``slots``: from the number of slots before and after.
        knobs: By engine; an engine that is absent has no single flag for it.
        change: The variable that it moves on any engine, as ``--change`` takes it; None where it is a flag or none.
        effect: What should get better.
        source: Where the expectation comes from.
        trade_off: What may get worse.
        quality_check: What must be checked about the answers; ``none`` where they cannot change.
        backfires: Signs that it does harm.
        refuted_by: The result that would refute it.
    """

    name: str
    title: str
    relief: dict[str, float]
    effect: str
    source: str
    trade_off: str
    quality_check: str
    backfires: tuple[str, ...]
    refuted_by: str
    formula: str | None = None
    knobs: dict[str, Knob] = {}
    change: str | None = None


@cache
def playbook() -> tuple[Technique, ...]:
    """All rows, in order of the file."""
    return read_playbook(FILE)


def read_playbook(path: Path) -> tuple[Technique, ...]:
    """Rows of a file.

    Raises:
        UsageError: a row is malformed; names the field.
    """
    try:
        rows = msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), tuple[Technique, ...])
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise UsageError(f"{path.name}: {error}.", fix="See docs/experiments.md for the fields of a row.") from None
    names: set[str] = set()
    for row in rows:
        known = {*HYPOTHESES, UNDECIDED}
        unknown = sorted(set(row.relief) - known)
        if unknown or not row.relief:
            found = ", ".join(unknown) or "nothing"
            raise UsageError(
                f"{path.name}: {row.name}: relief names {found}, expected some of {', '.join(sorted(known))}."
            )
        if not all(0 <= share <= 1 for share in row.relief.values()):
            raise UsageError(f"{path.name}: {row.name}: relief is {row.relief}, expected shares from 0 to 1.")
        if row.formula is not None and row.formula not in FORMULAS:
            raise UsageError(f"{path.name}: {row.name}: formula is {row.formula!r}, expected {', '.join(FORMULAS)}.")
        if row.name in names:
            raise UsageError(f"{path.name}: {row.name} stands there twice.")
        names.add(row.name)
    return rows
