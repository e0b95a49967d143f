import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from setpoint.errors import UsageError
from setpoint.sizing.cost import (
    Hosted,
    Operation,
    Profile,
    Rates,
    Replica,
    cost,
    cost_per_million,
    peaked,
    usd_per_million,
)
from setpoint.sizing.term import Range, exactly

REPLICA = Replica(accelerators=2, requests_per_s=10, input_tokens=1000, output_tokens=200)
FLAT = Profile((10.0,))
NO_SPARE = Operation(spare=0)

rates = st.floats(0.01, 1000)
profiles = (
    st.lists(st.floats(0, 100), min_size=1, max_size=24)
    .filter(lambda r: sum(r) > 0.01)
    .map(lambda r: Profile(tuple(r)))
)
operations = st.builds(Operation, spare=st.integers(0, 3), scaled=st.booleans(), success=st.floats(0.1, 1))
hosts = st.builds(Hosted, st.floats(0, 10), st.floats(0, 30))


def test_the_bare_formula() -> None:
    """3 dollars an hour at 1,000 tokens a second: 3 / 3.6 million tokens."""
    assert usd_per_million(3.0, 1000.0) == pytest.approx(0.8333, abs=1e-4)
    with pytest.raises(UsageError, match="Without tokens"):
        usd_per_million(3.0, 0.0)


def test_at_full_load_without_spares_the_honest_figure_is_the_bare_one() -> None:
    found = cost(REPLICA, Rates(3.0), FLAT, NO_SPARE)
    assert found.replicas == 1
    assert found.usd_per_hour == 6.0
    assert found.usd_per_million_tokens == found.usd_per_million_tokens_full == pytest.approx(6 / (2000 * 3600) * 1e6)
    assert (found.utilization, found.idle_hours_per_day) == (1.0, 0.0)
    assert found.usd_per_success == pytest.approx(6 / 36000)


def test_idle_hours_and_a_spare_by_hand() -> None:
    """12 hours at 20/s and 12 at 0/s: two replicas for the peak and one spare, always on: 6 accelerators, 10/s mean."""
    found = cost(REPLICA, Rates(3.0), Profile((20.0, 0.0)), Operation(spare=1))
    assert found.replicas == 3
    assert found.usd_per_hour == 18.0
    assert found.usd_per_million_tokens == pytest.approx(18 / (10 * 200 * 3600) * 1e6)
    assert found.utilization == pytest.approx(1 / 3)
    assert found.idle_hours_per_day == pytest.approx(48)


def test_scaling_with_the_profile_pays_for_what_each_period_needs() -> None:
    """Two and a spare for half the time, one and a spare for the other half: 2.5 replicas on average."""
    found = cost(REPLICA, Rates(3.0), Profile((20.0, 0.0)), Operation(spare=1, scaled=True))
    assert found.usd_per_hour == pytest.approx(2.5 * 2 * 3)


def test_failed_work_is_paid_by_the_successful() -> None:
    whole = cost(REPLICA, Rates(3.0), FLAT, NO_SPARE)
    half = cost(REPLICA, Rates(3.0), FLAT, Operation(spare=0, success=0.5))
    assert half.usd_per_success == 2 * whole.usd_per_success
    assert half.usd_per_million_tokens == whole.usd_per_million_tokens


def test_network_and_storage_are_added() -> None:
    """10/s of 200 tokens are 7.2 million tokens an hour."""
    found = cost(REPLICA, Rates(3.0, network_usd_per_million_tokens=0.5, storage_usd_per_hour=1.0), FLAT, NO_SPARE)
    assert found.usd_per_hour == pytest.approx(6 + 1 + 3.6)


def test_break_even_by_hand() -> None:
    """Hosted 0.5 and 2.5 dollars a million are 0.001 a request; a replica costs 6 dollars an hour: 6,000 requests."""
    found = cost(REPLICA, Rates(3.0), FLAT, NO_SPARE, Hosted(0.5, 2.5))
    assert found.hosted_usd_per_hour == pytest.approx(36.0)
    assert found.break_even_requests_per_s == pytest.approx(6000 / 3600)


def test_there_is_no_break_even_where_a_full_replica_costs_more_than_hosted() -> None:
    assert cost(REPLICA, Rates(3.0), FLAT, NO_SPARE, Hosted(0.05, 0.1)).break_even_requests_per_s is None
    assert cost(REPLICA, Rates(3.0), FLAT, NO_SPARE, Hosted(0.0, 0.0)).break_even_requests_per_s is None


