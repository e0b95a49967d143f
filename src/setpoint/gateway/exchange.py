"""One request from its arrival to its journal line.

Everything that it holds (a place at a replica, a reservation, a connection) is given back in ``finally``, so that a
client that leaves, whenever it leaves, is a cancelled task and nothing more.
"""

import asyncio
import logging
import secrets
import time
from bisect import bisect_left
from typing import TYPE_CHECKING

import msgspec

from setpoint.client.address import describe_failure
from setpoint.client.connection import Connection
from setpoint.gateway.ask import BY_PATH, Ask, read_ask
from setpoint.gateway.config import DIALECTS
from setpoint.gateway.downstream import Request, ServerConnection
from setpoint.gateway.gate import CLASSES, Lease, Ticket, prompt_key
from setpoint.gateway.identity import Identity
from setpoint.gateway.journal import ITL_BOUNDS_S, Ended, Opened
from setpoint.gateway.limits import LimitReached, Reservation
from setpoint.gateway.prefix import BLOCK_TOKENS, chain
from setpoint.gateway.refusal import Refusal, no_capacity
from setpoint.gateway.relay import Relay
from setpoint.gateway.replica import traceparent
from setpoint.gateway.silence import SILENCE, keep_silent
from setpoint.gateway.snapshot import Route
from setpoint.protocol.judgement import Observed
from setpoint.protocol.requests import PATHS
from setpoint.protocol.translate import TRANSLATED
from setpoint.records.exchange import ChunkKind, Outcome
from setpoint.records.target import Dialect

if TYPE_CHECKING:
    from setpoint.gateway.plane import Plane

COUNT_TOKENS = "/v1/messages/count_tokens"
LOGGED_BLOCKS = 2  # prompt blocks that one logged hash stands for
_log = logging.getLogger(__name__)


