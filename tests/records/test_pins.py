"""Two runs are compared only when exactly the named variable differs."""

from pathlib import Path
from typing import Any

import pytest

from setpoint.errors import PinsDiffer
from setpoint.records.pins import EXPECTED, compare, differences
from setpoint.records.record import RunRecord
from setpoint.records.store import RunStore

PINS: dict[str, Any] = {
    "model": "m",
    "engine": "llamacpp",
    "engine_flags": {"max_num_seqs": 4, "kv_type": "f16"},
    "precision": None,
}


def run(folder: Path, **changes: object) -> RunRecord:
    return RunStore(folder).create("chat").finish(pins={**PINS, **changes})


def test_equal_pins_do_not_differ() -> None:
    assert differences(PINS, dict(reversed(PINS.items()))) == []


def test_differences_are_named_in_words() -> None:
    other = {**PINS, "model": "n", "engine_flags": {"max_num_seqs": 8, "kv_type": "f16"}, "precision": "q4"}
    assert [str(d) for d in differences(PINS, other)] == [
        "engine_flags.max_num_seqs: 4 against 8",
        "model: m against n",
        "precision: unknown against q4",
    ]


def test_the_named_variable_may_differ(tmp_path: Path) -> None:
    a, b = run(tmp_path), run(tmp_path, engine_flags={"max_num_seqs": 8, "kv_type": "f16"})
    for variable in ("engine_flags", "engine_flags.max_num_seqs"):
        comparison = compare(a, b, variable)
        assert [(d.a, d.b) for d in comparison.changes] == [(4, 8)]
    assert "precision" in comparison.unknown
    assert "model" not in comparison.unknown
    assert set(comparison.unknown) < set(EXPECTED)


def test_any_other_difference_refuses_the_comparison(tmp_path: Path) -> None:
    a = run(tmp_path)
    b = run(tmp_path, model="n", engine_flags={"max_num_seqs": 8, "kv_type": "q8"})
    with pytest.raises(PinsDiffer, match=r"more than engine_flags.max_num_seqs: .*kv_type: f16 against q8; model: m"):
        compare(a, b, "engine_flags.max_num_seqs")


def test_a_variable_that_does_not_differ_refuses_the_comparison(tmp_path: Path) -> None:
    with pytest.raises(PinsDiffer, match="do not differ in engine_flags"):
        compare(run(tmp_path), run(tmp_path), "engine_flags")


def test_a_name_that_begins_alike_is_another_pin(tmp_path: Path) -> None:
    a, b = run(tmp_path, engine_version="1"), run(tmp_path, engine_version="2")
    with pytest.raises(PinsDiffer, match="more than engine"):
        compare(a, b, "engine")


def test_the_schedule_may_differ_where_it_follows_from_the_variable(tmp_path: Path) -> None:
    a = run(tmp_path, load="1/s", schedule_digest="x")
    b = run(tmp_path, load="2/s", schedule_digest="y")
    assert [d.pin for d in compare(a, b, "load").changes] == ["load"]
    c = run(tmp_path, load="1/s", schedule_digest="y", model="n")
    with pytest.raises(PinsDiffer, match="schedule_digest: x against y"):
        compare(a, c, "model")


def test_cards_may_differ_in_the_layout_and_in_nothing_beside_it(tmp_path: Path) -> None:
    def laid(position: str, digest: str, rate: str = "1/s") -> RunRecord:
        card = {"traffic": {"rate": rate, "prefix": {"tokens": 60, "position": position}}}
        return (
            RunStore(tmp_path)
            .create("chat")
            .finish(
                card=card, pins={**PINS, "prompt_layout": position, "card_digest": digest, "schedule_digest": digest}
            )
        )

    found = compare(laid("behind", "x"), laid("front", "y"), "prompt_layout")
    assert [(d.a, d.b) for d in found.changes] == [("behind", "front")]
    with pytest.raises(PinsDiffer, match=r"traffic\.rate: 1/s against 2/s"):
        compare(laid("behind", "x"), laid("front", "y", "2/s"), "prompt_layout")
