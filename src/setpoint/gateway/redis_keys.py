"""Idempotency keys in Redis or Valkey: they hold across machines.

An entry is a hash of one key, named by a keyed hash: what was asked (a keyed hash, too) and, while that is under way,
who has it. It lives by Redis's own clock. Under way it has a lease that its worker renews, so that one that died blocks
no key for longer; once answered it stays for the window. Answers stand there only where the configuration says so, and
encrypted; otherwise each is kept in the memory of the worker that gave it.
"""

import asyncio
import contextlib
import hmac
import logging
import math
import secrets
from collections.abc import Coroutine
from functools import partial
from hashlib import sha256
from typing import Any

from setpoint.gateway.config import RENEWALS, Redis
from setpoint.gateway.config import Idempotency as Rules
from setpoint.gateway.idempotency import Claim, Kept, KeptAnswers, Named, in_flight, mismatch, named
from setpoint.gateway.redis_calls import RedisCalls
from setpoint.gateway.refusal import Refusal
from setpoint.gateway.sealed import Sealed

SECRET_KNOWN_MS = 3_600_000  # after the last request with a key: a new secret is taken then
_log = logging.getLogger(__name__)

# KEYS: the entry, the mark of the secret. ARGV: request, owner, lease in ms, mark, how long the mark stays in ms.
# A claim that finds itself was made by a call whose answer was lost.
_CLAIM = """
local mark = redis.call('GET', KEYS[2])
if mark and mark ~= ARGV[4] then return {'secret'} end
redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
local request, owner, answer = unpack(redis.call('HMGET', KEYS[1], 'request', 'owner', 'answer'))
if request and request ~= ARGV[1] then return {'mismatch'} end
if request and not owner then return {'answered', answer or ''} end
if owner and owner ~= ARGV[2] then return {'in_flight'} end
redis.call('HSET', KEYS[1], 'request', ARGV[1], 'owner', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {'claimed'}
"""

# KEYS: the entry. ARGV: request, owner, window in ms (0 frees the key), answer. What another has by now stays his.
_END = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner ~= ARGV[2] and (owner or redis.call('EXISTS', KEYS[1]) == 1) then return 0 end
redis.call('DEL', KEYS[1])
if tonumber(ARGV[3]) > 0 then
  redis.call('HSET', KEYS[1], 'request', ARGV[1])
  if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'answer', ARGV[4]) end
  redis.call('PEXPIRE', KEYS[1], ARGV[3])
end
return 1
"""

# KEYS: entries. ARGV: lease in ms, then the owner of each. Returns which are another's by now, or gone; from 1.
_RENEW = """
local lost = {}
for i, key in ipairs(KEYS) do
  if redis.call('HGET', key, 'owner') == ARGV[i + 1] then
    redis.call('PEXPIRE', key, ARGV[1])
  else
    table.insert(lost, i)
  end