class Exchange:
    """One request.

    Args:
        plane: Whose.
        client: Where the answer goes.
        request: As it came.
    """

    __slots__ = (
        "_arrived", "_ask", "_attempts", "_cancelled", "_client", "_estimate", "_fields", "_hashes", "_identity",
        "_lease", "_plane", "_predicted", "_priority", "_queue_s", "_refusal", "_replica", "_request", "_reservation",
        "_route", "_snapshot", "id", "relay",
    )  # fmt: skip

    def __init__(self, plane: "Plane", client: ServerConnection, request: Request) -> None:
        self.id = secrets.token_hex(12)
        self.relay: Relay | None = None
        self._plane = plane
        self._snapshot = plane.snapshot
        self._client = client
        self._request = request
        self._arrived = time.time()
        self._fields = [("x-request-id", self.id)]
        self._identity: Identity | None = None
        self._ask: Ask | None = None
        self._route: Route | None = None
        self._lease: Lease | None = None
        self._replica = ""
        self._reservation: Reservation | None = None
        self._refusal: Refusal | None = None
        self._cancelled = False
        self._estimate = 0
        self._hashes: list[int] = []
        self._predicted: int | None = None
        self._priority = 0
        self._queue_s = 0.0
        self._attempts = 0

    async def run(self) -> None:
        """Serves the request; failures are answers, never exceptions."""
        try:
            await self._serve()
        except Refusal as refusal:
            self._tell(refusal)
        except LimitReached as reached:
            self._tell(_over(reached))
        except asyncio.CancelledError:
            self._cancelled = self.relay is None or self.relay.judgement is None  # a client may leave once it has all
            raise
        except Exception as error:  # noqa: BLE001 - the supervision boundary of one request: no other may suffer
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
            _log.error("exchange %s failed: %s at %s", self.id, type(error).__name__, where)
            self._tell(Refusal(500, "internal", "The gateway failed."))
        finally:
            self._account()

    # the way there

    async def _serve(self) -> None:
        identity = self._identity = await self._snapshot.auth.identify(self._request.fields)
        if "inference" not in identity.scopes:
            raise Refusal(403, "scope", "These credentials are not for inference.")
        dialect = BY_PATH.get(self._request.path)
        if dialect is None and self._request.path.startswith(SILENCE):
            self._reservation = await self._plane.limits.reserve(identity.holders, 0)
            await keep_silent(self._client, self._request.path.removeprefix(SILENCE), self._fields)
            return
        if dialect is None and self._request.path == COUNT_TOKENS and self._request.method == "POST":
            self._count_tokens(identity)
            return
        if dialect is None:
            self._serve_models(identity)
            return
        if self._request.method != "POST":
            raise Refusal(405, "method", "This address takes POST.")
        ask = self._ask = read_ask(self._request.body, dialect)
        self._request.body = b""  # the members hold it; one copy is enough
        routes = self._snapshot.resolve(ask.model, identity)
        self._route = routes[0]
        await self._reserve(identity, ask, routes[0])
        for position, route in enumerate(routes):
            self._route = route
            try:
                await self._attempt(identity, ask, route)
            except Refusal as refusal:
                if position == len(routes) - 1 or refusal.status < 500 or refusal.code == "draining":
                    raise
            else:
                return

    def _serve_models(self, identity: Identity) -> None:
        path, method = self._request.path, self._request.method
        names = self._snapshot.visible(identity)
        wanted = path.removeprefix("/v1/models/") if path.startswith("/v1/models/") else None
        if path != "/v1/models" and (wanted is None or wanted not in names):
            raise Refusal(404, "not_found", "There is nothing here for these credentials.")
        if method != "GET":
            raise Refusal(405, "method", "This address takes GET.")
        entries = [{"id": n, "object": "model", "created": 0, "owned_by": "setpoint"} for n in names]
        chosen = next((e for e in entries if e["id"] == wanted), None)
        body = msgspec.json.encode(chosen or {"object": "list", "data": entries, "has_more": False})
        self._client.reply(200, body, self._fields)

    def _count_tokens(self, identity: Identity) -> None:
        """Anthropic's count before the call: estimated from what the engine counted of earlier prompts."""
        ask = read_ask(self._request.body, Dialect.MESSAGES)
        route = self._snapshot.resolve(ask.model, identity)[0]
        body = msgspec.json.encode({"input_tokens": route.estimate(ask.prompt_bytes)})
        self._client.reply(200, body, [*self._fields, ("x-setpoint-origin", "estimated")])

    async def _reserve(self, identity: Identity, ask: Ask, route: Route) -> None:
        """Sets the most that this request can use aside."""
        self._estimate = route.estimate(ask.prompt_bytes)
        if identity.max_context is not None and self._estimate > identity.max_context:
            raise Refusal(400, "max_context", f"The prompt is longer than the {identity.max_context} tokens allowed.")
        if identity.max_output is not None and (ask.max_output or 0) > identity.max_output:
            raise Refusal(400, "max_output", f"At most {identity.max_output} tokens of output are allowed.")
        output = 0 if ask.dialect is Dialect.EMBEDDINGS else ask.max_output or self._default_output(identity, route)
        self._reservation = await self._plane.limits.reserve(identity.holders, self._estimate + output)

    @staticmethod
    def _default_output(identity: Identity, route: Route) -> int:
        return identity.max_output or route.model.default_output

    async def _attempt(self, identity: Identity, ask: Ask, route: Route) -> None:
        """Tries replicas of one model.

        Raises:
            Refusal: none answered, and nothing was passed on.
        """
        engine = engine_dialect(ask.dialect, [DIALECTS[name] for name in route.model.dialects])
        if engine is None:
            raise Refusal(400, "dialect", f"The model {ask.model!r} does not speak this dialect.")
        salt = self._plane.salt(identity.tenant)
        self._hashes = chain(f"{route.name}\0{salt}".encode(), ask.parts)
        wanted = self._request.fields.get("x-setpoint-class", identity.priority)
        self._priority = 1 if "batch" in (identity.priority, wanted) else 0
        ticket = Ticket(
            identity.tenant, identity.weight, self._priority, self._estimate,
            prompt_key(self._hashes, int(self.id[:15], 16)), self._hashes, deadline_s=self._deadline_s(),
        )  # fmt: skip
        route.asked()
        failure: Refusal | None = None
        for number in range(route.model.retries.attempts):
            if number and not route.may_retry():
                break
            before = time.monotonic()
            try:
                lease = self._lease = await route.gate.enter(ticket)
            except Refusal as refusal:
                raise failure or refusal from None
            finally:
                self._queue_s += time.monotonic() - before
            relay = await self._forward(identity, ask, engine, route, lease, salt)
            if relay.refusal is None:
                return
            failure = relay.refusal
            if not relay.retryable:
                break
            ticket.exclude.add(lease.replica.name)
        raise failure or no_capacity(1.0)

    def _deadline_s(self) -> float | None:
        text = self._request.fields.get("x-setpoint-timeout-ms")
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()):
            raise Refusal(400, "invalid_request", "The field x-setpoint-timeout-ms must be a number of milliseconds.")
        return self._request.received_s + int(text) / 1000

    async def _forward(
        self, identity: Identity, ask: Ask, engine: Dialect, route: Route, lease: Lease, salt: str
    ) -> Relay:
        """One attempt, from connection to verdict."""
        replica, now = lease.replica, time.monotonic()
        self._replica, self._predicted = replica.name, lease.predicted_tokens
        self._attempts += 1
        relay = self.relay = Relay(
            self._client, ask, engine, route.model.timeouts,
            pass_empty=self._snapshot.config.empty_answers == "pass", fields=self._fields,
            started_s=self._request.received_s,
        )  # fmt: skip
        relay.sent_s = relay.last_s = now
        try:
            body = ask.body(
                engine,
                model=replica.model,
                salt=salt if route.model.cache_salt else None,
                max_output=identity.max_output
                or (route.model.default_output if engine is Dialect.MESSAGES is not ask.dialect else None),
            )
        except Refusal:
            lease.release()
            raise
        payload = replica.request(PATHS[engine], body, self.id, self._request.fields)
        self._plane.journal.write(self._opened(identity, route))
        connection: Connection | None = None
        fresh = False
        try:
            while True:
                connection = None if fresh else replica.pool.take()
                reused = connection is not None
                if connection is None:
                    try:
                        async with asyncio.timeout(route.model.timeouts.connect):
                            connection = await replica.pool.connect()
                    except (OSError, TimeoutError) as error:
                        timeout = isinstance(error, TimeoutError)
                        relay.unreachable(describe_failure(error), time.monotonic(), timeout=timeout)
                        break
                relay.begin(connection, reused=reused, now_s=time.monotonic())
                self._client.on_pause, self._client.on_resume = connection.pause_reading, connection.resume_reading
                if self._client.paused:
                    connection.pause_reading()
                connection.send(payload, relay)
                await relay.done
                if not relay.stale:
                    break
                fresh = True
        finally:
            if connection is not None:
                if relay.judgement is not None and connection.usable and not connection.busy:
                    connection.resume_reading()
                    replica.pool.give_back(connection)
                else:
                    connection.abort()
            lease.release()
            if relay.healthy:
                replica.succeeded()
            elif relay.judgement is not None:
                replica.failed()
        return relay

    # the way back

    def prefilled(self) -> None:
        """Called a few times a second: once the first token is there, the prompt stands in nobody's way."""
        relay = self.relay
        if relay is not None and self._lease is not None and relay.first_token_s is not None:
            self._lease.prefilled()

    def _tell(self, refusal: Refusal) -> None:
        """The client hears why, as far as it has heard nothing else."""
        self._refusal = refusal
        client, dialect = self._client, BY_PATH.get(self._request.path)
        if client.gone:
            return
        if not client.committed:
            anthropic = Dialect.MESSAGES if self._request.path.startswith("/v1/messages") else dialect
            client.reply(refusal.status, refusal.body(anthropic), refusal.fields + self._fields)
        elif self._ask is not None:
            client.end(refusal.event(self._ask.dialect))

    def _account(self) -> None:
        """Gives back, charges, and writes the line."""
        if self._lease is not None:
            self._lease.release()
        relay = self.relay
        seen = relay.reader.seen if relay is not None else Observed()
        counted = seen.prompt_tokens is not None
        tokens = seen.completion_tokens if seen.completion_tokens is not None else len(seen.chunk_s)
        reached = relay is not None and (seen.chunk_s or seen.vectors or counted or self._cancelled)
        prompt = seen.prompt_tokens if seen.prompt_tokens is not None else (self._estimate if reached else 0)
        if self._reservation is not None:
            self._plane.limits.settle(self._reservation, prompt + tokens)
        if self._ask is None and self._refusal is None and not self._cancelled:
            return  # a list of models
        if seen.prompt_tokens is not None and self._route is not None and self._ask is not None:
            self._route.learn(self._ask.prompt_bytes, seen.prompt_tokens)
        self._plane.journal.write(self._ended(seen, prompt, tokens, estimated=not counted))

    def _outcome(self) -> tuple[Outcome, str | None, int]:
        """Outcome, reason, and the status that tells it."""
        judgement = self.relay.judgement if self.relay is not None else None
        if self._cancelled:
            return Outcome.CANCELLED, "the client left" if self._client.gone else "the gateway ended", 499
        if judgement is not None and (self._refusal is None or self._refusal.code not in ("no_replica", "queue_full")):
            status = self._refusal.status if self._refusal is not None else 200
            if self._refusal is None and judgement.outcome is Outcome.REFUSED and self.relay is not None:
                status = self.relay.status
            elif self._refusal is None and self.relay is not None and not self.relay.healthy:
                status = 504 if judgement.outcome is Outcome.TIMEOUT else 502
            return judgement.outcome, judgement.error, status
        assert self._refusal is not None
        status = self._refusal.status
        kinds = {429: Outcome.REJECTED, 503: Outcome.REJECTED, 504: Outcome.TIMEOUT}
        return kinds.get(status, Outcome.REFUSED if status < 500 else Outcome.ERROR), self._refusal.code, status

    def _opened(self, identity: Identity, route: Route) -> Opened:
        assert self._ask is not None
        return Opened(
            id=self.id,
            time=self._arrived,
            tenant=identity.tenant,
            key=identity.key,
            model=route.name,
            replica=self._replica,
            dialect=self._ask.dialect.value,
            prompt_tokens=self._estimate,
        )

    def _ended(self, seen: Observed, prompt: int, tokens: int, *, estimated: bool) -> Ended:
        outcome, reason, status = self._outcome()
        identity, ask, began = self._identity, self._ask, self._request.received_s
        visible = [
            t for t, kind in zip(seen.chunk_s, seen.chunk_kinds, strict=True) if kind != ChunkKind.REASONING.value
        ]
        itl, stall_s = _gaps(visible)
        sent = 200 if self.relay is not None and self.relay.passed_on else status
        blocks = self._hashes[LOGGED_BLOCKS - 1 :: LOGGED_BLOCKS]
        return Ended(
            id=self.id,
            time=self._arrived,
            tenant=identity.tenant if identity is not None else "",
            key=identity.key if identity is not None else None,
            subject=self._plane.mark(identity.subject) if identity is not None and identity.subject else None,
            model=self._route.name if self._route is not None else "",
            replica=self._replica,
            dialect=ask.dialect.value if ask is not None else "",
            priority=CLASSES[self._priority],
            stream=ask.stream if ask is not None else False,
            status=status,
            sent_status=sent,
            outcome=outcome.value,
            reason=reason,
            prompt_tokens=prompt,
            completion_tokens=tokens,
            cached_tokens=seen.cached_tokens,
            reasoning_tokens=seen.reasoning_tokens,
            predicted_tokens=self._predicted,
            estimated=estimated,
            queue_s=round(self._queue_s, 6),
            ttft_s=round(visible[0] - began, 6) if visible else None,
            latency_s=round(time.monotonic() - began, 6),
            stall_s=stall_s,
            itl=itl,
            itl_sum_s=round(visible[-1] - visible[0], 6) if itl is not None else 0.0,
            attempts=self._attempts,
            prefix_blocks=blocks or None,
            block_tokens=BLOCK_TOKENS * LOGGED_BLOCKS if blocks else None,
            finish_reason=seen.finish_reason,
            tool_calls=len(seen.calls),
            config=self._snapshot.digest,
            trace=traceparent(self._request.fields),
        )


def _gaps(times: list[float]) -> tuple[list[int] | None, float | None]:
    """Gaps counted by size, and the longest."""
    if len(times) < 2:
        return None, None
    counts = [0] * (len(ITL_BOUNDS_S) + 1)
    longest = 0.0
    for i in range(1, len(times)):
        gap = times[i] - times[i - 1]
        counts[bisect_left(ITL_BOUNDS_S, gap)] += 1
        longest = max(longest, gap)
    return counts, round(longest, 6)


def _over(reached: LimitReached) -> Refusal:
    words = reached.limit.replace("_", " ")
    if reached.limit == "unreachable":
        return Refusal(503, "limits", "Allowances cannot be checked at the moment.", retry_after_s=1)
    if reached.retry_after_s is None:
        return Refusal(400, reached.limit, f"The request is larger than the whole allowance of {words}.")
    return Refusal(429, reached.limit, f"The allowance of {words} is used up.", retry_after_s=reached.retry_after_s)


def engine_dialect(asked: Dialect, spoken: list[Dialect]) -> Dialect | None:
    """The dialect in which an engine is asked: the client's where it speaks it, else one that is translated."""
    if asked in spoken:
        return asked
    return next((dialect for dialect in spoken if (asked, dialect) in TRANSLATED), None)
