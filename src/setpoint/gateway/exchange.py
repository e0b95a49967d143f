"""One request from its arrival to its journal line.

Everything that it holds (a place at a replica, a reservation, a connection) is given back in ``finally``, so that a
client that leaves, whenever it leaves, is a cancelled flow and nothing more.
"""

import asyncio
import logging
import time
from random import getrandbits
from typing import TYPE_CHECKING

from setpoint.client.address import describe_failure
from setpoint.client.connection import Connection
from setpoint.gateway.account import Account
from setpoint.gateway.ask import BY_PATH, Ask, read_ask
from setpoint.gateway.catalogue import COUNT_TOKENS, counted_tokens, models
from setpoint.gateway.downstream import ServerConnection
from setpoint.gateway.gate import Lease, Ticket, prompt_key
from setpoint.gateway.idempotency import Claim, Kept
from setpoint.gateway.identity import Identity
from setpoint.gateway.incoming import Request
from setpoint.gateway.limits import NO_ROW, LimitReached, Reservation
from setpoint.gateway.prefix import chain
from setpoint.gateway.refusal import Refusal, no_capacity
from setpoint.gateway.relay import Relay, open_stream
from setpoint.gateway.replica import Replica
from setpoint.gateway.silence import SILENCE, keep_silent
from setpoint.gateway.snapshot import Route
from setpoint.gateway.tokenization import token_ids
from setpoint.protocol.requests import PATHS
from setpoint.protocol.translate import TRANSLATED, ping
from setpoint.records.target import Dialect

if TYPE_CHECKING:
    from setpoint.gateway.plane import Plane

MAX_KEY = 2**60 - 1
MAX_DIGITS = 12  # of a time in milliseconds
LONGEST_WAIT_S = 60.0  # the official clients take no longer time from Retry-After
_log = logging.getLogger(__name__)


