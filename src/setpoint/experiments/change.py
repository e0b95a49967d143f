"""A change: one variable of the target or of its prompts, with its value in the second arm."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from setpoint.errors import PinsDiffer, UsageError
from setpoint.experiments.playbook import NO_CHECK, playbook
from setpoint.records.pins import LAYOUT_FIELD, PROMPT_LAYOUT, Difference, compare, differences
from setpoint.records.record import RunRecord
from setpoint.workload.card import Workload

ENGINE, MODEL = "engine.", "model"
LAYOUT = f"card.{LAYOUT_FIELD}"
POSITIONS = ("front", "behind")
FLAGS_PIN = "engine_flags"
EXPECTED = f"expected engine.FLAG=VALUE, for example engine.n_parallel=8, model=NAME, or {LAYOUT}=front"


@dataclass(frozen=True, slots=True)
class Change:
    """One flag of the engine, the model that it serves, or where prompts hold what they share.

    Attributes:
        variable: ``engine.FLAG``, ``model``, or ``card.traffic.prefix.position``.
        value: In the second arm.
    """

    variable: str
    value: str

    @property
    def flag(self) -> str | None:
        """The flag of the engine, as ``--flag`` takes it; None where it is none."""
        return self.variable.removeprefix(ENGINE) if self.variable.startswith(ENGINE) else None

    @property
    def pin(self) -> str:
        """The pin that it moves."""
        if self.variable == LAYOUT:
            return PROMPT_LAYOUT
        return MODEL if self.flag is None else f"{FLAGS_PIN}.{self.flag}"

    @property
    def quality_check(self) -> str | None:
        """What must be checked about the answers, by the playbook; None where they cannot change."""
        if self.variable == MODEL:
            return "the suite and teacher-forced log-probabilities against the other model"
        for row in playbook():
            flags = {_plain(knob.flag) for knob in row.knobs.values()}
            named = row.change == self.variable if self.flag is None else _plain(self.flag) in flags
            if named and row.quality_check != NO_CHECK:
                return row.quality_check
        return None

    def __str__(self) -> str:
        return f"{self.variable}={self.value}"


def parse_changes(text: str) -> tuple[Change, ...]:
    """``engine.n_parallel=8``, ``model=NAME``, or several values: ``engine.n_parallel=2,4,8``.

    Raises:
        UsageError: it is none of these.
    """
    name, sign, values = text.partition("=")
    variable = name.strip()
    parts = [part.strip() for part in values.split(",")]
    if variable.startswith(ENGINE):
        variable = ENGINE + variable.removeprefix(ENGINE).lstrip("-")
    known = variable in (MODEL, LAYOUT) or (variable.startswith(ENGINE) and variable != ENGINE)
    if not sign or not known or not all(parts):
        raise UsageError(f"--change is {text!r}; {EXPECTED}.")
    if variable == LAYOUT and not set(parts) <= set(POSITIONS):
        raise UsageError(f"--change is {text!r}; the position is {' or '.join(POSITIONS)}.")
    if len(set(parts)) < len(parts):
        raise UsageError(f"--change is {text!r}; a value stands there twice.")
    return tuple(Change(variable, part) for part in parts)


def changed_flags(flags: Mapping[str, str], changes: Sequence[Change]) -> dict[str, str]:
    """The flags of the second arm."""
    return {**flags, **{c.flag: c.value for c in changes if c.flag is not None}}


def changed_model(model: str | None, changes: Sequence[Change]) -> str | None:
    """The model of the second arm."""
    return next((c.value for c in changes if c.variable == MODEL), model)


def changed_card(card: Workload, changes: Sequence[Change]) -> Workload:
    """The card of the second arm: the same but for the position of the shared part.

    Raises:
        UsageError: the position is to change and the card's prompts share nothing.
    """
    position = next((c.value for c in changes if c.variable == LAYOUT), None)
    if position is None:
        return card
    prefix = card.traffic.prefix
    if prefix is None:
        raise UsageError(f"The card {card.name!r} has no shared part to move.", fix="Give it traffic.prefix.")
    moved = prefix.model_copy(update={"position": position})
    return card.model_copy(update={"traffic": card.traffic.model_copy(update={"prefix": moved})})


def check_arms(a: Sequence[RunRecord], b: Sequence[RunRecord], changes: Sequence[Change]) -> tuple[Difference, ...]:
    """The change as the pins show it.

    Args:
        a: Runs of the first arm in one block; all must be pinned alike.
        b: Of the second.
        changes: What may differ between the arms.

    Raises:
        PinsDiffer: the arms differ in more than the changes, or not in each of them.
    """
    allowed = compare(a[0], b[0], changes[0].pin if len(changes) == 1 else FLAGS_PIN)
    named = {c.pin for c in changes}
    found = {d.pin for d in allowed.changes}
    if found != named:
        extra, missing = ", ".join(sorted(found - named)), ", ".join(sorted(named - found))
        what = f"also in {extra}" if extra else f"not in {missing}"
        raise PinsDiffer(f"The arms differ {what}.", fix="Give one --change for each flag that is meant to change.")
    check_alike(a, b)
    return allowed.changes


def check_alike(*arms: Sequence[RunRecord]) -> None:
    """Refuses runs of one arm that are not pinned alike.

    Raises:
        PinsDiffer: they are not.
    """
    for arm in arms:
        for other in arm[1:]:
            _check_equal(arm[0], other)


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
    for name, value in (pins.get(FLAGS_PIN) or {}).items():
        if _plain(str(name)) == _plain(flag):
            return str(value)
    return None


def _plain(flag: str) -> str:
    return flag.replace("-", "_")
