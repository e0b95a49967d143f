"""Allowances in Redis or Valkey: they hold across machines. One script decides and counts, so that it is exact.

A gateway that dies leaves its reservations behind: each carries a time after which it counts no longer. An exchange
that lasts longer is charged all the same when it ends, once: its mark was kept.
"""

import secrets
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from setpoint.gateway.config import Redis
from setpoint.gateway.limits import Holder, LimitReached, Reservation
from setpoint.gateway.redis_calls import RedisCalls

LEASE_S = 7200
LATE_S = 2 * 86_400  # how long a reservation that counts no longer can still be charged

# KEYS: a hash and two sorted sets a holder: reservations that count, and those that no longer do.
# ARGV: now, tokens, mark, lease (0: a request is counted and nothing set aside), how long a late one is kept, then four
# limits a holder (0: none).
_RESERVE = """
local now, tokens, mark, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local kept = tonumber(ARGV[5])
local day = tostring(math.floor(now / 86400))
local function level(key, name, limit)
  local value = tonumber(redis.call('HGET', key, name) or '0')
  local at = tonumber(redis.call('HGET', key, name .. '_at') or '0')
  return math.max(0, value - math.max(0, now - at) * limit / 60)
end
for i = 1, #KEYS, 3 do
  local key, open, late, base = KEYS[i], KEYS[i + 1], KEYS[i + 2], 5 + (i - 1) / 3 * 4
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', open, '-inf', now)) do
    redis.call('HINCRBY', key, 'reserved', -tonumber(string.match(gone, ':(%d+)$')))
    redis.call('ZREM', open, gone)
    redis.call('ZREMRANGEBYSCORE', late, '-inf', now)
    redis.call('ZADD', late, now + kept, gone)
    redis.call('EXPIRE', late, kept)
  end
  local streams, rpm = tonumber(ARGV[base+1]), tonumber(ARGV[base+2])
  local tpm, tpd = tonumber(ARGV[base+3]), tonumber(ARGV[base+4])
  local reserved = tonumber(redis.call('HGET', key, 'reserved') or '0')
  if streams > 0 then
    local held = redis.call('ZCARD', open)
    if held >= streams then return {'streams', tostring(held)} end
  end
  if rpm > 0 then
    local over = level(key, 'requests', rpm) + 1 - rpm
    if over > 0 then return {'requests_per_minute', tostring(over / (rpm / 60))} end
  end
  if tpm > 0 then
    if tokens > tpm then return {'tokens_per_minute', ''} end
    local over = level(key, 'tokens', tpm) + reserved + tokens - tpm
    if over > 0 then return {'tokens_per_minute', tostring(over / (tpm / 60))} end
  end
  if tpd > 0 then
    if tokens > tpd then return {'tokens_per_day', ''} end
    local used = tonumber(redis.call('HGET', key, 'day:' .. day) or '0')
    if used + reserved + tokens > tpd then return {'tokens_per_day', tostring(86400 - now % 86400)} end
  end
end
for i = 1, #KEYS, 3 do
  local key, open, base = KEYS[i], KEYS[i + 1], 5 + (i - 1) / 3 * 4
  local rpm = tonumber(ARGV[base+2])
  if rpm > 0 then
    redis.call('HSET', key, 'requests', tostring(level(key, 'requests', rpm) + 1), 'requests_at', tostring(now))
  end
  if lease > 0 then
    redis.call('HINCRBY', key, 'reserved', tokens)
    redis.call('ZADD', open, now + lease, mark .. ':' .. tokens)
  end
end
return {}
"""