def test_a_spare_moves_break_even_up() -> None:
    host = Hosted(0.5, 2.5)
    without, spared = (cost(REPLICA, Rates(3.0), FLAT, Operation(spare=n), host) for n in (0, 1))
    assert without.break_even_requests_per_s is not None
    assert spared.break_even_requests_per_s == pytest.approx(2 * without.break_even_requests_per_s)


@given(rates, profiles, operations, hosts)
def test_at_break_even_own_costs_no_more_and_below_it_no_less(
    price: float, profile: Profile, operation: Operation, host: Hosted
) -> None:
    found = cost(REPLICA, Rates(price), profile, operation, host).break_even_requests_per_s
    if found is None:
        return
    at = cost(REPLICA, Rates(price), profile.scaled(found * (1 + 1e-9)), operation, host)
    below = cost(REPLICA, Rates(price), profile.scaled(found * 0.7), operation, host)
    assert at.hosted_usd_per_hour is not None
    assert below.hosted_usd_per_hour is not None
    # Exactly at a step one more replica is needed; a crossing there is just below it.
    touching = cost(REPLICA, Rates(price), profile.scaled(found * (1 - 1e-9)), operation, host)
    assert touching.hosted_usd_per_hour is not None
    assert min(at.usd_per_hour / at.hosted_usd_per_hour, touching.usd_per_hour / touching.hosted_usd_per_hour) <= 1.001
    assert below.usd_per_hour >= below.hosted_usd_per_hour * (1 - 1e-9)


@given(rates, profiles, operations)
def test_delivered_tokens_never_cost_less_than_the_bare_formula(
    price: float, profile: Profile, operation: Operation
) -> None:
    found = cost(REPLICA, Rates(price), profile, operation)
    assert found.usd_per_million_tokens >= found.usd_per_million_tokens_full * (1 - 1e-9)
    assert 0 < found.utilization <= 1 + 1e-9
    assert found.idle_hours_per_day >= -1e-6


@given(profiles, st.integers(0, 2))
def test_following_the_profile_never_costs_more(profile: Profile, spare: int) -> None:
    fixed, scaled = (cost(REPLICA, Rates(3.0), profile, Operation(spare, scaled=s)) for s in (False, True))
    assert scaled.usd_per_hour <= fixed.usd_per_hour * (1 + 1e-9)


@given(st.floats(0.01, 1000), st.floats(1, 20))
def test_a_peaked_profile_has_its_mean_and_peak(mean: float, ratio: float) -> None:
    profile = peaked(mean, ratio)
    assert profile.mean == pytest.approx(mean)
    assert profile.peak_to_mean == pytest.approx(ratio)
    assert min(profile.requests_per_s) >= 0


def test_ranges_of_goodput_and_price_are_carried_through() -> None:
    found = cost_per_million(REPLICA, Range(5, 10, 20), Range(2, 3, 4), Profile((5.0,)), NO_SPARE)
    assert found.expected == pytest.approx(6 / (5 * 200 * 3600) * 1e6)
    assert found.low == pytest.approx(4 / (5 * 200 * 3600) * 1e6)
    assert found.high == pytest.approx(8 / (5 * 200 * 3600) * 1e6)
    assert cost_per_million(REPLICA, exactly(10), exactly(3), FLAT, NO_SPARE).low == pytest.approx(6 / 7.2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Profile(()), "needs rates"),
        (lambda: Profile((-1.0,)), "needs rates"),
        (lambda: Profile((float("nan"),)), "needs rates"),
        (lambda: Profile((0.0, 0.0)), "without any traffic"),
        (lambda: peaked(1.0, 0.5), "peak_to_mean is 0.5"),
        (lambda: Rates(-1.0), "accelerator_usd_per_hour is -1.0"),
        (lambda: Rates(1.0, storage_usd_per_hour=float("inf")), "storage_usd_per_hour is inf"),
        (lambda: dataclasses.replace(REPLICA, requests_per_s=0), "requests_per_s of a replica is 0"),
        (lambda: dataclasses.replace(REPLICA, accelerators=0), "accelerators of a replica is 0"),
        (lambda: Operation(spare=-1), "spare is -1"),
        (lambda: Operation(success=0), "success is 0"),
        (lambda: Hosted(-1, 1), "input_usd_per_million is -1"),
    ],
)
def test_what_cannot_be_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=message):
        make()
