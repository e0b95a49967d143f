"""A clock that moves only when told to."""

import pytest

from setpoint.clock import Clock
from setpoint.testing.virtual_clock import VirtualClock


def test_it_stands_still_until_it_is_moved() -> None:
    clock: Clock = VirtualClock(5.0)
    assert [clock.now() for _ in range(3)] == [5.0] * 3


def test_it_moves_by_what_it_is_told_and_never_back() -> None:
    clock = VirtualClock()
    clock.advance(1.5)
    clock.advance(0)
    assert clock.now() == 1.5
    with pytest.raises(ValueError, match="found -1"):
        clock.advance(-1)
    assert clock.now() == 1.5
