"""Intervals cover what they claim, on made-up samples with a known truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import binomtest, norm, quantile_test

from setpoint.metrics.correlation import autocorrelation_time, design_effect, design_effect_of_limit, longest_burst
from setpoint.metrics.histogram import log_histogram
from setpoint.metrics.percentile import fewest_samples, percentile, percentiles
from setpoint.metrics.proportion import samples_to_decide, samples_to_meet, wilson
from setpoint.metrics.sequence import ProportionSequence, always_valid
from setpoint.metrics.table import Floats
from setpoint.metrics.verdict import State

finite = st.floats(min_value=1e-6, max_value=1e4)


@given(st.integers(1, 5000), st.data())
def test_wilsons_interval_is_scipys_for_whole_numbers(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, n))
    expected = binomtest(k, n).proportion_ci(0.95, method="wilson")
    assert wilson(k / n, n) == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(st.floats(0, 1), st.floats(0.5, 1e6), st.floats(1, 100))
def test_wilsons_interval_contains_the_share_and_widens_with_fewer_samples(
    share: float, samples: float, design: float
) -> None:
    low, high = wilson(share, samples)
    wide_low, wide_high = wilson(share, samples / design)
    assert 0 <= low <= share <= high <= 1
    assert wide_low <= low + 1e-12
    assert wide_high >= high - 1e-12


@pytest.mark.parametrize(("required", "samples"), [(0.9, 35), (0.95, 73), (0.99, 381)])
def test_the_fewest_samples_that_can_meet_a_promise(required: float, samples: int) -> None:
    assert samples_to_meet(required) == samples
    assert wilson(1.0, samples)[0] >= required > wilson(1.0, samples - 1)[0]


@given(st.floats(0.01, 1), st.floats(0.5, 0.99))
def test_the_samples_said_to_decide_do_decide(share: float, required: float) -> None:
    needed = samples_to_decide(share, required)
    if needed is not None:
        low, high = wilson(share, needed * (1 + 1e-9))
        assert low >= required - 1e-9 or high <= required + 1e-9


@given(st.lists(finite, min_size=1, max_size=300), st.sampled_from([0.1, 0.5, 0.9, 0.95]))
def test_a_percentiles_interval_is_scipys(sample: list[float], quantile: float) -> None:
    ordered = np.sort(np.array(sample))
    found = percentile(ordered, quantile)
    low, high = np.asarray(quantile_test(ordered, p=quantile).confidence_interval(0.95)).tolist()
    bounded = not (np.isnan(low) or np.isnan(high))
    assert (found.value is not None) == bounded
    if bounded:
        assert (found.low, found.high) == (low, high)


@given(st.lists(finite, min_size=400, max_size=400), st.floats(1, 5))
def test_percentiles_are_ordered_and_inside_their_intervals(sample: list[float], design: float) -> None:
    found = percentiles(np.array(sample), (0.25, 0.5, 0.75, 0.9), design)
    values = [p.value for p in found if p.value is not None]
    assert values == sorted(values)
    for p in found:
        if p.value is not None:
            assert p.low is not None
            assert p.high is not None
            assert p.low <= p.value <= p.high


@pytest.mark.parametrize(("quantile", "samples"), [(0.5, 6), (0.95, 72), (0.99, 368), (0.999, 3688)])
def test_a_percentile_that_the_sample_cannot_bound_is_not_given(quantile: float, samples: int) -> None:
    assert fewest_samples(quantile) == samples
    ordered = np.arange(1.0, samples + 1)
    assert percentile(ordered, quantile).value is not None
    short = percentile(ordered[:-1], quantile)
    assert (short.value, short.low, short.high, short.needed) == (None, None, None, samples)
    assert percentile(ordered, quantile, design_effect=2.0).value is None
    assert percentile(np.empty(0), quantile).value is None


def test_a_percentile_is_the_smallest_value_with_that_share_at_or_below_it() -> None:
    ordered = np.arange(1.0, 101.0)
    assert percentile(ordered, 0.95).value == 95
    assert percentile(ordered, 0.5).value == 50
    assert np.quantile(ordered, 0.95, method="inverted_cdf") == 95


def test_an_always_valid_interval_covers_the_truth_at_every_look() -> None:
    """Peeking after each of 400 observations, the share of samples in which any look misses stays below 5%."""
    generator = np.random.default_rng(7)
    runs, looks = 1500, np.arange(1, 401)
    for truth in (0.5, 0.95):
        inside = np.cumsum(generator.random((runs, 400)) < truth, axis=1)
        missed_looking = np.zeros(runs, dtype=bool)
        wilson_missed = np.zeros(runs, dtype=bool)
        # An interval misses the truth exactly when the truth is rejected: one table of (k, n) serves all runs.
        for n in looks.tolist():
            ks = np.unique(inside[:, n - 1])
            bad = [k for k in ks.tolist() if not _holds(always_valid(k, n), truth)]
            wilson_bad = [k for k in ks.tolist() if not _holds(wilson(k / n, n), truth)]
            missed_looking |= np.isin(inside[:, n - 1], bad)
            wilson_missed |= np.isin(inside[:, n - 1], wilson_bad)
        assert missed_looking.mean() <= 0.05
        assert wilson_missed.mean() > 0.15  # which is why looks are paid for


def _holds(interval: tuple[float, float], truth: float) -> bool:
    return interval[0] <= truth <= interval[1]


@given(st.lists(st.booleans(), max_size=200), st.floats(0.05, 0.99))
def test_a_sequence_decides_exactly_when_its_interval_excludes_the_promise(
    outcomes: list[bool], required: float
) -> None:
    sequence = ProportionSequence()
    for within in outcomes:
        sequence.add(within)
    low, high = sequence.interval()
    expected = State.UNDECIDED
    if low > required + 1e-9:
        expected = State.MET
    elif high < required - 1e-9:
        expected = State.MISSED
    if abs(low - required) > 1e-9 and abs(high - required) > 1e-9:
        assert sequence.state(required) is expected
    share = sequence.share
    assert share is None or low <= share <= high


@given(st.integers(0, 300), st.integers(1, 300))
def test_paying_for_looks_makes_the_interval_wider(inside: int, outside: int) -> None:
    total = inside + outside
    low, high = always_valid(inside, total)
    narrow_low, narrow_high = wilson(inside / total, total)
    if total >= 20:
        assert high - low >= narrow_high - narrow_low
    assert ProportionSequence(design_effect=2.0).interval() == (0.0, 1.0)


def test_the_autocorrelation_time_of_known_series() -> None:
    generator = np.random.default_rng(3)
    white = generator.normal(size=20_000)
    assert autocorrelation_time(white) == pytest.approx(1.0, abs=0.2)
    for rho in (0.5, 0.9):
        series: Floats = lfilter([1.0], [1.0, -rho], white)
        assert autocorrelation_time(series) == pytest.approx((1 + rho) / (1 - rho), rel=0.25)
    assert autocorrelation_time(np.ones(50)) == 1.0
    assert autocorrelation_time(np.empty(0)) == 1.0


def coverage(correlation: float, session_size: int, samples: int) -> float:
    """Share of 300 made-up runs whose interval contains the true share within the limit."""
    generator = np.random.default_rng(11)
    limit, hits = norm.ppf(0.9), 0
    sessions = np.arange(samples) // session_size
    for _ in range(300):
        noise = generator.normal(size=samples + 100) * np.sqrt(1 - correlation**2)
        latency = lfilter([1.0], [1.0, -correlation], noise)[100:]
        if session_size > 1:
            latency = np.sqrt(0.5) * latency + np.sqrt(0.5) * generator.normal(size=sessions[-1] + 1)[sessions]
        within = (latency <= limit).astype(np.int64)
        spread = design_effect(within, np.ones(samples), sessions)
        low, high = wilson(float(within.mean()), samples / spread)
        hits += low <= 0.9 <= high
    return hits / 300


@pytest.mark.parametrize(("correlation", "session_size"), [(0.0, 1), (0.7, 1), (0.0, 8)])
def test_intervals_cover_the_truth_when_exchanges_are_correlated(correlation: float, session_size: int) -> None:
    assert coverage(correlation, session_size, 800) >= 0.92


def test_correlated_exchanges_are_worth_fewer() -> None:
    independent = np.array([1, 1, 1, 0] * 100)
    generator = np.random.default_rng(1)
    generator.shuffle(independent)
    blocks = np.repeat(independent[:40], 10)
    rows = np.arange(400)
    assert design_effect(independent, np.ones(400), rows) < 1.6
    assert design_effect(blocks, np.ones(400), rows) > 4
    assert design_effect(blocks, np.ones(400), rows // 10) > 4
    assert design_effect(independent, np.ones(400), np.zeros(400, dtype=np.int64)) == 400
    assert design_effect(np.ones(400), np.ones(400), rows) == 1


def test_a_sample_all_within_is_judged_by_how_its_latencies_follow_one_another() -> None:
    generator = np.random.default_rng(6)
    noise: Floats = generator.normal(size=400)
    slow: Floats = lfilter([1.0], [1.0, -0.95], noise)
    rows = np.arange(400)
    assert design_effect_of_limit(noise, 100.0, 0.9, rows) < 2
    assert design_effect_of_limit(slow, 100.0, 0.9, rows) > 4
    assert design_effect_of_limit(np.empty(0), 1.0, 0.9, rows[:0]) == 1


def test_gaps_count_by_exchange() -> None:
    """Each exchange is either all slow or all fast: a hundred gaps say as much as one."""
    generator = np.random.default_rng(2)
    fast = generator.random(200) < 0.8
    assert design_effect(fast * 100, np.full(200, 100), np.arange(200)) == pytest.approx(100, rel=0.4)


@given(st.lists(st.booleans(), max_size=60), st.integers(0, 60))
def test_a_further_failure_never_shortens_a_burst(failed: list[bool], at: int) -> None:
    before = np.array(failed, dtype=np.bool_)
    after = np.insert(before, min(at, len(before)), values=True)
    assert longest_burst(after) >= longest_burst(before)


def test_an_outage_is_one_event_and_scattered_failures_are_not() -> None:
    outage = np.zeros(100, dtype=np.bool_)
    outage[40:52] = True
    assert longest_burst(outage) == 12
    assert longest_burst(np.arange(100) % 4 == 0) == 1


@given(st.lists(st.floats(0, 1e5), max_size=100))
def test_a_histogram_counts_every_value_once(sample: list[float]) -> None:
    histogram = log_histogram(np.sort(np.array(sample)))
    assert sum(histogram.counts) + histogram.not_positive == len(sample)
    assert len(histogram.edges) == (len(histogram.counts) + 1 if histogram.counts else 0)
    assert list(histogram.edges) == sorted(histogram.edges)


def test_histograms_of_different_runs_share_their_edges() -> None:
    one, other = log_histogram(np.array([0.011, 0.5])), log_histogram(np.array([0.1, 0.9]))
    common = set(one.edges) & set(other.edges)
    assert len(common) > 10
    assert one.counts[0] == one.counts[-1] == 1
    assert all(low <= v < high for v, low, high in ((0.011, *one.edges[:2]), (0.5, *one.edges[-2:])))
