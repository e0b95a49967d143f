"""How a budget is divided among the parts of an assessment."""

import pytest

from setpoint.assess.share import (
    DIAGNOSIS,
    EXPERIMENT,
    EXPERIMENT_S,
    KEPT_S,
    LEAST_BUDGET_S,
    QUALITY,
    SEARCH,
    WEIGHTS,
    Shares,
)

ALL = tuple(WEIGHTS)


@pytest.mark.parametrize("budget_s", [30.0, 260.0, 600.0, 3600.0])
def test_no_part_gets_more_than_is_left_and_all_together_get_everything(budget_s: float) -> None:
    shares = Shares(budget_s, ALL)
    search_s = shares.of(SEARCH)
    assert 0 < search_s < budget_s
    assert shares.of(DIAGNOSIS) + shares.reserved_s <= budget_s
    assert shares.of(QUALITY) == pytest.approx(budget_s - shares.reserved_s, abs=0.5)  # the others used nothing
    assert shares.of(EXPERIMENT) == pytest.approx(budget_s, abs=0.5)


def test_the_experiment_is_left_what_it_takes_or_nothing() -> None:
    assert Shares(260.0, ALL).reserved_s == 0.0
    assert Shares(LEAST_BUDGET_S - 1.0, ALL).reserved_s == 0.0
    assert Shares(LEAST_BUDGET_S, ALL).reserved_s == KEPT_S > EXPERIMENT_S
    assert Shares(3600.0, ALL).reserved_s > KEPT_S


def test_a_part_that_is_not_wanted_leaves_its_time_to_the_others() -> None:
    assert Shares(260.0, (SEARCH, DIAGNOSIS)).of(SEARCH) > Shares(260.0, ALL).of(SEARCH)
    assert Shares(3600.0, (SEARCH, DIAGNOSIS, QUALITY)).reserved_s == 0.0
