"""Who is next at a model: bounded queues by class, shares by tenant, deadlines; then the policy says where to.

Shares follow start-time fair queueing (Goyal, Vin and Cheng 1996): a ticket's tag is the later of the queue's virtual
time and its tenant's last finish, which advances by cost over weight; the lowest tag goes first. Interactive tickets
go before batch tickets. Every worker process has its own queue; a replica's limit is counted over all of them.
"""

import asyncio
import heapq
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from setpoint.gateway.config import Model
from setpoint.gateway.demand import Demand
from setpoint.gateway.policies import make_policy
from setpoint.gateway.policies.policy import Prompt
from setpoint.gateway.refusal import Refusal, loading, no_capacity
from setpoint.gateway.replica import DOWN, HELD_FOR, Replica, now_us

POLL_S = 0.01  # a place that another worker process freed is found by looking
LOOK = 16  # entries at the head of the queue among which one is found whose prefix a free replica holds
MAX_PASSED_OVER = 4
CLASSES = ("interactive", "batch")


@dataclass(slots=True, eq=False)
class Ticket:
    """A request that wants a replica.

    Attributes:
        tenant: Whose.
        weight: Of the tenant.
        rank: 0 interactive, 1 batch.
        tokens: Estimated prompt.
        key: Hash of the prompt's beginning.
        hashes: Its block chain.
        exclude: Replicas that failed it.
        token_ids: Its token ids, four bytes each, where they are known.
        salt: Cache salt that goes with it.
        deadline_s: Monotonic; None leaves it to the class.
        passed_over: How often a later one took the place that was its turn.
    """

    tenant: str
    weight: float
    rank: int
    tokens: int
    key: int
    hashes: list[int]
    exclude: set[str] = field(default_factory=set)
    deadline_s: float | None = None
    token_ids: bytes | None = None
    salt: str | None = None
    until_s: float = 0.0
    passed_over: int = 0
    future: "asyncio.Future[Lease] | None" = None


class Lease:
    """A place at a replica. ``prefilled`` and ``release`` may be called any number of times.

    Attributes:
        replica: Where.
        predicted_tokens: Prompt tokens that its cache was believed to hold.
    """

    __slots__ = ("_on_release", "_queued", "_released", "_taken_s", "predicted_tokens", "replica")

    def __init__(
        self, replica: Replica, predicted_tokens: int, queued: int, on_release: Callable[[float], None]
    ) -> None:
        self.replica = replica
        self.predicted_tokens = predicted_tokens
        self._queued = queued
        self._released = False
        self._taken_s = time.monotonic()
        self._on_release = on_release

    @property
    def released(self) -> bool:
        """Whether the place was given back."""
        return self._released

    def prefilled(self) -> None:
        """The first token came."""
        if self._queued:
            self.replica.prefilled(self._queued)
            self._queued = 0

    def release(self) -> None:
        """The request has ended."""
        if not self._released:
            self._released = True
            self.prefilled()
            self.replica.give()
            self._on_release(time.monotonic() - self._taken_s)


