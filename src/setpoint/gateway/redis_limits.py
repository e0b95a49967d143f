"""Allowances in Redis or Valkey: they hold across machines. One script decides and counts, so that it is exact.

A gateway that dies leaves its reservations behind: each carries a time after which it counts no longer.
"""

import secrets
import time
from collections.abc import Sequence
from functools import partial

from setpoint.gateway.config import Redis
from setpoint.gateway.limits import Holder, LimitReached, Reservation
from setpoint.gateway.redis_calls import RedisCalls

LEASE_S = 7200

# KEYS: one hash and one sorted set a holder. ARGV: now, tokens, mark, lease, then four limits a holder (0: none).
_RESERVE = """
local now, tokens, mark, lease = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local day = tostring(math.floor(now / 86400))
local function level(key, name, limit)
  local value = tonumber(redis.call('HGET', key, name) or '0')
  local at = tonumber(redis.call('HGET', key, name .. '_at') or '0')
  return math.max(0, value - math.max(0, now - at) * limit / 60)
end
for i = 1, #KEYS, 2 do
  local key, open, base = KEYS[i], KEYS[i + 1], 4 + (i - 1) / 2 * 4
  for _, gone in ipairs(redis.call('ZRANGEBYSCORE', open, '-inf', now)) do
    redis.call('HINCRBY', key, 'reserved', -tonumber(string.match(gone, ':(%d+)$')))
    redis.call('ZREM', open, gone)
  end
  local streams, rpm = tonumber(ARGV[base+1]), tonumber(ARGV[base+2])
  local tpm, tpd = tonumber(ARGV[base+3]), tonumber(ARGV[base+4])
  local reserved = tonumber(redis.call('HGET', key, 'reserved') or '0')
  if streams > 0 and redis.call('ZCARD', open) >= streams then return {'streams', '1'} end
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
for i = 1, #KEYS, 2 do
  local key, open, base = KEYS[i], KEYS[i + 1], 4 + (i - 1) / 2 * 4
  local rpm = tonumber(ARGV[base+2])
  if rpm > 0 then
    redis.call('HSET', key, 'requests', tostring(level(key, 'requests', rpm) + 1), 'requests_at', tostring(now))
  end
  redis.call('HINCRBY', key, 'reserved', tokens)
  redis.call('ZADD', open, now + lease, mark .. ':' .. tokens)
end
return {}
"""

# ARGV: now, reserved tokens, mark, used tokens, then the tokens-a-minute limit of each holder.
_SETTLE = """
local now, used = tonumber(ARGV[1]), tonumber(ARGV[4])
local day = tostring(math.floor(now / 86400))
for i = 1, #KEYS, 2 do
  local key, open, tpm = KEYS[i], KEYS[i + 1], tonumber(ARGV[4 + (i + 1) / 2])
  if redis.call('ZREM', open, ARGV[3] .. ':' .. ARGV[2]) == 1 then
    redis.call('HINCRBY', key, 'reserved', -tonumber(ARGV[2]))
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
        return [f"{{{self._prefix}}}:{h.name}{part}" for h in holders for part in ("", ":open")]

    async def reserve(self, holders: Sequence[Holder], tokens: int) -> Reservation:
        """See ``LimitStore``."""
        reservation = Reservation(tuple(holders), tokens, secrets.token_hex(12))
        numbers: list[int] = []
        for holder in holders:
            a = holder.allowance
            limits = (a.streams, a.requests_per_minute, a.tokens_per_minute, a.tokens_per_day)
            numbers += [limit or 0 for limit in limits]
        arguments: list[str | int | float] = [time.time(), tokens, reservation.mark, LEASE_S, *numbers]
        try:
            answer = await self.calls.answer(
                self._reserve(keys=self._keys(holders), args=arguments), partial(self._settled, reservation, 0)
            )
        except self.calls.errors:
            raise LimitReached("unreachable", 1.0) from None
        if answer:
            limit, wait = (part.decode() for part in answer)
            raise LimitReached(limit, float(wait) if wait else None)
        return reservation

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
