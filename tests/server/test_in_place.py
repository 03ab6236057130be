"""When the server does a short piece of work itself, and when a thread does it."""

import pytest

from mcp_server import in_place
from mcp_server.in_place import SLOW_FOR_S, SLOW_S, SLOW_TIMES, InPlace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(in_place, "time", found)
    return found


def took(one: InPlace, clock: Clock, seconds: float) -> None:
    with one.timed():
        clock.now += seconds


def test_the_first_time_is_a_threads(clock: Clock) -> None:
    one = InPlace()
    assert not one.allowed
    took(one, clock, 5.0)  # the first time reads everything
    assert one.allowed


def test_slow_in_a_row_is_not_waited_for_any_more(clock: Clock) -> None:
    one = InPlace()
    took(one, clock, 0.001)
    for _ in range(SLOW_TIMES - 1):
        took(one, clock, 2 * SLOW_S)
        assert one.allowed
    took(one, clock, 0.001)  # the row ends
    for _ in range(SLOW_TIMES):
        assert one.allowed
        took(one, clock, 2 * SLOW_S)
    assert not one.allowed
    clock.now += SLOW_FOR_S - 0.5
    assert not one.allowed
    took(one, clock, 0.001)  # by a thread, quick
    clock.now += 1.0
    assert one.allowed