class Gate:
    """The way to the replicas of one model, in one worker process.

    Args:
        model: Its configuration.
        replicas: Its replicas.
        gauge: Told the change of waiting tickets by class.
        demand: Told that somebody asks; says when a model that is held for is likely to answer.
    """

    def __init__(
        self, model: Model, replicas: list[Replica], gauge: Callable[[int, int], None], demand: Demand
    ) -> None:
        self._queue = model.queue
        self.demand = demand
        self.replicas = replicas
        self._policy = make_policy(model.routing)
        self._gauge = gauge
        self._heap: list[tuple[int, float, int, Ticket]] = []
        self._waiting: Counter[int] = Counter()
        self._by_tenant: Counter[tuple[int, str]] = Counter()
        self._finish: dict[str, float] = {}
        self._virtual = 0.0
        self._number = 0
        self._service_s = 1.0
        self._poller: asyncio.TimerHandle | None = None

    async def enter(self, ticket: Ticket) -> Lease:
        """A place at a replica, at once or after waiting.

        Raises:
            Refusal: 503, with the time after which it is worth trying again.
        """
        self.demand.ask()
        if not self._waiting[0] and not self._waiting[1]:
            lease = self._place(ticket)
            if lease is not None:
                return lease
        self._refuse_hopeless(ticket)
        self._push(ticket)
        assert ticket.future is not None
        try:
            return await ticket.future
        except asyncio.CancelledError:
            if ticket.future.done() and not ticket.future.cancelled() and ticket.future.exception() is None:
                ticket.future.result().release()  # the place came in the moment in which its client left
            raise
        finally:
            self._left(ticket)

    def _place(self, ticket: Ticket) -> Lease | None:
        """A place now, or None."""
        exclude = ticket.exclude
        while True:
            at_us = now_us()
            able, seen = [], []
            for replica in self.replicas:
                if replica.name not in exclude:
                    one = replica.candidate(ticket.hashes, ticket.token_ids, ticket.salt, at_us)
                    if one is not None:
                        able.append(replica)
                        seen.append(one)
            if not able:
                return None
            chosen = self._policy.choose(seen, Prompt(ticket.tokens, ticket.key))
            replica, predicted = able[chosen], min(seen[chosen].cached_tokens, ticket.tokens)
            queued = max(0, ticket.tokens - predicted)
            if replica.take(queued):
                if ticket.hashes:
                    replica.index.insert(ticket.hashes)
                return Lease(replica, predicted, queued, self._released)

    def _refuse_hopeless(self, ticket: Ticket) -> None:
        """Says no at once where waiting is in vain, and sets how long this ticket waits."""
        now = time.monotonic()
        wait_s = self._queue.batch_wait if ticket.rank else self._queue.interactive_wait
        expected_s = self.expected_wait_s(ticket.rank)
        deadline_s = ticket.deadline_s
        if self._held(ticket):
            wait_s = self._queue.loading_wait
            remaining_s = self.demand.remaining_s()
            if deadline_s is not None and self.demand.known and now + remaining_s > deadline_s:
                raise loading(remaining_s)
            expected_s = max(expected_s, remaining_s)
        else:
            left = [r for r in self.replicas if r.name not in ticket.exclude]
            if not any(_serving(r) for r in left):
                raise no_capacity(min((r.ejected_for_s for r in left), default=1.0), "no_replica")
            if now + expected_s > min(now + wait_s, deadline_s or math.inf):
                raise no_capacity(expected_s, "deadline")
        ticket.until_s = min(now + wait_s, deadline_s or math.inf)
        if self._waiting[ticket.rank] >= self._queue.size and not self._make_room(ticket):
            raise no_capacity(expected_s, "queue_full")

    def _held(self, ticket: Ticket) -> bool:
        """Whether no replica serves, and one loads or will be started because of this ticket."""
        left = [r for r in self.replicas if r.name not in ticket.exclude]
        return not any(_serving(r) for r in left) and any(r.state in HELD_FOR for r in left)

    @property
    def service_s(self) -> float:
        """Recent mean of the time that a request has its place for."""
        return self._service_s

    def expected_wait_s(self, rank: int) -> float:
        """How long a new ticket of a class would wait: those before it, at the recent service time."""
        before = sum(count for other, count in self._waiting.items() if other <= rank)
        places = sum(r.config.max_in_flight for r in self.replicas) or 1
        return before * self._service_s / places

    def _make_room(self, ticket: Ticket) -> bool:
        """In a full queue the tenant with most waiting for its weight gives way to one with less."""
        heaviest: tuple[float, Ticket] | None = None
        for rank, _, _, other in self._heap:
            if rank == ticket.rank and other.future is not None and not other.future.done():
                share = self._by_tenant[rank, other.tenant] / other.weight
                if heaviest is None or share >= heaviest[0]:
                    heaviest = (share, other)
        mine = (self._by_tenant[ticket.rank, ticket.tenant] + 1) / ticket.weight
        if heaviest is None or heaviest[1].tenant == ticket.tenant or heaviest[0] <= mine:
            return False
        out = heaviest[1]
        assert out.future is not None
        out.future.set_exception(no_capacity(self.expected_wait_s(out.rank), "queue_full"))
        self._left(out)
        return True

    def _push(self, ticket: Ticket) -> None:
        ticket.future = asyncio.get_running_loop().create_future()
        start = max(self._virtual, self._finish.get(ticket.tenant, 0.0))
        self._finish[ticket.tenant] = start + max(ticket.tokens, 1) / ticket.weight
        self._number += 1
        heapq.heappush(self._heap, (ticket.rank, start, self._number, ticket))
        self._waiting[ticket.rank] += 1
        self._by_tenant[ticket.rank, ticket.tenant] += 1
        self._gauge(ticket.rank, 1)
        self._poll()
        if self._heap[0][3].exclude:  # the first may wait for one replica while another is free
            self._pump()

    def _left(self, ticket: Ticket) -> None:
        """The ticket waits no longer, for whatever reason; counted once."""
        if ticket.until_s:
            ticket.until_s = 0.0
            self._waiting[ticket.rank] -= 1
            self._by_tenant[ticket.rank, ticket.tenant] -= 1
            self._gauge(ticket.rank, -1)

    def _released(self, service_s: float) -> None:
        self._service_s += 0.1 * (service_s - self._service_s)
        self._pump()

    def _poll(self) -> None:
        if self._poller is None and self._heap:
            self._poller = asyncio.get_running_loop().call_later(POLL_S, self._polled)

    def _polled(self) -> None:
        self._poller = None
        self._expire()
        self._pump()
        self._poll()

    def _expire(self) -> None:
        now = time.monotonic()
        for _, _, _, ticket in self._heap:
            if ticket.future is not None and not ticket.future.done() and now >= ticket.until_s:
                held, wait_s = self._held(ticket), self.expected_wait_s(ticket.rank)
                late = loading(self.demand.remaining_s()) if held else no_capacity(wait_s, "queue_timeout")
                ticket.future.set_exception(late)

    def _pump(self) -> None:
        """Gives free places to those whose turn it is. Who may take none of them after a failure stops nobody."""
        stuck = []
        while self._heap:
            _, tag, _, ticket = self._heap[0]
            assert ticket.future is not None
            if ticket.future.done():
                heapq.heappop(self._heap)
                continue
            chosen = self._warmest(ticket)
            lease = self._place(chosen)
            if lease is None:
                if chosen is not ticket or not ticket.exclude:
                    break
                stuck.append(heapq.heappop(self._heap))
                continue
            self._virtual = max(self._virtual, tag)
            if chosen is not ticket:
                ticket.passed_over += 1
            assert chosen.future is not None
            chosen.future.set_result(lease)  # its entry goes once it is the first
        for entry in stuck:
            heapq.heappush(self._heap, entry)
        if not self._heap:
            self._finish.clear()
            self._virtual = 0.0

    def _warmest(self, first: Ticket) -> Ticket:
        """Who of those next in turn takes a free place: the one of whose prompt a free replica holds most.

        Only tickets of the first one's class and tenant before which no other's stands are looked at, so that nobody
        else waits longer for it. The first is passed over ``MAX_PASSED_OVER`` times, and not when its time is short.
        """
        at_us, left_s = now_us(), first.until_s - time.monotonic()
        if first.passed_over >= MAX_PASSED_OVER or left_s < self._service_s * MAX_PASSED_OVER:
            return first
        if all(replica.candidate([], None, None, at_us) is None for replica in self.replicas):
            return first
        best, most = first, -1
        for _, _, _, ticket in heapq.nsmallest(LOOK, self._heap):
            assert ticket.future is not None
            if ticket.future.done():
                continue
            if (ticket.rank, ticket.tenant) != (first.rank, first.tenant):
                break
            held = -1
            for replica in self.replicas:
                if replica.name not in ticket.exclude:
                    one = replica.candidate(ticket.hashes, ticket.token_ids, ticket.salt, at_us)
                    if one is not None:
                        held = max(held, one.cached_tokens)
            if held > most:
                best, most = ticket, held
        return best

    def refuse_all(self) -> None:
        """The process ends: nobody waits any longer."""
        for _, _, _, ticket in self._heap:
            if ticket.future is not None and not ticket.future.done():
                ticket.future.set_exception(Refusal(503, "draining", "The gateway is ending.", retry_after_s=1))


def _serving(replica: Replica) -> bool:
    """Whether it takes requests, or will again once those that it has are done."""
    if replica.available():
        return True
    return bool(replica.in_flight) and not replica.ejected_for_s and replica.state not in (DOWN, *HELD_FOR)


def prompt_key(hashes: list[int], fallback: int) -> int:
    """What cold prompts that begin alike have in common: their first blocks, else ``fallback``."""
    return hashes[min(3, len(hashes) - 1)] if hashes else fallback
