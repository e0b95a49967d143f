"""From the runs of two arms in blocks to compared endpoints, with the A/A control."""

import numpy as np
import pytest
from tests.load.conftest import make_card
from tests.metrics.rows import exchange

from setpoint.errors import UsageError
from setpoint.experiments.analysis import Block, analyse, change_words
from setpoint.experiments.endpoint import Endpoint, matrix_of
from setpoint.experiments.verdict import Judgement
from setpoint.metrics.table import ExchangeTable
from setpoint.records.exchange import Outcome

CARD = make_card(promises=["p80 ttft <= 500 ms", "p80 tpot <= 100 ms", "answered >= 90%"])


def table(
    seed: int, *, ttft_s: float = 0.3, gap_s: float = 0.02, count: int = 40, failed: int = 0, spread: float = 0.1
) -> ExchangeTable:
    generator = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        factor = float(np.exp(generator.normal(0, spread)))
        outcome = Outcome.ERROR if i < failed else Outcome.COMPLETE
        rows.append(exchange(i, ttft_s=ttft_s * factor, gaps_s=(gap_s * factor,) * 3, outcome=outcome))
    return ExchangeTable.from_exchanges(rows)


def blocks(count: int = 6, *, b_ttft_s: float = 0.3, b_gap_s: float = 0.02, b_failed: int = 0) -> list[Block]:
    return [
        Block(
            (table(4 * i), table(4 * i + 1)),
            tuple(table(4 * i + k, ttft_s=b_ttft_s, gap_s=b_gap_s, failed=b_failed) for k in (2, 3)),
        )
        for i in range(count)
    ]


def test_a_halved_ttft_is_better_and_says_so_with_its_interval() -> None:
    found = analyse(CARD, blocks(b_ttft_s=0.15))
    assert found.primary == "p80 ttft"
    assert found.judgement is Judgement.BETTER
    main = found.compared[0]
    assert main.change == pytest.approx(-0.5, abs=0.06)
    assert main.low is not None
    assert main.change is not None
    assert main.high is not None
    assert main.low < main.change < main.high < 0
    assert change_words(main).startswith("-")
    assert len(main.blocks) == 6
    assert found.worse == ()


def test_a_promise_that_got_worse_is_told_with_a_better_primary() -> None:
    found = analyse(CARD, blocks(b_ttft_s=0.15, b_gap_s=0.05))
    assert found.judgement is Judgement.BETTER
    assert found.worse == ("p80 tpot",)


def test_the_control_compares_runs_of_one_arm_and_shows_the_noise() -> None:
    found = analyse(CARD, blocks(b_ttft_s=0.15))
    assert found.control.judgement in (Judgement.SAME, Judgement.UNDECIDED)
    assert found.noise is not None
    assert found.noise < 0.1


def test_a_control_that_fails_leaves_everything_undecided() -> None:
    drifting = [
        Block((table(4 * i), table(4 * i + 1, ttft_s=0.6)), (table(4 * i + 2, ttft_s=0.1),) * 2) for i in range(6)
    ]
    found = analyse(CARD, drifting)
    assert found.judgement is Judgement.UNDECIDED
    assert "A/A control failed" in found.reason


def test_four_blocks_are_undecided_however_clear_they_look() -> None:
    found = analyse(CARD, blocks(4, b_ttft_s=0.03))
    assert found.judgement is Judgement.UNDECIDED
    assert "4 of at least 5 blocks" in found.reason


def test_a_block_with_a_bad_client_is_left_out_whole() -> None:
    good = blocks(6, b_ttft_s=0.15)
    bad = Block((table(90, ttft_s=9.0),) * 2, (table(91),) * 2, ("the client was late",))
    found = analyse(CARD, [*good, bad])
    assert found.judgement is Judgement.BETTER
    assert found.left_out == ("block 7: the client was late",)
    assert len(found.compared[0].blocks) == 6
    few = analyse(CARD, [*good[:4], bad])
    assert few.judgement is Judgement.UNDECIDED
    assert few.reason == "4 of at least 5 clean blocks; block 5: the client was late"


