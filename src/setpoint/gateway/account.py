"""What is known of one exchange while it goes on, and the two journal lines that come of it."""

import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise

from setpoint.gateway.ask import Ask
from setpoint.gateway.gate import CLASSES
from setpoint.gateway.identity import Identity
from setpoint.gateway.incoming import Request
from setpoint.gateway.journal import ITL_BOUNDS_S, Ended, Opened
from setpoint.gateway.prefix import BLOCK_TOKENS
from setpoint.gateway.refusal import Refusal
from setpoint.gateway.relay import Relay
from setpoint.gateway.snapshot import Route
from setpoint.gateway.trace_context import traceparent
from setpoint.protocol.judgement import Observed, judge_length
from setpoint.records.exchange import ChunkKind, Outcome

_REASONING = ChunkKind.REASONING.value  # looked up once: it is compared with every token
LOGGED_BLOCKS = 2  # prompt blocks that one logged hash stands for
CLIENT_CLOSED, NOT_MODIFIED = 499, 304  # statuses of records: neither is sent


class Account:
    """One exchange's facts. They are filled in as the exchange goes on; the lines are made of what is there.

    Args:
        number: The exchange's id.
        request: As it came.
        config: Digest of the configuration that it goes by.

    Attributes:
        arrived: Unix time of its arrival.
        identity: Who asks.
        ask: What for.
        route: Model that serves it, or the last that was tried.
        replica: Engine of the last attempt.
        relay: The last attempt.
        refusal: Why the client gets no answer.
        replayed: The answer that its idempotency key had before was said again.
        cancelled: The client, or the gateway, ended it before its end.
        estimate: Prompt tokens, before the engine has counted them.
        hashes: Prompt blocks.
        predicted: Prompt tokens that the replica was believed to hold.
        rank: Class.
        queue_s: Time spent waiting for a replica.
        attempts: Engines tried.
    """

    __slots__ = (
        "arrived", "ask", "attempts", "cancelled", "config", "estimate", "hashes", "id", "identity", "predicted",
        "queue_s", "rank", "refusal", "relay", "replayed", "replica", "request", "route",
    )  # fmt: skip

    def __init__(self, number: str, request: Request, config: str) -> None:
        self.id = number
        self.request = request
        self.config = config
        self.arrived = time.time()
        self.identity: Identity | None = None
        self.ask: Ask | None = None
        self.route: Route | None = None
        self.replica = ""
        self.relay: Relay | None = None
        self.refusal: Refusal | None = None
        self.replayed = False
        self.cancelled = False
        self.estimate = 0
        self.hashes: list[int] = []
        self.predicted: int | None = None
        self.rank = 0
        self.queue_s = 0.0
        self.attempts = 0

    @property
    def seen(self) -> Observed:
        """What the engine has said so far."""
        return self.relay.reader.seen if self.relay is not None else Observed()

    def used(self) -> tuple[int, int]:
        """Prompt and completion tokens: the engine's counts, else the estimate where it worked at all, and deltas."""
        seen = self.seen
        tokens = seen.completion_tokens if seen.completion_tokens is not None else len(seen.chunk_s)
        if seen.prompt_tokens is not None:
            return seen.prompt_tokens, tokens
        reached = self.relay is not None and (seen.chunk_s or seen.vectors or self.cancelled)
        return self.estimate if reached else 0, tokens

    def opened(self) -> Opened:
        """The line of a dispatch."""
        assert self.ask is not None
        assert self.identity is not None
        assert self.route is not None
        return Opened(
            id=self.id,
            time=self.arrived,
            tenant=self.identity.tenant,
            key=self.identity.key,
            model=self.route.name,
            replica=self.replica,
            dialect=self.ask.dialect.value,
            prompt_tokens=self.estimate,
        )

    def ended(self, mark: Callable[[str], str], *, client_gone: bool) -> Ended:
        """The line of the end.

        Args:
            mark: Turns a token's subject into a keyed hash.
            client_gone: Whether the client has left.
        """
        outcome, reason, status = self._outcome(client_gone=client_gone)
        identity, ask, began, seen = self.identity, self.ask, self.request.received_s, self.seen
        prompt, tokens = self.used()
        visible = seen.chunk_s
        if _REASONING in seen.chunk_kinds:
            visible = [t for t, kind in zip(seen.chunk_s, seen.chunk_kinds, strict=True) if kind != _REASONING]
        itl, stall_s = _gaps(visible)
        blocks = self.hashes[LOGGED_BLOCKS - 1 :: LOGGED_BLOCKS]
        return Ended(
            id=self.id,
            time=self.arrived,
            tenant=identity.tenant if identity is not None else "",
            key=identity.key if identity is not None else None,
            subject=mark(identity.subject) if identity is not None and identity.subject else None,
            model=self.route.name if self.route is not None else "",
            replica=self.replica,
            dialect=ask.dialect.value if ask is not None else "",
            priority=CLASSES[self.rank],
            stream=ask.stream if ask is not None else False,
            status=status,
            sent_status=200 if self._head_was_200() else status,
            outcome=outcome.value,
            reason=reason,
            prompt_tokens=prompt,
            completion_tokens=tokens,
            cached_tokens=seen.cached_tokens,
            reasoning_tokens=seen.reasoning_tokens,
            predicted_tokens=self.predicted,
            estimated=seen.prompt_tokens is None,
            queue_s=_micros(self.queue_s),
            ttft_s=_micros(visible[0] - began) if visible else None,
            latency_s=_micros(time.monotonic() - began),
            stall_s=stall_s,
            itl=itl,
            itl_sum_s=_micros(visible[-1] - visible[0]) if itl is not None else 0.0,
            attempts=self.attempts,
            prefix_blocks=blocks or None,
            block_tokens=BLOCK_TOKENS * LOGGED_BLOCKS if blocks else None,
            finish_reason=seen.finish_reason,
            tool_calls=len(seen.calls),
            config=self.config,
            trace=traceparent(self.request.fields),
        )

    def _head_was_200(self) -> bool:
        if self.replayed or (self.relay is not None and self.relay.passed_on):
            return True
        return self.refusal is not None and self.refusal.within_stream

    def _outcome(self, *, client_gone: bool) -> tuple[Outcome, str | None, int]:
        """Outcome, reason, and the status that tells it."""
        relay, refusal = self.relay, self.refusal
        judgement = relay.judgement if relay is not None else None
        if judgement is not None and self.ask is not None and self.ask.limit is not None:
            judgement = judge_length(judgement, self.ask.limit)  # the client has the engine's own end all the same
        if self.replayed:
            return Outcome.COMPLETE, "said again", NOT_MODIFIED
        if self.cancelled:
            return Outcome.CANCELLED, "the client left" if client_gone else "the gateway ended", CLIENT_CLOSED
        if judgement is not None and (refusal is None or refusal.code not in ("no_replica", "queue_full")):
            status = refusal.status if refusal is not None else 200
            if refusal is None and judgement.outcome is Outcome.REFUSED and relay is not None:
                status = relay.status
            elif refusal is None and relay is not None and not relay.healthy:
                status = 504 if judgement.outcome is Outcome.TIMEOUT else 502
            return judgement.outcome, judgement.error, status
        assert refusal is not None
        status = refusal.status
        kinds = {429: Outcome.REJECTED, 503: Outcome.REJECTED, 504: Outcome.TIMEOUT}
        return kinds.get(status, Outcome.REFUSED if status < 500 else Outcome.ERROR), refusal.code, status


def _micros(seconds: float) -> float:
    """Cut to whole microseconds; ``round`` takes ten times as long."""
    return int(seconds * 1e6) / 1e6


def _gaps(times: list[float]) -> tuple[list[int] | None, float | None]:
    """Gaps counted by size, and the longest."""
    if len(times) < 2:
        return None, None
    counts = [0] * (len(ITL_BOUNDS_S) + 1)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    for gap in gaps:
        counts[bisect_left(ITL_BOUNDS_S, gap)] += 1
    return counts, _micros(max(gaps))
