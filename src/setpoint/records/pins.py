"""Pins: what must be equal for two runs to be compared (law 4).

Pins are a dictionary in ``run.json``, nested where that reads well; here they are compared by dotted path. A pin
that is None or absent is unknown: unknown differs from known, and two unknowns are equal but reported as unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from setpoint.errors import PinsDiffer
from setpoint.records.record import RunRecord

EXPECTED = (
    "model",
    "model_revision",
    "engine",
    "engine_version",
    "engine_flags",
    "hardware",
    "precision",
    "card_digest",
    "schedule_seed",
    "load",
    "output_lengths",
    "cache_state",
    "client_version",
)

PROMPT_LAYOUT = "prompt_layout"
LAYOUT_FIELD = "traffic.prefix.position"  # all that two cards may differ in when the layout is the variable

# What follows from other pins and differs with them.
FOLLOWS = {
    "schedule_digest": ("load", "schedule_seed", "card_digest", PROMPT_LAYOUT),
    "card_digest": (PROMPT_LAYOUT,),
    "model_file": ("model",),
    "model_revision": ("model",),
    "model_source": ("model",),
    "converted_from": ("model",),
    "precision": ("model",),
    "licence": ("model",),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One pin with two values.

    Attributes:
        pin: Dotted path, e.g. ``engine_flags.max_num_seqs``.
        a: Value in the first run; None when unknown.
        b: Value in the second run.
    """

    pin: str
    a: object
    b: object

    def __str__(self) -> str:
        return f"{self.pin}: {_words(self.a)} against {_words(self.b)}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs that may be compared.

    Attributes:
        variable: The pin that was named.
        changes: How they differ in it; at least one.
        unknown: Expected pins that neither run knows, so that equality is an assumption.
    """

    variable: str
    changes: tuple[Difference, ...]
    unknown: tuple[str, ...]


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Every pin in which two sets of pins differ, in order of name."""
    left, right = _flat(a), _flat(b)
    return [
        Difference(pin, left.get(pin), right.get(pin))
        for pin in sorted(left.keys() | right.keys())
        if left.get(pin) != right.get(pin)
    ]


def compare(a: RunRecord, b: RunRecord, variable: str) -> Comparison:
    """Allow the comparison of two runs that differ in exactly one variable.

    Args:
        a: The first run.
        b: The second run.
        variable: A pin or a group of pins: ``engine_flags`` covers ``engine_flags.max_num_seqs``.

    Raises:
        PinsDiffer: They differ in something else (each difference is named), or not in the variable.
    """
    found = differences(a.meta.pins, b.meta.pins)
    changes = tuple(d for d in found if d.pin == variable or d.pin.startswith(f"{variable}."))
    others = [d for d in found if d not in changes and variable not in FOLLOWS.get(d.pin, ())]
    if variable == PROMPT_LAYOUT:
        others += [d for d in differences(a.meta.card, b.meta.card) if d.pin != LAYOUT_FIELD]
    if others:
        named = "; ".join(str(d) for d in others)
        raise PinsDiffer(
            f"{a.id} and {b.id} differ in more than {variable}: {named}.",
            fix="Repeat one of them with the other's pins, or name the variable that was meant to change.",
        )
    if not changes:
        raise PinsDiffer(
            f"{a.id} and {b.id} do not differ in {variable}; all their pins are equal.",
            fix="Name the variable that was changed; if none was, the runs are repetitions of each other.",
        )
    known = _flat(a.meta.pins)
    unknown = tuple(pin for pin in EXPECTED if not any(k == pin or k.startswith(f"{pin}.") for k in known))
    return Comparison(variable, changes, unknown)


def _flat(pins: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Dotted path → value, without unknowns (None)."""
    flat: dict[str, object] = {}
    for name, value in pins.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif value is not None:
            flat[f"{prefix}{name}"] = value
    return flat


def _words(value: object) -> str:
    return "unknown" if value is None else str(value)
