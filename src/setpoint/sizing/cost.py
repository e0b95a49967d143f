"""What serving costs: per hour, per million tokens, per successful unit of work, and against a hosted price.

The bare formula is ``cost per hour / (tokens per second * 3600) * 1e6`` at full load. Nobody runs at full load all
day, so the honest figure divides what is paid by what is delivered: replicas for the busiest hour and for failover
are paid in quiet hours too.
"""

import heapq
import math
from collections import Counter
from dataclasses import dataclass

from setpoint.errors import UsageError
from setpoint.sizing.term import Range

HOUR_S = 3600.0
MILLION = 1e6
_MOST_STEPS = 10_000


@dataclass(frozen=True, slots=True)
class Profile:
    """Traffic over a day or any other cycle of equal periods.

    Attributes:
        requests_per_s: Mean rate in each period.
    """

    requests_per_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.requests_per_s or not all(math.isfinite(r) and r >= 0 for r in self.requests_per_s):
            raise UsageError("A traffic profile needs rates that are not negative, one a period.")
        if not sum(self.requests_per_s) > 0:
            raise UsageError("A traffic profile without any traffic has no cost per request.")

    @property
    def mean(self) -> float:
        """Requests per second over the cycle."""
        return sum(self.requests_per_s) / len(self.requests_per_s)

    @property
    def peak(self) -> float:
        """Requests per second in the busiest period."""
        return max(self.requests_per_s)

    @property
    def peak_to_mean(self) -> float:
        """At least one."""
        return self.peak / self.mean

    def scaled(self, mean: float) -> "Profile":
        """The same shape at another mean."""
        return Profile(tuple(rate * mean / self.mean for rate in self.requests_per_s))


def peaked(mean: float, peak_to_mean: float) -> Profile:
    """A profile known only by its mean and peak: one part at the peak, the rest even.

    Raises:
        UsageError: the ratio is below one.
    """
    if not 1 <= peak_to_mean < math.inf:
        raise UsageError(f"peak_to_mean is {peak_to_mean}, expected at least 1.")
    periods = max(2, math.ceil(peak_to_mean) * 12)
    rest = (mean * periods - mean * peak_to_mean) / (periods - 1)
    return Profile((mean * peak_to_mean, *[rest] * (periods - 1)))


@dataclass(frozen=True, slots=True)
class Rates:
    """What is paid.

    Attributes:
        accelerator_usd_per_hour: For one accelerator.
        network_usd_per_million_tokens: Egress, per million output tokens.
        storage_usd_per_hour: Weights and records, for the whole service.
    """

    accelerator_usd_per_hour: float
    network_usd_per_million_tokens: float = 0.0
    storage_usd_per_hour: float = 0.0

    def __post_init__(self) -> None:
        for name in ("accelerator_usd_per_hour", "network_usd_per_million_tokens", "storage_usd_per_hour"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(f"{name} is {value}, expected a price that is not negative.")


@dataclass(frozen=True, slots=True)
class Replica:
    """What one replica is and does.

    Attributes:
        accelerators: It occupies.
        requests_per_s: It completes within the promises at most (goodput).
        input_tokens: Of a request, mean.
        output_tokens: Of a request, mean.
    """

    accelerators: int
    requests_per_s: float
    input_tokens: float
    output_tokens: float

    def __post_init__(self) -> None:
        for name in ("accelerators", "requests_per_s", "input_tokens", "output_tokens"):
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"{name} of a replica is {getattr(self, name)}, expected above zero.")


