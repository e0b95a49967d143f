"""Distributions keep what they name: quantiles exactly, observed values as they were."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from setpoint.workload.distribution import Counts, Distribution, Lengths, Times, ToolCounts

UNIFORM = np.random.Generator(np.random.PCG64(20)).random(200_000)


def test_a_number_is_a_constant() -> None:
    assert set(Lengths.of(512).draw(UNIFORM)) == {512}
    assert Times.model_validate("800 ms").quantile(UNIFORM[:9]) == pytest.approx([0.8] * 9)


def test_named_quantiles_are_met_exactly() -> None:
    lengths = Lengths.model_validate({"p50": 300, "p90": 1200, "p99": "4k", "min": 10, "max": "8k"})
    named = lengths.quantile(np.array([0.0, 0.5, 0.9, 0.99, 1.0]))
    assert named == pytest.approx([10, 300, 1200, 4000, 8000], rel=1e-12)


def test_draws_fall_between_named_quantiles_as_often_as_named() -> None:
    lengths = Lengths.model_validate({"min": 10, "p50": 300, "p90": 1200, "p99": 4000, "max": 8000})
    drawn = lengths.draw(UNIFORM)
    seen, _ = np.histogram(drawn, bins=[0, 300.5, 1200.5, 4000.5, 8001])
    expected = np.array([0.5, 0.4, 0.09, 0.01]) * len(drawn)
    assert stats.chisquare(seen, expected).pvalue > 0.001
    assert drawn.min() == 10
    assert 7900 < drawn.max() <= 8000


def test_between_quantiles_the_logarithm_is_uniform() -> None:
    drawn = Times.model_validate({"min": "10 ms", "max": "10 s"}).quantile(UNIFORM[:20_000])
    assert stats.kstest(np.log10(drawn), stats.uniform(-2, 3).cdf).pvalue > 0.001


def test_outside_the_named_quantiles_nothing_is_invented() -> None:
    lengths = Lengths.model_validate({"p50": 100, "p90": 200})
    drawn = lengths.draw(UNIFORM)
    assert (drawn.min(), drawn.max()) == (100, 200)
    assert np.mean(drawn == 100) == pytest.approx(0.5, abs=0.01)
    assert np.mean(drawn == 200) == pytest.approx(0.1, abs=0.01)


def test_from_zero_the_line_is_straight() -> None:
    waits = Times.model_validate({"min": 0, "p50": 0, "max": "10 s"})
    assert waits.quantile(np.array([0.0, 0.5, 0.75, 1.0])) == pytest.approx([0, 0, 5, 10])


def test_observed_values_are_drawn_equally_often_and_no_others() -> None:
    values = [12, 40, 40, 55]
    drawn = Lengths.model_validate({"values": values}).draw(UNIFORM)
    seen = np.array([np.sum(drawn == v) for v in (12, 40, 55)])
    assert seen.sum() == len(drawn)
    assert stats.chisquare(seen, np.array([1, 2, 1]) * len(drawn) / 4).pvalue > 0.001


def test_counts_begin_at_one_and_tool_turns_at_zero() -> None:
    assert Counts.model_validate({"min": 1, "max": 3}).draw(UNIFORM).min() == 1
    assert ToolCounts.model_validate({"p50": 0, "p90": 4}).draw(np.array([0.1, 0.95])).tolist() == [0, 4]


def test_the_mean_is_that_of_the_draws() -> None:
    lengths = Lengths.model_validate({"min": 10, "p50": 300, "max": 8000})
    assert lengths.mean == pytest.approx(lengths.draw(UNIFORM).mean(), rel=0.02)
    assert lengths.top == 8000


whole = st.integers(1, 10_000_000)


@given(st.lists(whole, min_size=1, max_size=8), st.lists(st.floats(0, 0.999999), min_size=2, max_size=20))
@settings(deadline=None)
def test_quantiles_rise_with_the_share_and_stay_inside(values: list[int], shares: list[float]) -> None:
    names = ["min", "p10", "p25", "p50", "p75", "p90", "p99", "max"][: len(values)]
    lengths = Lengths.model_validate(dict(zip(names, sorted(values), strict=True)))
    drawn = lengths.draw(np.sort(np.array(shares)))
    assert np.all(np.diff(drawn) >= 0)
    assert min(values) <= drawn.min()
    assert drawn.max() <= max(values) == lengths.top


@given(st.lists(whole, min_size=1, max_size=30))
@settings(deadline=None)
def test_an_observed_distribution_gives_back_its_values(values: list[int]) -> None:
    shares = (np.arange(len(values)) + 0.5) / len(values)
    assert Lengths.model_validate({"values": values}).draw(shares).tolist() == sorted(values)


@pytest.mark.parametrize("form", [5, {"p50": 5, "p99.9": 7}, {"min": 1}, {"values": [1, 2]}])
@pytest.mark.parametrize("kind", [Lengths, Counts, Times])
def test_every_form_is_written_as_it_is_read(kind: type[Distribution], form: object) -> None:
    read = kind.model_validate(form)
    assert read.model_dump() == form
    assert kind.model_validate(read.model_dump()) == read
