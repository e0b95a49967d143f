"""Where rates are taken, and that nothing hides outside."""

import numpy as np
import pytest
from tests.metrics.rows import exchange

from setpoint.metrics.table import ExchangeTable
from setpoint.metrics.window import InFlight, littles_law, steady_window
from setpoint.records.exchange import Exchange, Outcome


def queue(rate_per_s: float, servers: int, service_s: float, count: int, seed: int = 5) -> ExchangeTable:
    """Poisson arrivals at ``servers`` that each take a fixed service time."""
    generator = np.random.default_rng(seed)
    arrivals = np.cumsum(generator.exponential(1 / rate_per_s, count))
    free = np.zeros(servers)
    rows = []
    for i, at in enumerate(arrivals.tolist()):
        server = int(np.argmin(free))
        free[server] = max(at, free[server]) + service_s
        rows.append(exchange(i, at=at, ttft_s=free[server] - at, gaps_s=()))
    return ExchangeTable.from_exchanges(rows)


def test_a_stable_run_is_steady_and_keeps_littles_law() -> None:
    table = queue(4.0, servers=8, service_s=1.0, count=400)
    window = steady_window(table)
    assert window.steady
    assert not window.growing
    law = littles_law(table, window)
    assert law is not None
    assert law.ratio == pytest.approx(1.0, abs=0.1)
    assert law.in_flight == pytest.approx(4.0, rel=0.2)


@pytest.mark.parametrize("rate_per_s", [10.0, 16.0, 40.0])
def test_an_open_loop_overload_is_seen_and_not_averaged_away(rate_per_s: float) -> None:
    table = queue(rate_per_s, servers=8, service_s=1.0, count=600)
    window = steady_window(table)
    assert window.growing
    assert not window.steady
    assert "does not keep up" in window.reason


def test_the_ramp_up_and_the_drain_are_cut() -> None:
    rows = [exchange(i, at=0.1 * i, ttft_s=10.0, gaps_s=()) for i in range(600)]
    window = steady_window(ExchangeTable.from_exchanges(rows))
    assert window.steady
    assert 8.0 <= window.start_s <= 15.0
    assert window.end_s == pytest.approx(59.9)
    assert "ramp-up" in window.reason
    assert "drain" in window.reason


def test_a_warm_up_leaves_no_ramp_to_cut() -> None:
    rows = [exchange(i, at=0.1 * i, ttft_s=10.0, gaps_s=(), warmup=i < 200) for i in range(800)]
    window = steady_window(ExchangeTable.from_exchanges(rows))
    assert window.start_s == pytest.approx(20.0)


def test_a_closed_loop_is_steady_from_the_start() -> None:
    rows = [exchange(4 * i + user, at=float(i), ttft_s=1.0, gaps_s=()) for i in range(50) for user in range(4)]
    window = steady_window(ExchangeTable.from_exchanges(rows))
    assert (window.start_s, window.end_s, window.growing) == (0.0, 49.0, False)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "no exchange"),
        ([exchange(i) for i in range(5)], "too few"),
        ([exchange(i, at=1.0) for i in range(50)], "one moment"),
        ([exchange(i, warmup=True) for i in range(50)], "no exchange"),
    ],
)
def test_a_run_without_a_steady_state_says_why(rows: list[Exchange], words: str) -> None:
    window = steady_window(ExchangeTable.from_exchanges(rows))
    assert not window.steady
    assert words in window.reason
    assert window.length_s >= 0


def test_failures_count_as_in_flight_until_they_end() -> None:
    rows = [exchange(0, at=0.0, ttft_s=2.0, outcome=Outcome.TIMEOUT), exchange(1, at=1.0, ttft_s=3.0, gaps_s=())]
    number = InFlight(ExchangeTable.from_exchanges(rows))
    assert number.at(np.array([-1.0, 0.0, 1.5, 2.0, 3.9, 4.0])).tolist() == [0, 1, 2, 1, 1, 0]
    assert number.mean(np.array([0.0, 4.0])).tolist() == [pytest.approx((2.0 + 3.0) / 4)]
    times, numbers = number.series(5)
    assert times.tolist() == [0, 1, 2, 3, 4]
    assert numbers.tolist() == [1, 2, 1, 1, 0]
