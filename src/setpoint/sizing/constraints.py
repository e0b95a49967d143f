"""A card's constraints held against a model and an accelerator: kept, broken, or not known."""

import re
from dataclasses import dataclass
from typing import Literal

from setpoint.errors import UsageError
from setpoint.hardware import Accelerator
from setpoint.hardware.catalogue import find
from setpoint.models.licence import Licence, licence_named
from setpoint.sizing.term import Range
from setpoint.workload.card import Constraints

State = Literal["met", "missed", "undecided"]
Name = Literal["licence", "region", "hardware", "budget"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One constraint.

    Attributes:
        name: Which.
        state: Whether it is kept.
        reason: A sentence.
    """

    name: Name
    state: State
    reason: str


def licence_findings(constraints: Constraints, licence: Licence | None) -> list[Finding]:
    """What the card says about licences, and about earning money."""
    if licence is None:
        if constraints.licences:
            listed = ", ".join(constraints.licences)
            return [Finding("licence", "undecided", f"The card allows {listed}; the model's licence is not known.")]
        return []
    allowed = {licence_named(word).id for word in constraints.licences}
    if allowed and licence.id not in allowed:
        return [Finding("licence", "missed", f"The card allows {', '.join(sorted(allowed))}; this is {licence.name}.")]
    european = any(re.match(r"(?i)(eu|europe)([-_ ]|$)", region) for region in constraints.regions)
    if european and "EU" in licence.limit:
        return [Finding("licence", "missed", f"{licence.name}: {licence.limit}; the card has a region in Europe.")]
    if not constraints.commercial:
        return [Finding("licence", "met", f"{licence.name}; the product earns no money.")]
    check = f"assumed, read {licence.source}"
    if licence.commercial == "no":
        text = f"{licence.name}: {licence.limit}; the product earns money ({check})."
        return [Finding("licence", "missed", text)]
    if licence.commercial == "unknown":
        return [Finding("licence", "undecided", f"{licence.name}: {licence.limit}.")]
    limit = f": {licence.limit}" if licence.limit else ""
    return [Finding("licence", "met", f"{licence.name}{limit} ({check}).")]


def hardware_findings(constraints: Constraints, chip: Accelerator, allowed: frozenset[str]) -> list[Finding]:
    """What the card says about accelerators and regions.

    Args:
        constraints: Of the card.
        chip: The accelerator.
        allowed: Names that :func:`allowed_chips` found; empty: all.
    """
    found = []
    if allowed:
        kept = chip.name in allowed
        listed = ", ".join(constraints.hardware)
        found.append(Finding("hardware", "met" if kept else "missed", f"The card allows {listed}."))
    if constraints.regions:
        listed = ", ".join(constraints.regions)
        found.append(Finding("region", "undecided", f"Whether {chip.name} can be had in {listed} is not known here."))
    return found


def allowed_chips(constraints: Constraints) -> frozenset[str]:
    """Catalogue names of ``constraints.hardware``.

    Raises:
        UsageError: one of them is unknown; names the card's field.
    """
    names = set()
    for index, word in enumerate(constraints.hardware):
        try:
            names.add(find(word).name)
        except UsageError as error:
            raise UsageError(f"constraints.hardware[{index}] of the card: {error.message}", fix=error.fix) from None
    return frozenset(names)


def budget_findings(
    constraints: Constraints, per_hour: Range | None, per_million: Range | None, per_unit: Range | None
) -> list[Finding]:
    """What the card says about money; the ranges are in US dollars, None where no price is known."""
    budget = constraints.budget
    if budget is None:
        return []
    found = []
    asked = (
        ("an hour", budget.per_hour, per_hour),
        ("per million tokens", budget.per_million_tokens, per_million),
        ("per unit of work", budget.per_unit, per_unit),
    )
    for words, limit, cost in asked:
        if limit is None:
            continue
        if budget.currency != "USD":
            reason = f"The budget is in {budget.currency}, the prices known here are in USD."
            found.append(Finding("budget", "undecided", reason))
        elif cost is None:
            found.append(
                Finding("budget", "undecided", f"{limit:g} USD {words}: no price of this accelerator is known.")
            )
        else:
            state: State = "undecided"
            if cost.high <= limit:
                state = "met"
            elif cost.low > limit:
                state = "missed"
            shown = f"{cost.low:,.4g} to {cost.high:,.4g}"
            found.append(Finding("budget", state, f"{limit:g} USD {words}; this costs {shown}."))
    return found
