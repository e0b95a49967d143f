"""The interval is proved by simulation: its coverage, its false positives on A/A, its power at a known effect."""

import math

import numpy as np
import pytest

from setpoint.experiments.bootstrap import Effect, Spread, difference, mean_statistic, quantile_statistic, tail_of
from setpoint.experiments.endpoint import Endpoint
from setpoint.experiments.verdict import Judgement, judge_effect
from setpoint.metrics.table import Floats

SIMULATIONS = 150
TTFT = Endpoint("p50 ttft", "ttft", 0.5)


def experiment(
    seed: int, *, effect: float, blocks: int = 5, sessions: int = 25, between: float = 0.0, within: float = 0.4
) -> list[tuple[Floats, Floats]]:
    """Latencies of two arms: log-normal, alike but for a true effect on their logarithm.

    Args:
        seed: Of the draw.
        effect: Of the second arm, the same in all blocks.
        blocks: How many.
        sessions: A run; each arm runs twice a block.
        between: Standard deviation of a disturbance of each run as a whole.
        within: Of one request's own.
    """
    generator = np.random.default_rng(seed)
    out = []
    for _ in range(blocks):
        drift = generator.normal(0, 0.5)  # of the block: falls on both arms
        prompt = generator.normal(0, 0.3, (sessions, 1))  # of the schedule: likewise
        arms = []
        for shift in (0.0, effect):
            runs = generator.normal(0, between, (1, 2))
            own = generator.normal(0, within, (sessions, 2))
            arms.append(np.exp(drift + shift + prompt + runs + own))
        out.append((arms[0], arms[1]))
    return out


def effects(
    *, effect: float, between: float, within: float, blocks: int = 5, quantile: float = 0.5, count: int = SIMULATIONS
) -> list[Effect]:
    statistic = quantile_statistic(quantile)
    return [
        difference(
            experiment(seed, effect=effect, between=between, within=within, blocks=blocks),
            statistic, ratio=True, seed=seed, inner=150, outer=3000,
        )
        for seed in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("between", "within"), [(0.0, 0.4), (0.1, 0.1), (0.3, 0.05)], ids=["requests", "both", "runs as a whole"]
)
def test_the_interval_covers_the_true_effect_wherever_the_noise_comes_from(between: float, within: float) -> None:
    true = math.log(1.3)
    found = effects(effect=true, between=between, within=within)
    covered = sum(e.low <= true <= e.high for e in found) / len(found)
    assert covered >= 0.92  # 95% nominal, less two standard errors of 150 simulations


@pytest.mark.parametrize("quantile", [0.8, 0.95])
def test_the_interval_of_a_tail_covers_too(quantile: float) -> None:
    found = effects(effect=0.2, between=0.1, within=0.3, quantile=quantile, count=100)
    assert sum(e.low <= 0.2 <= e.high for e in found) / len(found) >= 0.92


@pytest.mark.parametrize(("between", "within"), [(0.0, 0.4), (0.3, 0.05)], ids=["requests", "runs as a whole"])
def test_nothing_changed_is_called_a_change_in_at_most_one_of_twenty(between: float, within: float) -> None:
    found = effects(effect=0.0, between=between, within=within)
    verdicts = [judge_effect(TTFT, e, 0.05, None)[0] for e in found]
    wrong = sum(v in (Judgement.BETTER, Judgement.WORSE) for v in verdicts)
    assert wrong / len(verdicts) <= 0.08  # 5% nominal and two standard errors


def test_a_latency_cut_by_a_third_is_found_in_nine_of_ten_experiments() -> None:
    found = effects(effect=math.log(0.67), between=0.05, within=0.4, count=80)
    better = [judge_effect(TTFT, e, 0.05, None)[0] is Judgement.BETTER for e in found]
    assert sum(better) / len(better) >= 0.9


def test_more_blocks_find_a_smaller_effect() -> None:
    def power(blocks: int) -> float:
        found = effects(effect=math.log(0.85), between=0.05, within=0.4, blocks=blocks, count=40)
        return sum(judge_effect(TTFT, e, 0.05, None)[0] is Judgement.BETTER for e in found) / len(found)

    assert power(12) >= 0.9 > power(5)


def test_equal_arms_with_little_noise_are_the_same_within_delta() -> None:
    found = effects(effect=0.0, between=0.002, within=0.02, count=10)
    verdicts = [judge_effect(TTFT, e, 0.05, None)[0] for e in found]
    assert verdicts.count(Judgement.SAME) >= 8
    assert set(verdicts) <= {Judgement.SAME, Judgement.UNDECIDED}


def test_drift_between_blocks_cancels() -> None:
    one = np.full((10, 2), 1.0)
    blocks = [(one * scale, one * scale * 1.5) for scale in (1.0, 10.0, 100.0, 1000.0, 3.0)]
    found = difference(blocks, quantile_statistic(0.5), ratio=True, seed=1, inner=20, outer=200)
    assert found.value == pytest.approx(math.log(1.5))
    assert found.low == pytest.approx(found.high)


def test_one_block_bounds_nothing_and_two_hardly_anything() -> None:
    blocks = experiment(1, effect=0.5, blocks=2)
    one = difference(blocks[:1], quantile_statistic(0.5), ratio=True, seed=1)
    assert (one.low, one.high) == (-math.inf, math.inf)
    apart = Spread(1.0, 0.0)
    assert tail_of(2, apart) < tail_of(5, apart) < tail_of(50, apart) < 0.025
    assert tail_of(5, apart) < tail_of(5, Spread(1.0, 2.0)) < 0.025


