"""``setpoint assess``: the card's own load, then the search around it, then the report."""

from dataclasses import dataclass

from setpoint.assess.bench import Bench
from setpoint.load.search import Search
from setpoint.metrics.verdict import State
from setpoint.records.record import RunRecord

BUDGET_S = 240.0


@dataclass(frozen=True, slots=True)
class Assessment:
    """What an assessment came to.

    Attributes:
        search: The search for maximum goodput.
    """

    search: Search

    @property
    def records(self) -> list[RunRecord]:
        """Runs of the series, in order."""
        return [step.outcome.record for step in self.search.steps]

    @property
    def state(self) -> State:
        """Met when a load was found that keeps every promise."""
        return self.search.state


def assess(bench: Bench, *, budget_s: float = BUDGET_S) -> Assessment:
    """Searches for maximum goodput, beginning at the card's own load.

    Args:
        bench: Card, target, store.
        budget_s: Wall-clock bound on all measurement.
    """
    return Assessment(bench.search(budget_s=budget_s))
