"""A change: one variable of the target, with its value in the second arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.errors import PinsDiffer, UsageError
from setpoint.records.pins import Difference, compare, differences
from setpoint.records.record import RunRecord

ENGINE, MODEL = "engine", "model"
FLAGS_PIN = "engine_flags"
EXPECTED = "expected engine.FLAG=VALUE, for example engine.n_parallel=8, or model=NAME"


@dataclass(frozen=True, slots=True)
class Change:
    """One flag of the engine, or the model that it serves.

    Attributes:
        flag: As ``--flag`` takes it; None changes the model.
        value: In the second arm.
    """

    flag: str | None
    value: str

    @property
    def pin(self) -> str:
        """The pin that it moves."""
        return MODEL if self.flag is None else f"{FLAGS_PIN}.{self.flag}"

    def __str__(self) -> str:
        return f"{MODEL if self.flag is None else f'{ENGINE}.{self.flag}'}={self.value}"


def parse_changes(text: str) -> tuple[Change, ...]:
    """``engine.n_parallel=8``, ``model=NAME``, or several values: ``engine.n_parallel=2,4,8``.

    Raises:
        UsageError: it is neither.
    """
    name, sign, values = text.partition("=")
    kind, _, flag = name.strip().partition(".")
    parts = [part.strip() for part in values.split(",")]
    of_engine, of_model = kind == ENGINE and bool(flag), name.strip() == MODEL
    if not sign or not (of_engine or of_model) or not all(parts):
        raise UsageError(f"--change is {text!r}; {EXPECTED}.")
    if len(set(parts)) < len(parts):
        raise UsageError(f"--change is {text!r}; a value stands there twice.")
    return tuple(Change(flag.lstrip("-") if of_engine else None, part) for part in parts)


def changed_flags(flags: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """The flags of the second arm."""
    return {**flags, **{c.flag: c.value for c in changes if c.flag is not None}}


def changed_model(model: str | None, changes: Sequence[Change]) -> str | None:
    """The model of the second arm."""
    return next((c.value for c in changes if c.flag is None), model)


def check_arms(a: Sequence[RunRecord], b: Sequence[RunRecord], changes: Sequence[Change]) -> tuple[Difference, ...]:
    """The change as the pins show it.

    Args:
        a: Runs of the first arm in one block; all must be pinned alike.
        b: Of the second.
        changes: What may differ between the arms.

    Raises:
        PinsDiffer: the arms differ in more than the changes, or not in each of them.
    """
    variable = changes[0].pin if len(changes) == 1 else FLAGS_PIN
    allowed = compare(a[0], b[0], variable)
    named = {c.pin for c in changes}
    found = {d.pin for d in allowed.changes}
    if found != named:
        extra, missing = ", ".join(sorted(found - named)), ", ".join(sorted(named - found))
        what = f"also in {extra}" if extra else f"not in {missing}"
        raise PinsDiffer(f"The arms differ {what}.", fix="Give one --change for each flag that is meant to change.")
    for arm in (a, b):
        for other in arm[1:]:
            _check_equal(arm[0], other)
    return allowed.changes


def _check_equal(first: RunRecord, second: RunRecord) -> None:
    found = differences(first.meta.pins, second.meta.pins)
    if found:
        named = "; ".join(str(d) for d in found)
        raise PinsDiffer(
            f"{first.id} and {second.id} are of one arm and differ: {named}.",
            fix="Keep the machine and the target as they are while an experiment runs, and begin again.",
        )


def pinned_flag(pins: Mapping[str, Any], flag: str) -> str | None:
    """The pinned value of a flag, whether it is written with dashes or underscores; None without one."""
    wanted = flag.replace("-", "_")
    for name, value in (pins.get(FLAGS_PIN) or {}).items():
        if str(name).replace("-", "_") == wanted:
            return str(value)
    return None