def test_failures_that_reach_the_quantile_leave_it_without_a_value() -> None:
    blocks = [(np.ones((20, 2)), np.full((20, 2), np.inf)) for _ in range(5)]
    found = difference(blocks, quantile_statistic(0.5), ratio=True, seed=1, inner=20, outer=200)
    judgement, reason = judge_effect(TTFT, found, 0.05, None)
    assert judgement is Judgement.UNDECIDED
    assert "failed exchanges" in reason


def test_failures_of_either_arm_in_turn_leave_no_mean_and_no_warning() -> None:
    """One block's first arm failed, another's second: infinite in opposite directions."""
    whole, failed = np.ones((20, 2)), np.full((20, 2), np.inf)
    blocks = [(whole, failed), (failed, whole), (whole, whole), (whole, whole), (whole, whole)]
    found = difference(blocks, quantile_statistic(0.5), ratio=True, seed=1)
    assert math.isnan(found.value)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert judge_effect(TTFT, found, 0.05, None)[0] is Judgement.UNDECIDED


def test_an_arm_that_drops_its_slow_requests_does_not_win() -> None:
    generator = np.random.default_rng(1)
    blocks = []
    for _ in range(5):
        first = generator.uniform(0.1, 1.0, (40, 2))
        blocks.append((first, np.where(first > 0.85, np.inf, first)))
    kept = difference(blocks, quantile_statistic(0.3), ratio=True, seed=1)
    assert judge_effect(Endpoint("p30 ttft", "ttft", 0.3), kept, 0.05, None)[0] is Judgement.SAME
    lost = difference(blocks, quantile_statistic(0.95), ratio=True, seed=1)
    assert judge_effect(Endpoint("p95 ttft", "ttft", 0.95), lost, 0.05, None)[0] is Judgement.UNDECIDED


def test_a_closed_loop_that_one_arm_gets_further_in_is_still_bounded() -> None:
    """The slow arm reaches 4 of 12 sessions: draws without one of them say nothing and are replaced."""
    blocks = []
    for seed in range(5):
        first = np.random.default_rng(seed).lognormal(0, 0.05, (12, 2))
        first[4:] = np.nan
        blocks.append((first, np.random.default_rng(100 + seed).lognormal(math.log(0.4), 0.05, (12, 2))))
    found = difference(blocks, quantile_statistic(0.5), ratio=True, seed=1)
    assert judge_effect(TTFT, found, 0.05, None)[0] is Judgement.BETTER
    assert -1.1 < found.low < found.value < found.high < -0.7


def test_the_noise_within_blocks_is_counted_once() -> None:
    """Where requests alone are noisy the interval is about as wide as their own noise makes it, and covers."""
    true, width = math.log(1.3), []
    for seed in range(60):
        found = difference(
            experiment(seed, effect=true, within=0.4), mean_statistic, ratio=True, seed=seed, inner=200, outer=3000
        )
        width.append(found.high - found.low)
    spread = [
        difference(experiment(1000 + s, effect=true, within=0.4), mean_statistic, ratio=True, seed=s, inner=2, outer=2)
        for s in range(200)
    ]
    honest = 2 * 1.96 * float(np.std([e.value for e in spread]))
    assert honest < float(np.median(width)) < 1.6 * honest  # counted twice it is above 1.9 times


def test_statistics_leave_out_what_has_no_value() -> None:
    values = np.array([[3.0, np.nan, 1.0, 2.0], [np.nan, np.nan, np.nan, np.nan]])
    assert quantile_statistic(0.5)(values)[0] == 2.0
    assert np.isnan(quantile_statistic(0.5)(values)[1])
    assert mean_statistic(values)[0] == 2.0
    assert np.isnan(mean_statistic(values)[1])


@pytest.mark.parametrize(
    ("effect", "expected"),
    [
        (Effect(-0.3, -0.4, -0.2, (0.0,) * 5), Judgement.BETTER),
        (Effect(0.3, 0.2, 0.4, (0.0,) * 5), Judgement.WORSE),
        (Effect(0.0, -0.04, 0.04, (0.0,) * 5), Judgement.SAME),
        (Effect(0.02, 0.01, 0.04, (0.0,) * 5), Judgement.SAME),
        (Effect(0.0, -0.2, 0.1, (0.0,) * 5), Judgement.UNDECIDED),
        (Effect(-0.3, -0.4, -0.2, (0.0,) * 4), Judgement.UNDECIDED),
    ],
)
def test_the_verdict_follows_from_interval_delta_and_blocks(effect: Effect, expected: Judgement) -> None:
    assert judge_effect(TTFT, effect, 0.05, None)[0] is expected


def test_a_share_that_rises_is_better_and_a_doubt_decides_nothing() -> None:
    share = Endpoint("attainment", "attainment")
    effect = Effect(0.2, 0.1, 0.3, (0.2,) * 5)
    assert judge_effect(share, effect, 0.02, None)[0] is Judgement.BETTER
    assert judge_effect(share, effect, 0.02, "the client") == (Judgement.UNDECIDED, "the client")
