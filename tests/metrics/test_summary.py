"""All figures of one run."""

import json

import pytest
from hypothesis import given, settings
from tests.metrics.rows import Promise, answered, e2e, exchange, itl, ttft
from tests.metrics.test_table import runs

from setpoint.metrics.goodput import exchange_limits, good
from setpoint.metrics.summary import Summary, summarise
from setpoint.metrics.table import ExchangeTable
from setpoint.records.exchange import Exchange, Outcome

PROMISES = [ttft(0.5, 0.8), ttft(0.95, 1.5), itl(0.9, 0.05), e2e(0.99, 5.0), answered(0.99)]


def summary(rows: list[Exchange], promises: list[Promise] | None = None) -> Summary:
    return summarise(ExchangeTable.from_exchanges(rows), PROMISES if promises is None else promises)


@given(runs())
@settings(max_examples=25, deadline=None)
def test_any_run_has_a_summary_that_survives_json(rows: list[Exchange]) -> None:
    found = summary(rows)
    assert Summary.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False))) == found
    assert sum(found.outcomes.values()) == found.exchanges
    assert found.exchanges + found.warmup == len(rows)
    for one in found.distributions.values():
        assert one.samples + one.undefined >= 0
        values = [p.value for p in one.percentiles if p.value is not None]
        assert values == sorted(values)
        assert sum(one.histogram.counts) + one.histogram.not_positive == one.samples


def test_rates_are_those_of_the_window() -> None:
    rows = [exchange(i, at=0.1 * i, ttft_s=0.05, gaps_s=(0.01, 0.01), completion_tokens=3) for i in range(600)]
    found = summary(rows)
    assert found.throughput is not None
    assert found.throughput.requests_per_s == pytest.approx(10, rel=0.01)
    assert found.throughput.output_tokens_per_s == pytest.approx(30, rel=0.01)
    assert found.throughput.prompt_tokens_per_s == pytest.approx(320, rel=0.01)
    assert found.throughput.failed_per_s == 0
    assert found.goodput.per_s == pytest.approx(10, rel=0.01)
    assert found.goodput.attainment.share == 1.0


def test_failures_lower_goodput_and_touch_no_latency() -> None:
    rows = [exchange(i, at=0.1 * i) for i in range(600)]
    failed = [
        exchange(i, at=0.1 * i, outcome=Outcome.ERROR, ttft_s=0.001) if i % 4 == 0 else row
        for i, row in enumerate(rows)
    ]
    before, after = summary(rows), summary(failed)
    assert after.goodput.attainment.share == pytest.approx(0.75)
    assert after.goodput.per_s == pytest.approx(7.5, rel=0.02)
    assert after.throughput is not None
    assert after.throughput.failed_per_s == pytest.approx(2.5, rel=0.02)
    assert after.outcomes == {"complete": 450, "error": 150}
    for name in ("ttft", "itl", "tpot", "e2e", "stall"):
        one, other = before.distributions[name].at(0.5), after.distributions[name].at(0.5)
        assert one is not None
        assert other is not None
        assert one.value == pytest.approx(other.value)
    assert after.distributions["client_lag"].samples == 600


def test_a_stream_across_the_edge_counts_by_its_part_inside() -> None:
    rows = [exchange(i, at=float(i), ttft_s=0.0, gaps_s=(10.0,), completion_tokens=100) for i in range(300)]
    found = summary(rows, [])
    assert found.throughput is not None
    assert found.throughput.output_tokens_per_s == pytest.approx(100, rel=0.05)


def test_one_exchange_is_held_to_the_tightest_limit_of_each_metric() -> None:
    assert [(p.metric, p.limit_s) for p in exchange_limits(PROMISES)] == [("ttft", 0.8), ("itl", 0.05), ("e2e", 5.0)]
    rows = [
        exchange(0, ttft_s=0.8),
        exchange(1, ttft_s=0.9),
        exchange(2, outcome=Outcome.LENGTH),
        exchange(3, outcome=Outcome.EMPTY),
        exchange(4, gaps_s=(0.01,) * 9 + (1.0,)),
        exchange(5, gaps_s=(0.01,) * 8 + (1.0, 1.0)),
        exchange(6, gaps_s=()),
        exchange(7, done_after_s=6.0),
    ]
    kept = good(PROMISES, ExchangeTable.from_exchanges(rows))
    assert kept.tolist() == [True, False, True, False, True, False, True, False]


def test_boundaries_are_limits_of_their_own() -> None:
    promises = [ttft(0.9, 1.0), ttft(0.9, 0.5, "sent"), ttft(0.9, 0.7, "any_token")]
    assert len(exchange_limits(promises)) == 3
    table = ExchangeTable.from_exchanges([exchange(0, ttft_s=0.9, lag_s=0.5, kinds="cccc"), exchange(1, ttft_s=0.6)])
    assert good(promises[:2], table).tolist() == [True, False]
    assert good(promises[2:], table).tolist() == [False, True]


def test_an_overload_shows_as_offered_above_served() -> None:
    rows = [exchange(i, at=0.1 * i, ttft_s=0.05 + 0.1 * i, gaps_s=()) for i in range(600)]
    found = summary(rows)
    assert found.window.growing
    assert found.throughput is not None
    assert found.throughput.offered_per_s > 1.5 * found.throughput.requests_per_s
    assert found.littles_law is not None


def test_the_promised_quantiles_are_among_the_percentiles() -> None:
    found = summary([exchange(i) for i in range(50)], [ttft(0.85, 0.8)])
    assert found.distributions["ttft"].at(0.85) is not None
    assert found.distributions["e2e"].at(0.85) is None