# ARGV: now, reserved tokens, mark, used tokens, then the tokens-a-minute limit of each holder.
_SETTLE = """
local now, used = tonumber(ARGV[1]), tonumber(ARGV[4])
local day = tostring(math.floor(now / 86400))
for i = 1, #KEYS, 3 do
  local key, open, tpm = KEYS[i], KEYS[i + 1], tonumber(ARGV[5 + (i - 1) / 3])
  local member = ARGV[3] .. ':' .. ARGV[2]
  local counts = redis.call('ZREM', open, member) == 1
  if counts then redis.call('HINCRBY', key, 'reserved', -tonumber(ARGV[2])) end
  if counts or redis.call('ZREM', KEYS[i + 2], member) == 1 then
    if tpm > 0 then
      local value = tonumber(redis.call('HGET', key, 'tokens') or '0')
      local at = tonumber(redis.call('HGET', key, 'tokens_at') or '0')
      value = math.max(0, value - math.max(0, now - at) * tpm / 60) + used
      redis.call('HSET', key, 'tokens', tostring(value), 'tokens_at', tostring(now))
    end
    redis.call('HINCRBY', key, 'day:' .. day, used)
    redis.call('HDEL', key, 'day:' .. tostring(tonumber(day) - 2))
  end
end
return 1
"""


class RedisLimits:
    """Implements ``LimitStore``. Where Redis does not answer in time, requests are refused.

    Args:
        config: Where it is.

    Raises:
        UsageError: the client library is missing.
    """

    def __init__(self, config: Redis) -> None:
        self.calls = RedisCalls(config)
        self._prefix = config.prefix
        self._reserve = self.calls.client.register_script(_RESERVE)
        self._settle = self.calls.client.register_script(_SETTLE)

    def _keys(self, holders: Sequence[Holder]) -> list[str]:
        return [f"{{{self._prefix}}}:{h.name}{part}" for h in holders for part in ("", ":open", ":late")]

    async def reserve(self, holders: Sequence[Holder], tokens: int) -> Reservation:
        """See ``LimitStore``."""
        reservation = Reservation(tuple(holders), tokens, secrets.token_hex(12))
        numbers: list[int] = []
        for holder in holders:
            a = holder.allowance
            limits = (a.streams, a.requests_per_minute, a.tokens_per_minute, a.tokens_per_day)
            numbers += [limit or 0 for limit in limits]
        arguments: list[str | int | float] = [time.time(), tokens, reservation.mark, LEASE_S, LATE_S, *numbers]
        try:
            answer = await self.calls.answer(
                self._reserve(keys=self._keys(holders), args=arguments), partial(self._settled, reservation, 0)
            )
        except self.calls.errors:
            raise LimitReached("unreachable", 1.0) from None
        _refuse(answer)
        return reservation

    async def count(self, holders: Sequence[Holder]) -> None:
        """See ``LimitStore``."""
        limited = [h for h in holders if h.allowance.requests_per_minute is not None]
        if not limited:
            return
        numbers = [n for h in limited for n in (0, h.allowance.requests_per_minute or 0, 0, 0)]
        try:
            answer = await self._reserve(keys=self._keys(limited), args=[time.time(), 0, "", 0, LATE_S, *numbers])
        except self.calls.errors:
            raise LimitReached("unreachable", 1.0) from None
        _refuse(answer)

    def settle(self, reservation: Reservation, used: int) -> None:
        """See ``LimitStore``."""
        self.calls.later(self._settled(reservation, used))

    async def close(self) -> None:
        """Settles what is left and ends."""
        await self.calls.close()

    async def _settled(self, reservation: Reservation, used: int) -> None:
        """Where nothing was taken, the reservation's mark is unknown and nothing changes."""
        minute = [h.allowance.tokens_per_minute or 0 for h in reservation.holders]
        arguments: list[float | str] = [time.time(), reservation.tokens, reservation.mark, used, *minute]
        await self.calls.surely(partial(self._settle, keys=self._keys(reservation.holders), args=arguments))


def _refuse(answer: Any) -> None:  # noqa: ANN401 - what the client library makes of a script's table
    """Raises what a script found in the way."""
    if answer:
        limit, number = (part.decode() for part in answer)
        if limit == "streams":
            raise LimitReached(limit, 1.0, held=int(number))
        raise LimitReached(limit, float(number) if number else None)