def test_a_tail_is_compared_only_where_the_sample_bounds_it() -> None:
    found = analyse(CARD, blocks(5))
    names = [c.endpoint for c in found.compared]
    assert "p95 ttft" in names
    assert "p99 ttft" not in names
    assert found.unbounded["p99 ttft"] == 368
    named = analyse(CARD, blocks(5), metric="p99 ttft")
    assert named.judgement is Judgement.UNDECIDED
    assert "368 exchanges" in named.reason


def test_failures_count_in_shares_and_in_latencies() -> None:
    found = analyse(CARD, blocks(5, b_failed=20))
    by_name = {c.endpoint: c for c in found.compared}
    assert by_name["answered"].judgement is Judgement.WORSE
    assert by_name["answered"].change == pytest.approx(-0.5)
    assert by_name["attainment"].judgement is Judgement.WORSE
    assert by_name["p80 ttft"].judgement is Judgement.UNDECIDED
    assert by_name["p80 ttft"].b is None


def test_arms_of_unequal_length_are_compared_by_session() -> None:
    shorter = [Block((table(i, count=40),) * 2, (table(i, count=25),) * 2) for i in range(5)]
    found = analyse(CARD, shorter)
    assert found.compared[0].a is not None
    assert found.compared[0].b is not None


def test_sessions_of_several_turns_are_resampled_whole() -> None:
    rows = [exchange(4 * s + t, session=s, turn=t, ttft_s=0.1 + 0.01 * s) for s in range(12) for t in range(4)]
    found = analyse(
        CARD, [Block((ExchangeTable.from_exchanges(rows),) * 2, (ExchangeTable.from_exchanges(rows),) * 2)] * 5
    )
    assert found.judgement is Judgement.SAME


def test_gaps_are_compared_raw_and_an_unanswered_exchange_has_infinite_ones() -> None:
    slower = analyse(CARD, blocks(5, b_gap_s=0.05), metric="p95 itl")
    assert slower.judgement is Judgement.WORSE
    main = next(c for c in slower.compared if c.endpoint == "p95 itl")
    assert main.change == pytest.approx(1.5, abs=0.2)
    failing = analyse(CARD, blocks(5, b_failed=20), metric="p95 itl")
    assert failing.judgement is not Judgement.BETTER
    assert next(c for c in failing.compared if c.endpoint == "p95 itl").b is None


def test_slow_users_are_at_the_low_quantiles_of_speed_and_goodput_is_a_rate() -> None:
    by_name = {c.endpoint: c for c in analyse(CARD, blocks(5, b_gap_s=0.04)).compared}
    assert by_name["p50 user_speed"].judgement is Judgement.WORSE
    assert by_name["p50 user_speed"].a == pytest.approx(50, rel=0.1)
    assert {"good answers/s", "answers/s", "output tokens/s"} <= set(by_name)
    failing = {c.endpoint: c for c in analyse(CARD, blocks(5, b_failed=20)).compared}
    assert failing["good answers/s"].judgement is Judgement.WORSE
    assert failing["good answers/s"].change == pytest.approx(-0.5, abs=0.05)


def test_a_task_is_one_value_a_session() -> None:
    rows = [exchange(4 * s + t, session=s, turn=t, ttft_s=0.1) for s in range(12) for t in range(4)]
    run = ExchangeTable.from_exchanges(rows)
    found = matrix_of(Endpoint("p80 task_e2e", "task_e2e", 0.8), [run, run], (), 12)
    assert found.shape == (12, 2)
    assert found[3, 0] == pytest.approx(run.done_s[15] - run.scheduled_s[12])


def test_an_unknown_metric_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UsageError, match="p80 ttft"):
        analyse(CARD, blocks(5), metric="p42 speed")