end
return lost
"""


class RedisKeys:
    """Implements ``IdempotencyStore``. Where Redis does not answer in time, requests with a key are refused.

    Args:
        config: Where it is.
        secret: Keys the hashes; the same one at all gateways that share the keys.

    Attributes:
        answers: That this worker gave.
        calls: On their way to Redis.

    Raises:
        UsageError: the client library is missing.
    """

    def __init__(self, config: Redis, secret: bytes) -> None:
        self.calls = RedisCalls(config)
        self.answers = KeptAnswers()
        self._sealed = Sealed(secret) if config.idempotency_answers else None
        self._config, self._secret = config, secret
        self._mark = hmac.digest(secret, b"setpoint idempotency secret", sha256)
        self._secret_entry = f"{{{config.prefix}}}:idempotency:secret"
        self._told = False
        self._lease_ms = int(config.idempotency_lease * 1000)
        self._claim, self._end, self._renew = map(self.calls.client.register_script, (_CLAIM, _END, _RENEW))
        self._held: set[Claim] = set()
        self._ending: dict[bytes, asyncio.Task[None]] = {}
        self._renewing: asyncio.Task[None] | None = None

    def _entry(self, claim: Claim) -> str:
        return f"{{{self._config.prefix}}}:idempotency:{claim.name.key.hex()}"

    async def claim(self, tenant: str, key: str, request: bytes) -> Claim | Kept:
        """See ``IdempotencyStore``."""
        claim = Claim(self, named(self._secret, tenant, key, request), secrets.token_hex(12))
        try:
            found, *sealed = await self.calls.answer(self._asked(claim), partial(self._ended, claim))
        except self.calls.errors:
            self.calls.later(self._perhaps_taken(claim))
            raise _unknown() from None
        if found == b"mismatch":
            raise mismatch()
        if found == b"in_flight":
            raise in_flight()
        if found == b"answered":
            return self._again(claim.name, sealed[0])
        if found == b"secret":
            self._tell_of_the_secret()
            raise _unknown()
        self.answers.drop(claim.name)
        self._held.add(claim)
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.get_running_loop().create_task(self._keep())
        return claim

    def _tell_of_the_secret(self) -> None:
        if not self._told:
            self._told = True
            _log.error(
                "requests with an idempotency key are refused: another gateway at this Redis has, or within the last "
                "hour had, another secret than %s (removing %s lets this one be the secret)",
                self._config.secret_env, self._secret_entry,
            )  # fmt: skip

    def _again(self, name: Named, sealed: bytes) -> Kept:
        """The answer that a key had.

        Raises:
            Refusal: 409, it is not here.
        """
        opened = self._sealed.open(name, sealed) if self._sealed is not None and sealed else None
        if opened is None:
            return self.answers.find(name)
        return Kept(*opened, math.inf)  # Redis has its time

    async def _asked(self, claim: Claim) -> list[bytes]:
        ending = self._ending.get(claim.name.key)
        if ending is not None:  # who has its answer and asks again at once need not hear that it is under way
            await asyncio.wait((ending,), timeout=self._config.timeout)
        arguments = (claim.name.request, claim.owner, self._lease_ms, self._mark, SECRET_KNOWN_MS)
        found: list[bytes] = await self._claim(keys=(self._entry(claim), self._secret_entry), args=arguments)
        return found

    async def _perhaps_taken(self, claim: Claim) -> None:
        """Frees a key that a call without an answer may have taken; tried once, for its lease ends by itself."""
        with contextlib.suppress(*self.calls.errors):
            await self._end(keys=(self._entry(claim),), args=(claim.name.request, claim.owner, 0, ""))

    def answered(self, claim: Claim, rules: Rules, answer: tuple[str, bytes] | None) -> None:
        """See ``Claim.answered``."""
        sealed = b""
        if self._sealed is None:
            self.answers.keep(claim.name, rules, answer)
        elif answer is not None and len(answer[1]) <= rules.max_answer:
            sealed = self._sealed.seal(claim.name, *answer)
        self._ends(claim, self._ended(claim, int(rules.window * 1000), sealed))

    def release(self, claim: Claim) -> None:
        """See ``Claim.release``."""
        self._ends(claim, self._ended(claim))

    def _ends(self, claim: Claim, end: Coroutine[Any, Any, None]) -> None:
        key = claim.name.key
        task = self._ending[key] = self.calls.later(end)

        def ended(_: object) -> None:
            self._held.discard(claim)  # renewed until Redis knows
            if self._ending.get(key) is task:
                del self._ending[key]

        task.add_done_callback(ended)

    async def _ended(self, claim: Claim, window_ms: int = 0, sealed: bytes = b"") -> None:
        arguments = (claim.name.request, claim.owner, window_ms, sealed)
        await self.calls.surely(partial(self._end, keys=(self._entry(claim),), args=arguments))

    async def _keep(self) -> None:
        """Renews the leases of what is under way, as long as anything is."""
        while self._held:
            await asyncio.sleep(self._config.idempotency_lease / RENEWALS)
            held = tuple(self._held)
            arguments = (self._lease_ms, *(claim.owner for claim in held))
            try:
                numbers = await self._renew(keys=[self._entry(claim) for claim in held], args=arguments)
            except self.calls.errors:
                continue
            lost = [held[i - 1] for i in numbers if held[i - 1].open]
            if lost:
                self._held.difference_update(lost)
                _log.error("Redis kept %d idempotency keys no longer while their requests were under way", len(lost))

    async def close(self) -> None:
        """Tells Redis what has ended, and ends."""
        await self.calls.settled()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait((self._renewing,))
        await self.calls.close()
        self.answers.clear()


def _unknown() -> Refusal:
    return Refusal(503, "idempotency", "Idempotency keys cannot be checked at the moment.", retry_after_s=1)
