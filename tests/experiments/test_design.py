"""Blocks, arms and the screening of a search."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.load.conftest import make_card

from setpoint.errors import PinsDiffer, UsageError
from setpoint.experiments.change import Change, changed_card, changed_flags, changed_model, check_arms, parse_changes
from setpoint.experiments.design import Design
from setpoint.experiments.screening import order_of, screen
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore


def test_half_of_the_blocks_begin_with_each_arm_in_an_order_that_the_seed_decides() -> None:
    for blocks in (4, 5, 6, 11):
        counts = Counter(Design(blocks, 3).orders)
        assert abs(counts["ABBA"] - counts["BAAB"]) <= 1
        assert sum(counts.values()) == blocks
    assert Design(10, 1).orders == Design(10, 1).orders
    assert len({Design(10, seed).orders for seed in range(20)}) > 5
    assert [Design(3, 7).schedule_seed(i) for i in range(3)] == [7, 8, 9]


def test_an_odd_block_does_not_always_favour_one_order() -> None:
    assert len({Counter(Design(5, seed).orders)["ABBA"] for seed in range(20)}) == 2


def test_changes_are_read_and_applied() -> None:
    assert parse_changes("engine.n_parallel=8") == (Change("engine.n_parallel", "8"),)
    assert [c.value for c in parse_changes("engine.slots=2, 4,8")] == ["2", "4", "8"]
    assert str(Change("engine.slots", "2")) == "engine.slots=2"
    assert parse_changes("engine.--n-ctx=9") == (Change("engine.n-ctx", "9"),)
    assert parse_changes("card.traffic.prefix.position=front") == (Change("card.traffic.prefix.position", "front"),)
    assert parse_changes("model=./a.gguf") == (Change("model", "./a.gguf"),)
    assert str(Change("model", "m")) == "model=m"
    assert changed_flags({"a": "1"}, (Change("model", "m"),)) == {"a": "1"}
    assert changed_model("old", (Change("model", "new"),)) == "new"
    assert changed_model("old", (Change("engine.a", "1"),)) == "old"
    assert changed_flags({"a": "1", "b": "2"}, (Change("engine.b", "3"), Change("engine.c", "4"))) == {
        "a": "1",
        "b": "3",
        "c": "4",
    }


@pytest.mark.parametrize(
    "text",
    [
        "n_parallel=8",
        "engine.=8",
        "engine.slots",
        "engine.slots=",
        "card.rate=2",
        "engine.a=1,1",
        "model.x=1",
        "card.traffic.prefix.position=top",
    ],
)
def test_a_change_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--change is"):
        parse_changes(text)


def test_the_layout_of_a_card_changes_and_nothing_else_of_it() -> None:
    card = make_card(prefix={"tokens": 20, "position": "behind"}, prompt_tokens=40)
    moved = changed_card(card, (Change("card.traffic.prefix.position", "front"),))
    assert moved.traffic.prefix is not None
    assert moved.traffic.prefix.position == "front"
    assert changed_card(moved, (Change("card.traffic.prefix.position", "behind"),)) == card
    assert changed_card(card, (Change("engine.slots", "2"),)) is card
    with pytest.raises(UsageError, match="no shared part"):
        changed_card(make_card(), (Change("card.traffic.prefix.position", "front"),))


def record(tmp_path: Path, flags: dict[str, str], **pins: Any) -> RunRecord:  # noqa: ANN401 - any pin
    with RunStore(tmp_path).create("arms") as writer:
        return writer.finish(pins={"engine": "fake", "engine_flags": flags, **pins})


def test_arms_may_differ_in_the_named_flag_alone(tmp_path: Path) -> None:
    a = [record(tmp_path, {"slots": "1", "x": "1"}) for _ in range(2)]
    b = [record(tmp_path, {"slots": "4", "x": "1"}) for _ in range(2)]
    [difference] = check_arms(a, b, (Change("engine.slots", "4"),))
    assert (difference.pin, difference.a, difference.b) == ("engine_flags.slots", "1", "4")
    with pytest.raises(PinsDiffer, match="differ in more than"):
        check_arms(a, [record(tmp_path, {"slots": "4", "x": "2"})], (Change("engine.slots", "4"),))
    with pytest.raises(PinsDiffer, match="model_revision"):
        check_arms(a, [record(tmp_path, {"slots": "4", "x": "1"}, model_revision="b")], (Change("engine.slots", "4"),))
    with pytest.raises(PinsDiffer, match="do not differ"):
        check_arms(a, a, (Change("engine.slots", "4"),))


def test_a_combined_run_differs_in_exactly_the_named_flags(tmp_path: Path) -> None:
    a, b = [record(tmp_path, {"slots": "1", "x": "1"})], [record(tmp_path, {"slots": "4", "x": "2"})]
    assert len(check_arms(a, b, (Change("engine.slots", "4"), Change("engine.x", "2")))) == 2
    with pytest.raises(PinsDiffer, match=r"not in engine_flags\.y"):
        check_arms(a, b, (Change("engine.slots", "4"), Change("engine.x", "2"), Change("engine.y", "2")))


def test_what_follows_from_a_model_changes_with_it_and_nothing_else_may(tmp_path: Path) -> None:
    def of(model: str, precision: str, slots: str = "1") -> RunRecord:
        return record(tmp_path, {"slots": slots}, model=model, precision=precision, model_revision=f"sha256:{model}")

    change = (Change("model", "b"),)
    [difference] = check_arms([of("a", "Q8_0")], [of("b", "Q4_0")], change)
    assert (difference.a, difference.b) == ("a", "b")
    with pytest.raises(PinsDiffer, match="slots"):
        check_arms([of("a", "Q8_0")], [of("b", "Q4_0", "2")], change)


def test_runs_of_one_arm_must_be_pinned_alike(tmp_path: Path) -> None:
    a = [record(tmp_path, {"slots": "1"}), record(tmp_path, {"slots": "1"}, output_lengths="free")]
    with pytest.raises(PinsDiffer, match="of one arm"):
        check_arms(a, [record(tmp_path, {"slots": "4"})], (Change("engine.slots", "4"),))


def test_a_value_is_dropped_when_it_lost_every_round_and_not_before() -> None:
    figures = {"1": [2.0], "4": [1.0], "8": [1.02]}
    assert screen(figures, lower_is_better=True, delta=0.05).dropped == ()
    figures = {"1": [2.0, 2.1], "4": [1.0, 1.1], "8": [1.02, 0.9]}
    state = screen(figures, lower_is_better=True, delta=0.05)
    assert state.dropped == ("1",)
    assert not state.finished
    assert screen({"4": [1.0] * 3, "8": [1.01] * 3}, lower_is_better=True, delta=0.05).finished


def test_a_share_is_screened_upwards_and_a_failed_value_loses() -> None:
    state = screen({"a": [0.5, 0.5], "b": [0.9, 0.9]}, lower_is_better=False, delta=0.02)
    assert state.alive == ("b",)
    assert state.finished
    assert screen({"a": [float("inf")] * 2, "b": [1.0, 1.0]}, lower_is_better=True, delta=0.05).alive == ("b",)


def test_rounds_alternate_their_order() -> None:
    assert order_of(("a", "b", "c"), 0) == ("a", "b", "c")
    assert order_of(("a", "b", "c"), 1) == ("c", "b", "a")
