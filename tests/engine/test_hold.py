"""When a group leaves: never kept back for a writer alone, and never for long."""

from oncelog import limits
from oncelog.engine.pacing.hold import GroupHold

SLOW_S = 1.0
MAX_S = limits.GROUP_HOLD_EACH_US_MAX / 1_000_000
ALL_MAX_S = limits.GROUP_HOLD_US_MAX / 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_writer_alone_never_waits() -> None:
    hold = GroupHold(Clock())
    assert not hold.waits(1, SLOW_S), "the first group of all"
    for _ in range(3):
        hold.left()
        hold.answered(1, 0)
        assert not hold.waits(1, SLOW_S)


def test_group_waits_until_all_have_joined_who_were_answered_or_waited() -> None:
    hold = GroupHold(Clock())
    hold.answered(3, 2)
    assert not hold.waits(0, SLOW_S), "there is nothing to keep back"
    assert [hold.waits(count, SLOW_S) for count in (2, 3, 4, 5, 6)] == [True, True, True, False, False]


def test_group_waits_for_the_next_no_longer_than_the_last_write_took() -> None:
    clock = Clock()
    hold = GroupHold(clock)
    hold.answered(9, 0)
    assert hold.waits(1, MAX_S / 2)
    clock.now += MAX_S / 2
    assert not hold.waits(1, MAX_S / 2)


def test_group_waits_on_while_they_keep_coming_and_no_longer_than_the_bound_for_all() -> None:
    clock = Clock()
    hold = GroupHold(clock)
    hold.answered(1000, 0)
    start, count = clock.now, 1
    while hold.waits(count, SLOW_S):
        assert clock.now - start < ALL_MAX_S
        clock.now += MAX_S * 0.9
        count += 1
    assert clock.now - start >= ALL_MAX_S
    hold.left()
    hold.answered(1000, 0)
    assert hold.waits(1, SLOW_S), "the next one anew"
    clock.now += MAX_S
    assert not hold.waits(1, SLOW_S), "nobody came"


def test_group_waits_for_the_next_no_longer_than_the_bound_and_the_next_group_anew() -> None:
    clock = Clock()
    hold = GroupHold(clock)
    for _ in range(2):
        hold.answered(9, 0)
        assert hold.waits(1, SLOW_S)
        clock.now += MAX_S * 0.99
        assert hold.waits(1, SLOW_S)
        clock.now += MAX_S * 0.02
        assert not hold.waits(1, SLOW_S)
        hold.left()


def test_expectation_falls_with_those_who_come() -> None:
    hold = GroupHold(Clock())
    hold.answered(64, 0)
    hold.answered(2, 0)
    assert not hold.waits(2, SLOW_S)
