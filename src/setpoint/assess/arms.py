"""The two arms of an experiment: what differs between them, and how each is reached or started."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from setpoint.assess.target import OpenTarget, TargetOptions, open_target
from setpoint.engines.supervisor import Loading
from setpoint.errors import UsageError
from setpoint.experiments.change import Change, changed_card, changed_flags, changed_model, check_alike, check_arms
from setpoint.experiments.record import ExperimentRecord, ExperimentStore
from setpoint.load.progress import Listener
from setpoint.load.runner import silent
from setpoint.quality.suite import Suite
from setpoint.records.pins import Difference, compare
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore
from setpoint.workload.card import Workload


@dataclass(frozen=True, slots=True)
class Candidate:
    """The second of two targets that somebody else started.

    Attributes:
        options: How to reach it.
        variable: The pin that may differ from the first target's.
        told: What the user knows of both and they do not report: of the first, of the second; pinned as ``told.NAME``.
    """

    options: TargetOptions
    variable: str
    told: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {})


@dataclass(frozen=True, slots=True)
class Checks:
    """What is asked to see whether the answers are as good.

    Attributes:
        suites: Their answers are compared, paired by task.
        distributions: Compare token distributions too, on an idle engine.
        idle: Ask the suites on an idle engine too, not under the experiment's load.
        epochs: Answers to each task.
        delta: Loss of score that is still "no worse".
    """

    suites: tuple[Suite, ...] = ()
    distributions: bool = False
    idle: bool = False
    epochs: int = 1
    delta: float = 0.05


@dataclass(frozen=True, slots=True)
class Arms:
    """What is compared, and how it is measured.

    Attributes:
        card: The card.
        folder: Folder that a card's trace is relative to.
        options: The first arm: an engine to start, or with a candidate a server to reach.
        store: Where runs go.
        experiments: Where the experiment's record goes.
        changes: The second arm's; of a search: the values to try, all of one flag. None with a candidate.
        candidate: The second arm where both are reached by URL.
        checks: Of the answers; None asks nothing.
        blocks: How many.
        seed: Of order and schedules.
        rate_per_s: Session starts a second, instead of the card's.
        users: Users of a closed loop, instead of the card's arrivals.
        duration_s: Send window of a run; bounded by the budget.
        budget_s: Bound on everything; None has none.
        metric: Name of the primary endpoint.
        delta: Relative change that counts as the same.
        price_per_hour: Of the service, for the cost of a token.
        workers: Client processes.
        listen: Told how a run goes.
        loading: Told how an engine's start goes.
        note: Told a sentence now and then.
    """

    card: Workload
    folder: str
    options: TargetOptions
    store: RunStore
    experiments: ExperimentStore
    changes: tuple[Change, ...] = ()
    candidate: Candidate | None = None
    checks: Checks | None = None
    blocks: int = 5
    seed: int = 1
    rate_per_s: float | None = None
    users: int | None = None
    duration_s: float | None = None
    budget_s: float | None = None
    metric: str | None = None
    delta: float | None = None
    price_per_hour: float | None = None
    workers: int | None = None
    listen: Listener = silent
    loading: Callable[[Loading], None] = silent
    note: Callable[[str], None] = silent

    def __post_init__(self) -> None:
        if self.candidate is None and self.options.url is not None:
            raise UsageError(
                "An engine that is reached by URL cannot be changed from here.",
                fix="Let setpoint start it (--engine, --model, --flag), or give the changed one as --candidate-url.",
            )

    @property
    def asked(self) -> dict[str, Any]:
        """What decides the measurement: an experiment goes on only with the same."""
        target = self.options
        found: dict[str, Any] = {
            "url": target.url,
            "engine": target.engine if target.url is None else None,
            "model": target.model,
            "flags": dict(target.flags),
            "changes": [str(c) for c in self.changes],
            "card": self.card.digest(),
            "blocks": self.blocks,
            "seed": self.seed,
            "rate_per_s": self.rate_per_s,
            "users": self.users,
        }
        if self.candidate is not None:
            found |= {
                "candidate_url": self.candidate.options.url,
                "variable": self.candidate.variable,
                "told": [dict(t) for t in self.candidate.told],
            }
        return found

    def card_of(self, changes: Sequence[Change]) -> Workload:
        """The card of an arm with these changes."""
        return changed_card(self.card, changes)

    @contextlib.contextmanager
    def opened(self, arm: str, changes: Sequence[Change]) -> Iterator[OpenTarget]:
        """The target of an arm, proved to answer; stopped afterwards where it was started here.

        Raises:
            TargetError: it cannot be reached.
            EngineError: it cannot be started.
        """
        if self.candidate is not None:
            options = self.candidate.options if arm == "B" else self.options
            told = dict(self.candidate.told[arm == "B"])
            with open_target(self.card, options, loading=self.loading) as opened:
                yield replace(opened, pins={**opened.pins, "told": told})
            return
        options = replace(
            self.options,
            flags=changed_flags(self.options.flags, changes),
            model=changed_model(self.options.model, changes),
        )
        with open_target(self.card, options, loading=self.loading) as opened:
            yield opened

    def differences(self, a: Sequence[RunRecord], b: Sequence[RunRecord], changes: Sequence[Change]) -> "Allowed":
        """How the arms differ, as their pins show it.

        Raises:
            PinsDiffer: in more than the variable, or not in it.
        """
        if self.candidate is None:
            return Allowed(check_arms(a, b, changes), ())
        found = compare(a[0], b[0], self.candidate.variable)
        check_alike(a, b)
        return Allowed(found.changes, found.unknown)


@dataclass(frozen=True, slots=True)
class Allowed:
    """Arms that may be compared.

    Attributes:
        changes: How they differ.
        unknown: Pins that neither of two servers reports: that they are equal is an assumption.
    """

    changes: tuple[Difference, ...]
    unknown: tuple[str, ...]


def demand_same(record: ExperimentRecord, arms: Arms) -> None:
    """Refuses to go on with an experiment that is complete, or was another one; answers can be asked for later.

    Raises:
        UsageError: it is so.
    """
    if record.status == "complete" and (arms.checks is None or record.quality):
        raise UsageError(f"{record.id} is complete.", fix="Leave --resume away to make another.")
    before, now = record.asked, arms.asked
    other = sorted(k for k in before.keys() | now.keys() if before.get(k) != now.get(k))
    if other:
        said = "; ".join(f"{k}: {before.get(k)} then, {now.get(k)} now" for k in other)
        raise UsageError(f"{record.id} was something else: {said}.", fix="Give the options that it had.")
