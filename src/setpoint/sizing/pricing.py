"""What placements cost: the ranges of goodput and of prices carried through to an hour, a token and a unit of work."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from setpoint.hardware import Accelerator, Price
from setpoint.sizing.capacity import Capacity
from setpoint.sizing.cost import Cost, Hosted, Operation, Profile, Rates, Replica, cost, peaked, usd_per_million
from setpoint.sizing.need import Need
from setpoint.sizing.term import Range


@dataclass(frozen=True, slots=True)
class Money:
    """US dollars at the card's load; every end of a range takes the matching end of goodput and price.

    Attributes:
        price: Of one accelerator for an hour.
        sellers: Who asks that.
        per_hour: Of the service.
        per_million_tokens: Of output.
        per_million_tokens_full: Of a replica at its limit all the time.
        per_unit: Of a successful unit of work.
        utilization: Share of paid capacity that delivers, expected.
        hosted_per_hour: The same traffic at the hosted price; None without one.
        break_even_requests_per_s: From which own serving is no dearer; None without, or where it never is.
    """

    price: Range
    sellers: str
    per_hour: Range
    per_million_tokens: Range
    per_million_tokens_full: float
    per_unit: Range
    utilization: float
    hosted_per_hour: float | None
    break_even_requests_per_s: float | None


def profile_of(need: Need, rate: float, peak_to_mean: float | None) -> Profile:
    """Traffic over a day: the ratio as asked, else as the card's ramp has it, else even."""
    if peak_to_mean is not None:
        return peaked(rate, peak_to_mean)
    if need.requests_per_s and need.peak_per_s and need.peak_per_s > need.requests_per_s * (1 + 1e-9):
        return peaked(rate, need.peak_per_s / need.requests_per_s)
    return Profile((rate,))


def price_range(prices: Sequence[Price]) -> Range:
    """The cheapest and the dearest seller, and the mean of all."""
    middle = sum(p.middle for p in prices) / len(prices)
    return Range(min(p.low for p in prices), middle, max(p.high for p in prices))


def money_of(
    chip: Accelerator,
    count: int,
    capacity: Capacity,
    need: Need,
    rate: float,
    profile: Profile,
    *,
    spare: int,
    hosted: Hosted | None,
) -> Money | None:
    """What it costs to serve; None where no price is known.

    Args:
        chip: Accelerator.
        count: Of one replica.
        capacity: Of one replica.
        need: What is asked.
        rate: Requests per second that are completed.
        profile: Traffic over a day, with that mean.
        spare: Replicas beyond those that the load needs.
        hosted: A price to compare with.
    """
    if not chip.prices:
        return None
    price = price_range(chip.prices)
    goodput, users = capacity.requests_per_s, capacity.users
    ends = (
        (goodput.high, users.high if users else 0.0, price.low),
        (goodput.expected, users.expected if users else 0.0, price.expected),
        (goodput.low, users.low if users else 0.0, price.high),
    )
    found: list[Cost | None] = []
    for per_s, served, usd in ends:
        if per_s <= 0:
            found.append(None)
            continue
        capable = per_s
        if need.users is not None:
            # Users wait for answers, so their rate follows from how many replicas share them.
            capable = rate / math.ceil(need.users / served * (1 - 1e-9))
        replica = Replica(count, capable, max(need.input_tokens, 1.0), max(need.output_tokens, 1.0))
        found.append(cost(replica, Rates(usd), profile, Operation(spare=spare), hosted))
    expected = found[1]
    assert expected is not None
    full = usd_per_million(price.expected * count, goodput.expected * max(need.output_tokens, 1.0))
    paid = goodput.expected * expected.replicas
    return Money(
        price=price,
        sellers="; ".join(dict.fromkeys(p.seller for p in chip.prices)),
        per_hour=_range(found, "usd_per_hour", 1.0),
        per_million_tokens=_range(found, "usd_per_million_tokens", 1.0),
        per_million_tokens_full=full,
        per_unit=_range(found, "usd_per_success", need.requests_per_unit),
        utilization=min(rate / paid, 1.0),
        hosted_per_hour=expected.hosted_usd_per_hour,
        break_even_requests_per_s=expected.break_even_requests_per_s,
    )


def _range(ends: Sequence[Cost | None], name: str, scale: float) -> Range:
    """Infinite where an end completes nothing."""
    return Range(*sorted(math.inf if end is None else getattr(end, name) * scale for end in ends))
