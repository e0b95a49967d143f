"""What an assessment says of its search."""

from types import SimpleNamespace
from typing import Any

import pytest

from setpoint.assess.assessment import _found_words
from setpoint.metrics.verdict import State

MET, MISSED, OPEN = State.MET, State.MISSED, State.UNDECIDED


@pytest.mark.parametrize(
    ("steps", "state", "words"),
    [
        ([(1.0, MET)], MET, "1 load tried in 1 run, every promise kept at 1"),
        (
            [(2.0, OPEN), (1.0, OPEN), (1.0, MET), (2.0, MET), (4.0, OPEN), (8.0, MISSED)], MET,
            "4 loads tried in 6 runs, every promise kept at 2",
        ),
        ([(2.0, MISSED), (1.0, MISSED)], MISSED, "2 loads tried in 2 runs, even the lowest breaks a promise"),
        ([(2.0, MISSED), (1.0, OPEN)], OPEN, "2 loads tried in 2 runs, none could be shown to keep every promise"),
    ],
)  # fmt: skip
def test_loads_are_told_from_runs(steps: list[tuple[float, State]], state: State, words: str) -> None:
    search: Any = SimpleNamespace(steps=[SimpleNamespace(load=load, state=one) for load, one in steps], state=state)
    assert _found_words(search) == words
