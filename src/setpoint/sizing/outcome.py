"""Candidates that hold the model, judged: replicas, promises, constraints, cost, and what would make each fail."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from setpoint.sizing.capacity import Capacity, Curve, at_loads, capacities, completed_per_s
from setpoint.sizing.constraints import Finding, State, budget_findings, hardware_findings
from setpoint.sizing.latency import Estimate, Request
from setpoint.sizing.need import Need
from setpoint.sizing.placement import Candidate, Placement, Question, Reason, Rejected
from setpoint.sizing.plan import MemoryPlan
from setpoint.sizing.pricing import money_of, profile_of
from setpoint.sizing.support import Support
from setpoint.sizing.term import Range

ROOM = "room in the cache"
HISTORIES = "histories in the prefix cache"
_ENDS = {
    ROOM: "requests wait for room in the cache",
    HISTORIES: "histories fall out of the prefix cache and are prefilled again",
}


class Refused(Exception):  # noqa: N818 - a verdict on a candidate, not an error
    """A candidate cannot serve.

    Args:
        kind: What it failed.
        reason: A sentence.
    """

    def __init__(self, kind: Reason, reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason


@dataclass(frozen=True, slots=True)
class Fitting:
    """A candidate that holds the model.

    Attributes:
        candidate: What and how.
        memory: Its memory.
        support: How its chip computes the weights.
        request: For the latency model; None without a card.
    """

    candidate: Candidate
    memory: MemoryPlan
    support: Support
    request: Request | None


class Judge:
    """Judges what fits.

    Args:
        question: As asked.
        licence: Findings about the model's licence.
        allowed: Accelerators that the card allows; empty: all.
    """

    def __init__(self, question: Question, licence: Sequence[Finding], allowed: frozenset[str]) -> None:
        self.q, self.licence, self.allowed = question, tuple(licence), allowed
        self.available = {fleet.accelerator.name: fleet.count for fleet in question.hardware or ()}

    def all(self, fitting: Sequence[Fitting]) -> Iterator[Placement | Rejected]:
        """Each as a placement, or rejected."""
        need = self.q.need
        if need is None:
            yield from (self._memory_only(one) for one in fitting)
            return
        requests = [one.request for one in fitting if one.request is not None]
        loads = zip(fitting, capacities(requests, need), strict=True)
        found = [(_kept_histories(one, need, capacity), curve) for one, (capacity, curve) in loads]
        serving = [self._serving(one.candidate, capacity) for one, (capacity, _) in zip(fitting, found, strict=True)]
        estimates = at_loads(requests, [curve for _, curve in found], need, serving)
        for one, (capacity, curve), count, estimate in zip(fitting, found, serving, estimates, strict=True):
            try:
                yield self._placement(one, need, capacity, curve, count, estimate)
            except Refused as refusal:
                name = one.candidate.chip.name
                yield Rejected(str(one.candidate), name, refusal.kind, refusal.reason)

    def _memory_only(self, one: Fitting) -> Placement:
        findings = (*self.licence, *hardware_findings(self.q.constraints, one.candidate.chip, self.allowed))
        state: State = "met" if one.memory.fit == "yes" else "undecided"
        fails = (*one.memory.reasons, _outgrown(one.memory))
        notes = _notes(one)
        return Placement(one.candidate, one.memory, state, None, None, None, None, findings, "memory", fails, notes)

    def _needed(self, need: Need, requests_per_s: float, users: float) -> int | None:
        """Replicas without spares; None where one completes nothing."""
        if requests_per_s <= 0:
            return None
        if need.users is not None:
            needed = need.users / users
        else:
            assert need.requests_per_s is not None
            peak = need.peak_per_s or need.requests_per_s
            if self.q.peak_to_mean is not None:
                peak = need.requests_per_s * self.q.peak_to_mean
            needed = peak / requests_per_s
        return max(1, math.ceil(needed * (1 - 1e-9)))

    def _ends(self, capacity: Capacity) -> tuple[int | None, int | None, int | None]:
        """Replicas at the slow end of the range, expected, and at the fast end."""
        need, rate, users = self.q.need, capacity.requests_per_s, capacity.users
        assert need is not None
        return (
            self._needed(need, rate.low, users.low if users else 0.0),
            self._needed(need, rate.expected, users.expected if users else 0.0),
            self._needed(need, rate.high, users.high if users else 0.0),
        )

    def _most(self, c: Candidate) -> float:
        """Replicas without spares that there are accelerators for."""
        available = self.available.get(c.chip.name)
        return math.inf if available is None else available // c.count - self.q.spare

    def _serving(self, c: Candidate, capacity: Capacity) -> int:
        """Replicas that share the load: as many as expected, or as there are."""
        return int(max(1, min(self._ends(capacity)[1] or 1, self._most(c))))

    def _placement(
        self, one: Fitting, need: Need, capacity: Capacity, curve: Curve, serving: int, estimate: Estimate
    ) -> Placement:
        c = one.candidate
        slow, expected, fast = self._ends(capacity)
        if fast is None:
            raise Refused("promises", f"One session alone does not keep {capacity.binding}.")
        if fast > self._most(c):
            total = (fast + self.q.spare) * c.count
            available = self.available[c.chip.name]
            raise Refused("count", f"The load needs {total} accelerators or more; there are {available}.")
        rate = completed_per_s(curve, need, serving)
        money = None
        if expected is not None:
            profile = profile_of(need, rate, self.q.peak_to_mean)
            money = money_of(c.chip, c.count, capacity, need, rate, profile, spare=self.q.spare, hosted=self.q.hosted)
        priced = (None, None, None) if money is None else (money.per_hour, money.per_million_tokens, money.per_unit)
        budget = budget_findings(self.q.constraints, *priced)
        broken = next((f for f in budget if f.state == "missed"), None)
        if broken is not None:
            raise Refused("budget", broken.reason)
        findings = (*self.licence, *hardware_findings(self.q.constraints, c.chip, self.allowed), *budget)
        kept = expected is not None and slow is not None and (slow <= serving or slow <= self._most(c))
        decided = kept and one.memory.fit == "yes" and all(f.state == "met" for f in findings)
        return Placement(
            candidate=c,
            memory=one.memory,
            state="met" if decided else "undecided",
            capacity=capacity,
            replicas=serving + self.q.spare,
            estimate=estimate if expected is not None else None,
            money=money,
            findings=findings,
            limited_by=capacity.binding if capacity.binding != ROOM else estimate.limited_by,
            fails_when=tuple(self._fails_when(one, need, capacity, serving, slow)),
            notes=(*_notes(one), *estimate.notes),
        )

    def _fails_when(
        self, one: Fitting, need: Need, capacity: Capacity, serving: int, slow: int | None
    ) -> Iterator[str]:
        yield from one.memory.reasons
        if slow is None:
            yield f"If times come out at the slow end of their range, no load keeps {capacity.binding}."
        elif slow > serving:
            enough = (
                "" if slow <= self._most(one.candidate) else f"; there are accelerators for {self._most(one.candidate)}"
            )
            yield f"If times come out at the slow end of their range, it takes {slow} replicas{enough}."
        end = _ENDS.get(capacity.binding, f"{capacity.binding} is missed")
        if need.users is not None and capacity.users is not None:
            yield f"Beyond {capacity.users.expected:,.0f} users a replica {end}."
        else:
            yield f"Beyond {capacity.requests_per_s.expected:.3g} requests/s a replica {end}."
        yield _outgrown(one.memory)
        if one.request is not None and one.request.cached_tokens and need.turns > 1:
            held = one.memory.sessions[-1].count.expected * serving
            yield (
                f"With more than about {held:,.0f} long sessions open, histories fall out of the prefix cache and are "
                "prefilled again."
            )


def _kept_histories(one: Fitting, need: Need, capacity: Capacity) -> Capacity:
    """Users who come back after a pause find their history only while the cache holds it: they are counted whole."""
    served = capacity.users
    if served is None or need.turns <= 1 or one.request is None or not one.request.cached_tokens:
        return capacity
    mean = one.request.input_tokens + one.request.output_tokens
    held = min(one.memory.sessions, key=lambda sessions: abs(sessions.context - mean)).count
    users = Range(min(served.low, held.low), min(served.expected, held.expected), min(served.high, held.high))
    binding = HISTORIES if users.expected < served.expected else capacity.binding
    return replace(capacity, users=users, binding=binding)


def _outgrown(memory: MemoryPlan) -> str:
    longest = memory.sessions[-1]
    held = f"{longest.count.low:,.0f} to {longest.count.high:,.0f}"
    return f"{held} sessions of {longest.context:,} tokens fit into a replica's cache; the next one waits."


def _notes(one: Fitting) -> tuple[str, ...]:
    found = []
    if not one.candidate.as_stored:
        found.append(f"The checkpoint must be converted to {one.candidate.weights.upper()}.")
    if one.support.note:
        found.append(one.support.note)
    if one.candidate.chip.vendor == "AMD":
        found.append("The memory rules were learnt on NVIDIA; two logs on AMD agree.")
    return tuple(found)