@dataclass(frozen=True, slots=True)
class Hosted:
    """A price per token of somebody else's service, in US dollars per million."""

    input_usd_per_million: float
    output_usd_per_million: float

    def __post_init__(self) -> None:
        for name in ("input_usd_per_million", "output_usd_per_million"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UsageError(f"{name} is {getattr(self, name)}, expected a price that is not negative.")

    def usd_per_request(self, replica: Replica) -> float:
        """Of a request as long as the replica's."""
        tokens = replica.input_tokens * self.input_usd_per_million + replica.output_tokens * self.output_usd_per_million
        return tokens / MILLION


@dataclass(frozen=True, slots=True)
class Operation:
    """How replicas are kept.

    Attributes:
        spare: Replicas beyond those the traffic needs, so that as many may fail.
        scaled: Whether replicas follow the profile period by period; otherwise the peak's number runs all the time.
        success: Share of requests that succeed at the promised quality.
    """

    spare: int = 1
    scaled: bool = False
    success: float = 1.0

    def __post_init__(self) -> None:
        if self.spare < 0:
            raise UsageError(f"spare is {self.spare}, expected 0 or more replicas.")
        if not 0 < self.success <= 1:
            raise UsageError(f"success is {self.success}, expected a share above 0 and at most 1.")


@dataclass(frozen=True, slots=True)
class Cost:
    """US dollars.

    Attributes:
        replicas: Running in the busiest period, spares included.
        usd_per_hour: Mean over the cycle.
        usd_per_million_tokens: Output tokens delivered, idle capacity, spares, network and storage included.
        usd_per_million_tokens_full: The bare formula: one replica at its limit all the time.
        usd_per_success: Per successful request.
        utilization: Share of paid capacity that delivers.
        idle_hours_per_day: Replica hours paid a day that deliver nothing, in hours of one replica.
        hosted_usd_per_hour: The same traffic at the hosted price; None without one.
        break_even_requests_per_s: Mean rate of this profile's shape from which own serving is no dearer; None without
            a hosted price, or where it never is.
    """

    replicas: int
    usd_per_hour: float
    usd_per_million_tokens: float
    usd_per_million_tokens_full: float
    usd_per_success: float
    utilization: float
    idle_hours_per_day: float
    hosted_usd_per_hour: float | None
    break_even_requests_per_s: float | None


def usd_per_million(usd_per_hour: float, tokens_per_s: float) -> float:
    """``cost per hour / (tokens per second * 3600) * 1e6``.

    Raises:
        UsageError: no tokens.
    """
    if not tokens_per_s > 0:
        raise UsageError("Without tokens there is no cost per token.")
    return usd_per_hour / (tokens_per_s * HOUR_S) * MILLION


def cost(
    replica: Replica, rates: Rates, profile: Profile, operation: Operation | None = None, hosted: Hosted | None = None
) -> Cost:
    """What it costs to serve a profile."""
    kept = Operation() if operation is None else operation
    running = _replicas(replica, profile, kept)
    mean_replicas = sum(running) / len(running)
    usd = _usd_per_hour(replica, rates, profile, running)
    full = usd_per_million(
        replica.accelerators * rates.accelerator_usd_per_hour, replica.requests_per_s * replica.output_tokens
    )
    utilization = profile.mean / (mean_replicas * replica.requests_per_s)
    return Cost(
        replicas=max(running),
        usd_per_hour=usd,
        usd_per_million_tokens=usd_per_million(usd, profile.mean * replica.output_tokens),
        usd_per_million_tokens_full=full + rates.network_usd_per_million_tokens,
        usd_per_success=usd / (profile.mean * HOUR_S * kept.success),
        utilization=utilization,
        idle_hours_per_day=24 * mean_replicas * (1 - utilization),
        hosted_usd_per_hour=None if hosted is None else profile.mean * HOUR_S * hosted.usd_per_request(replica),
        break_even_requests_per_s=None if hosted is None else _break_even(replica, rates, profile, kept, hosted),
    )


def cost_per_million(
    replica: Replica,
    goodput: Range,
    accelerator_usd_per_hour: Range,
    profile: Profile,
    operation: Operation | None = None,
) -> Range:
    """US dollars per million output tokens with the ranges of goodput and price carried through.

    ``replica.requests_per_s`` is replaced by each end of ``goodput``; the cheap end pairs high goodput with low price.

    Raises:
        UsageError: goodput may be zero: then no price is high enough.
    """
    ends = (
        (goodput.high, accelerator_usd_per_hour.low),
        (goodput.expected, accelerator_usd_per_hour.expected),
        (goodput.low, accelerator_usd_per_hour.high),
    )
    found = [
        cost(
            Replica(replica.accelerators, rate, replica.input_tokens, replica.output_tokens),
            Rates(price),
            profile,
            operation,
        ).usd_per_million_tokens
        for rate, price in ends
    ]
    return Range(*sorted(found))


def _replicas(replica: Replica, profile: Profile, operation: Operation) -> list[int]:
    """Replicas in each period; at least one runs even where nothing asks."""
    needed = [max(1, _ceil(rate / replica.requests_per_s)) + operation.spare for rate in profile.requests_per_s]
    return needed if operation.scaled else [max(needed)] * len(needed)


def _ceil(ratio: float) -> int:
    """Rounds up, but not for the last bit of a division: a rate that was computed to fit fits."""
    return math.ceil(ratio * (1 - 1e-12))


def _usd_per_hour(replica: Replica, rates: Rates, profile: Profile, running: list[int]) -> float:
    accelerators = replica.accelerators * sum(running) / len(running)
    tokens_per_hour = profile.mean * replica.output_tokens * HOUR_S
    return (
        accelerators * rates.accelerator_usd_per_hour
        + rates.storage_usd_per_hour
        + tokens_per_hour / MILLION * rates.network_usd_per_million_tokens
    )


def _break_even(replica: Replica, rates: Rates, profile: Profile, operation: Operation, hosted: Hosted) -> float | None:
    """The lowest mean rate at which own serving costs no more than hosted; None beyond ten thousand steps.

    Between the rates at which some period needs another replica, own cost per hour but for the network is constant
    while hosted cost grows, so each such band has at most one crossing. ``ends`` holds, for each distinct rate of the
    shape, the mean at which its replicas are full.
    """
    gain = hosted.usd_per_request(replica) - replica.output_tokens / MILLION * rates.network_usd_per_million_tokens
    replica_usd = replica.accelerators * rates.accelerator_usd_per_hour
    shape = profile.scaled(1.0).requests_per_s
    parts = Counter(shape if operation.scaled else [max(shape)] * len(shape))
    # Of a mean of one request per second, what is paid at the least: every replica full in its period.
    least = replica_usd / replica.requests_per_s * (1.0 if operation.scaled else max(shape))
    if gain <= 0 or least > gain * HOUR_S:
        return None
    ends = [(replica.requests_per_s / rate, rate, 1) for rate in parts if rate > 0]
    heapq.heapify(ends)
    running, lower = 1.0 + operation.spare, 0.0
    for _ in range(_MOST_STEPS):
        upper, rate, count = ends[0]
        crossing = max((running * replica_usd + rates.storage_usd_per_hour) / (gain * HOUR_S), lower)
        if crossing <= upper:
            return crossing
        lower = upper
        running += parts[rate] / len(shape)
        heapq.heapreplace(ends, ((count + 1) * replica.requests_per_s / rate, rate, count + 1))
    return None
