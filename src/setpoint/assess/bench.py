"""Runs of one card against one target: a single load, a sweep, or the search for maximum goodput."""

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from setpoint.assess.target import OpenTarget
from setpoint.client.limits import PhaseTimeouts
from setpoint.errors import UsageError
from setpoint.load.look import EarlyEnd
from setpoint.load.progress import Listener
from setpoint.load.runner import Outcome, run, silent
from setpoint.load.search import Search, find_goodput
from setpoint.load.spec import Beside, LoadSpec
from setpoint.records.meta import Series
from setpoint.records.store import RunStore
from setpoint.units import format_number
from setpoint.workload.card import Closed, Replay, Workload
from setpoint.workload.generate import schedule_for, session_rate

LEAST_RUN_S = 1.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A card, a target, and where records go.

    Attributes:
        card: The card.
        folder: Folder that a card's trace is relative to.
        opened: The target.
        store: Where records go.
        seed: Of all schedules.
        workers: Client processes; None decides.
        timeouts: Phase limits.
        listen: Told about four times a second how a run goes.
        note: Told a sentence now and then.
    """

    card: Workload
    folder: str
    opened: OpenTarget
    store: RunStore
    seed: int = 1
    workers: int | None = None
    timeouts: PhaseTimeouts = field(default_factory=PhaseTimeouts)
    listen: Listener = silent
    note: Callable[[str], None] = silent

    @property
    def closed(self) -> bool:
        """Whether the card's traffic is a closed loop."""
        return isinstance(self.card.traffic.arrivals, Closed)

    @property
    def own_load(self) -> float:
        """The card's own load: session starts a second, or users; a replay's recorded rate is 1."""
        arrivals = self.card.traffic.arrivals
        if isinstance(arrivals, Closed):
            return float(arrivals.users)
        return 1.0 if isinstance(arrivals, Replay) else session_rate(arrivals)

    def one(
        self,
        *,
        rate_per_s: float | None = None,
        users: int | None = None,
        duration_s: float | None = None,
        look: EarlyEnd | None = None,
        series: Series | None = None,
        beside: Beside | None = None,
    ) -> Outcome:
        """One run at one load; the card's own unless given.

        Raises:
            UsageError: no request would be sent.
        """
        schedule = schedule_for(
            self.card, self.seed, rate_per_s=rate_per_s, concurrency=users, duration_s=duration_s, folder=self.folder
        )
        if not schedule.requests:
            raise UsageError(
                f"No session starts within {schedule.duration_s:g} s at this rate.", fix="Raise --duration or the rate."
            )
        spec = LoadSpec(
            card=self.card,
            schedule=schedule,
            target=self.opened.target,
            label=self.label(rate_per_s, users),
            engine=self.opened.pins,
            workers=self.workers,
            timeouts=self.timeouts,
            series=series,
            alive=self.opened.alive,
            look=look,
            beside=beside,
        )
        writer = self.store.create(self.card.name)
        return run(spec, writer, listen=self.listen, sampler=self.opened.sampler)

    def label(self, rate_per_s: float | None, users: int | None) -> str:
        """A load in words."""
        if users is not None:
            return f"{users} users"
        if rate_per_s is not None:
            return f"{format_number(rate_per_s)} sessions/s"
        own = self.card.traffic.arrivals
        if isinstance(own, Closed):
            return f"{own.users} users"
        return "the trace's own rate" if isinstance(own, Replay) else f"{format_number(session_rate(own))} sessions/s"

    def sweep(
        self,
        *,
        rates: Sequence[float] = (),
        users: Sequence[int] = (),
        duration_s: float | None,
        budget_s: float | None,
    ) -> list[Outcome]:
        """One run a load, ascending; the budget is shared, and bounds the whole."""
        series, outcomes = f"sweep-{secrets.token_hex(3)}", []
        loads: list[tuple[float | None, int | None]] = [(r, None) for r in sorted(rates)]
        loads += [(None, u) for u in sorted(users)]
        deadline_s = None if budget_s is None else time.monotonic() + budget_s
        for step, (rate, user) in enumerate(loads):
            length_s = duration_s or self.card.traffic.duration
            if deadline_s is not None:
                share_s = (deadline_s - time.monotonic()) / (len(loads) - step)
                length_s = min(length_s, max(share_s - 4.0, LEAST_RUN_S))
                if deadline_s - time.monotonic() < LEAST_RUN_S:
                    self.note(f"the budget is spent: {len(loads) - step} loads were not tried")
                    break
            place = Series(id=series, kind="sweep", step=step)
            outcome = self.one(rate_per_s=rate, users=user, duration_s=length_s, series=place)
            outcomes.append(outcome)
            self.note(f"{self.label(rate, user)}: {outcome.state}")
            if outcome.interrupted or outcome.record.meta.reason is not None:
                break
        return outcomes

    def search(self, *, budget_s: float, start: float | None = None, closed: bool | None = None) -> Search:
        """The search for maximum goodput.

        Raises:
            UsageError: the card promises nothing.
        """
        if not any(p.metric != "quality" for p in self.card.promises):
            raise UsageError(f"The card {self.card.name!r} promises nothing that load can show.", fix="Add promises.")
        by_users = self.closed if closed is None else closed

        def make(load: float, duration_s: float, look: EarlyEnd | None, series: Series) -> Outcome:
            if by_users:
                return self.one(users=int(load), duration_s=duration_s, look=look, series=series)
            return self.one(rate_per_s=load, duration_s=duration_s, look=look, series=series)

        return find_goodput(
            make, self.card, start=start or self.own_load, budget_s=budget_s, closed=by_users, note=self.note
        )