class Exchange:
    """One request.

    Args:
        plane: Whose.
        client: Where the answer goes.
        request: As it came.
    """

    __slots__ = (
        "_claim", "_client", "_fields", "_lease", "_number", "_plane", "_request", "_reservation", "_snapshot",
        "_spoke_s", "account", "id",
    )  # fmt: skip

    def __init__(self, plane: "Plane", client: ServerConnection, request: Request) -> None:
        number = getrandbits(96)
        self.id = f"{number:024x}"
        self._number = number
        self._plane = plane
        self._snapshot = plane.snapshot
        self._client = client
        self._request = request
        self._fields = [("x-request-id", self.id)]
        self._lease: Lease | None = None
        self._reservation: Reservation | None = None
        self._claim: Claim | None = None
        self._spoke_s = 0.0
        self.account = Account(self.id, request, self._snapshot.digest)

    @property
    def relay(self) -> Relay | None:
        """The attempt under way, or the last one."""
        return self.account.relay

    async def run(self) -> None:
        """Serves the request; failures are answers, never exceptions."""
        try:
            await self._serve()
        except Refusal as refusal:
            self._tell(refusal)
        except LimitReached as reached:
            self._tell(self._over(reached))
        except asyncio.CancelledError:
            # a client may leave once it has all
            self.account.cancelled = self.relay is None or self.relay.judgement is None
            raise
        except Exception as error:  # noqa: BLE001 - the supervision boundary of one request: no other may suffer
            trace = error.__traceback__
            while trace is not None and trace.tb_next is not None:
                trace = trace.tb_next
            where = "" if trace is None else f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
            _log.error("exchange %s failed: %s at %s", self.id, type(error).__name__, where)
            self._tell(Refusal(500, "internal", "The gateway failed."))
        finally:
            self._close()

    def ended(self, cancelled: bool) -> None:  # noqa: FBT001 - a callback's argument
        """All was given back: the connection may go on."""
        self._plane.exchanges.discard(self)
        self._client.served(cancelled)

    # the way there

    async def _serve(self) -> None:
        identity = self.account.identity = await self._snapshot.auth.identify(
            self._request.fields, self._request.certificate
        )
        if "inference" not in identity.scopes:
            raise Refusal(403, "scope", "These credentials are not for inference.")
        path = self._request.path
        dialect = BY_PATH.get(path)
        if dialect is None:
            await self._serve_otherwise(identity, path)
            return
        if self._request.method != "POST":
            raise Refusal(405, "method", "This address takes POST.")
        ask = self.account.ask = read_ask(self._request.body, dialect)
        routes = self._snapshot.resolve(ask.model, identity)
        self.account.route = routes[0]
        if "idempotency-key" in self._request.fields and await self._answered_before(identity):
            return
        self._request.body = b""  # the members hold it; one copy is enough
        await self._reserve(identity, ask, routes[0])
        for position, route in enumerate(routes):
            self.account.route = route
            try:
                await self._attempt(identity, ask, route)
            except Refusal as refusal:
                if position == len(routes) - 1 or refusal.status < 500 or refusal.code == "draining":
                    raise
            else:
                return

    async def _answered_before(self, identity: Identity) -> bool:
        """Claims the request's idempotency key; True when the answer that it had was said again."""
        request = self._request
        asked = request.path.encode() + b"\0" + request.body
        found = await self._plane.idempotency.claim(identity.tenant, request.fields["idempotency-key"], asked)
        if isinstance(found, Kept):
            self.account.replayed = True
            self._client.reply(200, found.body, [*self._fields, ("idempotent-replayed", "true")], found.kind)
            return True
        self._claim = found
        return False

    async def _serve_otherwise(self, identity: Identity, path: str) -> None:
        """What needs no engine."""
        if path.startswith(SILENCE):
            self._reservation = await self._plane.limits.reserve(identity.holders, 0)
            await keep_silent(self._client, path.removeprefix(SILENCE), self._fields)
            return
        await self._plane.limits.count(identity.holders)
        if path == COUNT_TOKENS and self._request.method == "POST":
            body = counted_tokens(self._snapshot, identity, self._request)
            self._client.reply(200, body, [*self._fields, ("x-setpoint-origin", "estimated")])
        else:
            self._client.reply(200, models(self._snapshot, identity, self._request), self._fields)

    async def _reserve(self, identity: Identity, ask: Ask, route: Route) -> None:
        """Sets the most that this request can use aside."""
        self.account.estimate = route.estimate(ask.prompt_bytes)
        if identity.max_context is not None and self.account.estimate > identity.max_context:
            raise Refusal(400, "max_context", f"The prompt is longer than the {identity.max_context} tokens allowed.")
        if identity.max_output is not None and (ask.max_output or 0) > identity.max_output:
            raise Refusal(400, "max_output", f"At most {identity.max_output} tokens of output are allowed.")
        output = 0 if ask.dialect is Dialect.EMBEDDINGS else ask.max_output or self._default_output(identity, route)
        self._reservation = await self._plane.limits.reserve(identity.holders, self.account.estimate + output)

    @staticmethod
    def _default_output(identity: Identity, route: Route) -> int:
        return identity.max_output or route.model.default_output

    async def _attempt(self, identity: Identity, ask: Ask, route: Route) -> None:
        """Tries replicas of one model.

        Raises:
            Refusal: none answered, and nothing was passed on.
        """
        engine = engine_dialect(ask.dialect, route.dialects)
        if engine is None:
            raise Refusal(400, "dialect", f"The model {ask.model!r} does not speak this dialect.")
        salt = self._plane.salt(identity.tenant)
        self.account.hashes = chain(route.seed(salt), ask.parts, marked=ask.dialect is Dialect.MESSAGES)
        wanted = self._request.fields.get("x-setpoint-class", identity.priority)
        self.account.rank = 1 if "batch" in (identity.priority, wanted) else 0
        ticket = Ticket(
            identity.tenant, identity.weight, self.account.rank, self.account.estimate,
            prompt_key(self.account.hashes, self._number & MAX_KEY), self.account.hashes, deadline_s=self._deadline_s(),
        )  # fmt: skip
        if route.tokenizes:
            await self._tokenize(identity, ask, engine, route, ticket)
        route.asked()
        failure: Refusal | None = None
        held: tuple[Relay, str, int | None] | None = None
        for number in range(route.attempts):
            if number and not route.may_retry():
                break
            before = time.monotonic()
            try:
                lease = self._lease = await route.gate.enter(ticket)
            except Refusal as refusal:
                if held is not None:
                    break
                raise failure or refusal from None
            finally:
                self.account.queue_s += time.monotonic() - before
            relay = await self._forward(identity, ask, engine, route, lease, salt)
            if relay.held:
                held = held or (relay, self.account.replica, self.account.predicted)
            elif relay.refusal is None:
                return
            else:
                failure = relay.refusal
            if not relay.retryable:
                break
            ticket.exclude.add(lease.replica.name)
        if held is not None:
            self.account.relay, self.account.replica, self.account.predicted = held
            held[0].accept()
            failure = held[0].refusal
            if failure is None:
                return
        raise failure or no_capacity(1.0)

    async def _tokenize(self, identity: Identity, ask: Ask, engine: Dialect, route: Route, ticket: Ticket) -> None:
        """Token ids of the prompt, for replicas whose events tell which of them their caches hold."""
        following = [r for r in route.gate.replicas if r.events is not None and r.events.live and r.available()]
        if not following:
            return
        replica = min(following, key=lambda r: r.in_flight)
        assert replica.config.kv_events is not None
        salt = self._plane.salt(identity.tenant) if route.salted else None
        body = self._body(identity, ask, engine, route, replica, salt)
        limit_s = replica.config.kv_events.tokenize_timeout
        found = await asyncio.create_task(token_ids(replica, engine, body, limit_s))
        if found is not None:
            ticket.token_ids, ticket.salt, ticket.tokens = found, salt, len(found) // 4

    @staticmethod
    def _body(identity: Identity, ask: Ask, engine: Dialect, route: Route, replica: Replica, salt: str | None) -> bytes:
        """The request as a replica gets it."""
        default = route.model.default_output if engine is Dialect.MESSAGES is not ask.dialect else None
        return ask.body(engine, model=replica.model, salt=salt, max_output=identity.max_output or default)

    def _deadline_s(self) -> float | None:
        text = self._request.fields.get("x-setpoint-timeout-ms")
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
            raise Refusal(400, "invalid_request", "The field x-setpoint-timeout-ms must be a number of milliseconds.")
        return self._request.received_s + int(text) / 1000

    async def _forward(
        self, identity: Identity, ask: Ask, engine: Dialect, route: Route, lease: Lease, salt: str
    ) -> Relay:
        """One attempt, from connection to verdict."""
        replica, now = lease.replica, time.monotonic()
        self.account.replica, self.account.predicted = replica.name, lease.predicted_tokens
        self.account.attempts += 1
        relay = self.account.relay = Relay(
            self._client, ask, engine, route.timeouts,
            pass_empty=self._snapshot.config.empty_answers == "pass",
            repair=route.repair,
            fields=self._fields, started_s=self._request.received_s,
        )  # fmt: skip
        relay.sent_s = relay.last_s = now
        try:
            body = self._body(identity, ask, engine, route, replica, salt if route.salted else None)
        except Refusal:
            lease.release()
            raise
        spans = self._snapshot.config.telemetry
        payload = replica.request(PATHS[engine], body, self.id, self._request.fields, spans=spans)
        self._plane.journal.write(self.account.opened())
        connection: Connection | None = None
        fresh = False
        try:
            while True:
                connection = None if fresh else replica.pool.take()
                reused = connection is not None
                if connection is None:
                    connection = await _connected(replica, relay, route.timeouts.connect)
                if self._client.gone:  # in the moment in which the place or the connection came
                    raise asyncio.CancelledError
                if connection is None or relay.judgement is not None:  # a limit passed meanwhile
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
            if relay.last_s > self._spoke_s:
                self._spoke_s = relay.last_s
                self._lease.replica.spoke()

    def check(self, now_s: float) -> None:
        """Called a few times a second: ends what is too slow, and keeps a stream alive that waits for its engine."""
        relay, account = self.relay, self.account
        if relay is not None:
            relay.check(now_s)
            if relay.judgement is None:
                return
        if self._reservation is None or account.ask is None or account.route is None or not account.ask.stream:
            return
        if self._lease is not None and not self._lease.released:
            return  # an answer has ended, and its connection is cleared
        ping_s, last_s = account.route.timeouts.ping, relay.last_s if relay is not None else self._request.received_s
        if ping_s and now_s - max(self._spoke_s, last_s) > ping_s:
            self._spoke_s = now_s
            open_stream(self._client, self._fields)
            self._client.send(ping(account.ask.dialect))

    def _tell(self, refusal: Refusal) -> None:
        """The client hears why, as far as it has heard nothing else."""
        self.account.refusal = refusal
        client, dialect = self._client, BY_PATH.get(self._request.path)
        if client.gone:
            return
        if not client.committed:
            anthropic = Dialect.MESSAGES if self._request.path.startswith("/v1/messages") else dialect
            client.reply(refusal.status, refusal.body(anthropic), refusal.fields + self._fields)
        elif self.account.ask is not None:
            refusal.within_stream = True
            client.end(refusal.event(self.account.ask.dialect))

    def _over(self, reached: LimitReached) -> Refusal:
        """A limit, as its client is told."""
        words, wait_s = reached.limit.replace("_", " "), reached.retry_after_s
        if reached.limit == "unreachable":
            return Refusal(503, "limits", "Allowances cannot be checked at the moment.", retry_after_s=1)
        if reached.limit == NO_ROW:
            return Refusal(503, NO_ROW, "The gateway serves no further tenants at the moment.", retry_after_s=wait_s)
        if wait_s is None:
            return Refusal(400, reached.limit, f"The request is larger than the whole allowance of {words}.")
        if reached.limit == "streams" and self.account.route is not None:
            wait_s = min(self.account.route.gate.service_s / reached.held, LONGEST_WAIT_S)
        return Refusal(429, reached.limit, f"The allowance of {words} is used up.", retry_after_s=wait_s)

    def _close(self) -> None:
        """Gives back, charges, and writes the line."""
        if self._lease is not None:
            self._lease.release()
        account = self.account
        if self._claim is not None:
            relay = account.relay
            if relay is not None and relay.answers:
                self._claim.answered(self._snapshot.config.idempotency, relay.whole)
            self._claim.release()
        if self._reservation is not None:
            prompt, output = account.used()
            self._plane.limits.settle(self._reservation, prompt + output)
        if account.ask is None and account.refusal is None and not account.cancelled:
            return  # a list of models
        counted = account.seen.prompt_tokens
        if counted is not None and account.route is not None and account.ask is not None:
            account.route.learn(account.ask.prompt_bytes, counted)
        self._plane.journal.write(account.ended(self._plane.mark, client_gone=self._client.gone))


async def _connected(replica: Replica, relay: Relay, limit_s: float) -> Connection | None:
    """A new connection, or None, and the relay knows why."""
    try:
        return await asyncio.create_task(replica.connect(limit_s))
    except (OSError, TimeoutError) as error:
        timeout = isinstance(error, TimeoutError)
        relay.unreachable(describe_failure(error), time.monotonic(), timeout=timeout)
        return None


def engine_dialect(asked: Dialect, spoken: list[Dialect]) -> Dialect | None:
    """The dialect in which an engine is asked: the client's where it speaks it, else one that is translated."""
    if asked in spoken:
        return asked
    return next((dialect for dialect in spoken if (asked, dialect) in TRANSLATED), None)
