"""The loop looks instead of sleeping: only while what it waits for is near, and never so that others pay for it."""

import asyncio
import errno
import os
from collections.abc import Callable, Sequence
from typing import cast

import pytest

from oncelog import limits
from oncelog.engine.group import Group
from oncelog.engine.guard import Guard
from oncelog.engine.pacing.poller import Poller
from oncelog.engine.pacing.writer import WriteSeconds
from oncelog.storage.disk import Buffer
from oncelog.storage.journal import Journal, OpenGroup
from oncelog.storage.kernel_writes import WriteNotTaken
from tests.engine.test_hold import Clock

US = 1e-6
MS = 1e-3
REQUEST_S = limits.POLL_US_MAX * US
WRITE_S = limits.POLL_WRITE_US_MAX * US
HANG_S = limits.POLL_HANG_MS * MS
REST_S_MIN = limits.POLL_REST_MS_MIN * MS
REST_S_MAX = limits.POLL_REST_MS_MAX * MS
QUICK_S = WRITE_S / 10
SLOW_S = WRITE_S * 1.5
NOBODYS_S = 60.0
"""Much longer than anything here lasts."""

Callback = Callable[[], object]


class Loop:
    """An event loop that is turned by hand."""

    def __init__(self) -> None:
        self.soon: list[Callback] = []
        self.later: list[tuple[float, Callback]] = []

    def call_soon(self, callback: Callback) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callback) -> None:
        self.later.append((delay_s, callback))

    def turn(self) -> None:
        """What was to be called soon, and no more."""
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def wait(self) -> float:
        """What was to be called later, whose time has come; returns how long that took."""
        ((delay_s, callback),) = self.later
        self.later = []
        callback()
        return delay_s

    @property
    def is_asleep(self) -> bool:
        return not self.soon and not self.later


class Disk:
    """A journal, as far as anybody looks at it here."""

    def __init__(self) -> None:
        self.takes = True
        self.writing: OpenGroup | None = None
        self.written: list[OpenGroup] = []
        self.is_ready = True
        self.error: Exception | None = None
        self.looks = 0
        self.is_alone = False
        """The processor was not offered to others since the last look."""

    def start(self, group: OpenGroup, buffers: Sequence[Buffer]) -> bool:
        assert self.writing is None
        assert list(buffers) == [b"%d" % group.group]
        if self.takes:
            self.writing, self.is_alone = group, False
        return self.takes

    def is_written(self) -> bool:
        assert self.writing is not None, "nobody asks twice"
        assert not self.is_alone, "the kernel's own work may be waiting for it"
        self.looks += 1
        self.is_alone = True
        if self.error is not None:
            raise self.error
        if self.is_ready:
            self.written.append(self.writing)
            self.writing = None
        return self.is_ready


class Bench:
    """A poller, everything that it is given, and what it did."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.loop = Loop()
        self.disk = Disk()
        self.seconds = WriteSeconds()
        self.done: list[int] = []
        self.given_back: list[int] = []
        self.on_done: Callback = lambda: None
        self.failures: list[BaseException] = []
        self.others_take_s = 0.0
        self.poller = Poller(
            cast(asyncio.AbstractEventLoop, self.loop),
            cast(Journal, self.disk),
            self.seconds,
            self._done,
            lambda group: self.given_back.append(group.number),
            Guard(self.failures.append),
            self.clock,
        )
        self._handed_over = 0

    def _done(self, group: Group) -> None:
        assert group.open is self.disk.written[-1], "the disk said so"
        self.done.append(group.number)
        self.on_done()

    def offer_processor(self) -> None:
        self.disk.is_alone = False
        self.clock.now += self.others_take_s

    def hand_over(self) -> bool:
        """The next group to be written."""
        self._handed_over += 1
        group = Group(OpenGroup(self._handed_over, 0, 512 * self._handed_over, 4096, 1, None))
        group.buffers = [b"%d" % group.number]
        return self.poller.write(group)

    def put(self, seconds: float) -> None:
        """A group that the disk takes so long for."""
        self.disk.is_ready = False
        assert self.hand_over()
        self.loop.turn()
        self.clock.now += seconds
        self.disk.is_ready = True
        self.loop.turn()
        assert self.disk.writing is None

    def request(self, after_s: float) -> None:
        """Everybody has an answer, and so long after it something comes."""
        self.poller.answered()
        self.clock.now += after_s
        self.poller.came()

    def settle(self) -> int:
        """Turn the loop until it sleeps; returns how often."""
        turns = 0
        while self.loop.soon:
            assert len(self.loop.soon) == 1, "there is one who looks"
            self.loop.turn()
            turns += 1
            assert turns < 10_000, "it never sleeps"
        return turns


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = Bench()
    monkeypatch.setattr(os, "sched_yield", bench.offer_processor)
    return bench


# --- writes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [1, 2, 50])
def test_group_is_done_once_and_never_before_the_disk_says_so(bench: Bench, turns: int) -> None:
    bench.disk.is_ready = False
    assert bench.hand_over()
    assert bench.disk.looks == 0, "whoever handed it over goes on"
    for _ in range(turns):
        looks = bench.disk.looks
        bench.loop.turn()
        assert bench.disk.looks > looks
        assert bench.done == []
        assert len(bench.loop.soon) == 1, "others have their turn, and it looks again"
    bench.clock.now += QUICK_S
    bench.disk.is_ready = True
    bench.loop.turn()
    assert bench.done == [1]
    assert bench.seconds.count == 1
    assert bench.seconds.last == pytest.approx(QUICK_S)
    bench.settle()
    assert bench.loop.is_asleep
    assert bench.done == [1]


def test_next_group_leaves_while_the_last_one_is_told(bench: Bench) -> None:
    """As the engine does."""

    def next_one() -> None:
        if len(bench.done) < 5:
            assert bench.hand_over()

    bench.on_done = next_one
    assert bench.hand_over()
    bench.settle()
    assert bench.done == [1, 2, 3, 4, 5]


def test_group_that_the_kernel_does_not_take_is_for_the_thread(bench: Bench) -> None:
    bench.disk.takes = False
    assert not bench.hand_over()
    assert bench.loop.is_asleep
    bench.disk.takes = True
    assert bench.hand_over(), "that was about the group, not about the disk"


def test_disk_that_is_slow_for_the_thread_is_not_looked_for(bench: Bench) -> None:
    bench.seconds.add(SLOW_S)  # as the thread does
    assert not bench.hand_over()
    assert bench.loop.is_asleep
    bench.seconds.add(QUICK_S)
    assert bench.hand_over()


def assert_rests(bench: Bench, seconds: float) -> None:
    """For so long from now on, and no longer, though the thread finds the disk quick."""
    bench.settle()
    assert bench.loop.is_asleep
    until = bench.clock.now + seconds
    bench.seconds.add(QUICK_S)
    for now in (bench.clock.now, until - 0.01 * MS):
        bench.clock.now = now
        assert not bench.hand_over()
        assert bench.loop.is_asleep
    bench.clock.now = until + 0.01 * MS


def test_write_that_took_too_long_is_followed_by_a_rest(bench: Bench) -> None:
    taken: list[bool] = []
    bench.on_done = lambda: taken.append(bench.hand_over())
    bench.put(SLOW_S)
    assert bench.done == [1], "it is told all the same"
    assert taken == [False], "and the next one leaves by the thread at once"
    bench.on_done = lambda: None
    assert_rests(bench, REST_S_MIN)
    bench.put(QUICK_S)
    assert bench.done[1:]


def test_rests_become_longer_where_slow_writes_are_the_rule(bench: Bench) -> None:
    rest_s = REST_S_MIN
    for _ in range(10):
        bench.put(SLOW_S)
        assert_rests(bench, rest_s)
        rest_s = min(2 * rest_s, REST_S_MAX)
    assert rest_s == REST_S_MAX


def test_slow_write_after_many_good_ones_is_an_exception(bench: Bench) -> None:
    for good, rest_s in [
        (0, REST_S_MIN),
        (limits.POLL_WRITES_MIN - 2, 2 * REST_S_MIN),
        (limits.POLL_WRITES_MIN - 2, 4 * REST_S_MIN),
        (limits.POLL_WRITES_MIN - 1, REST_S_MIN),
        (0, 2 * REST_S_MIN),
        (5 * limits.POLL_WRITES_MIN, REST_S_MIN),
    ]:
        for _ in range(good):
            bench.put(QUICK_S)
        bench.put(SLOW_S)
        assert_rests(bench, rest_s)


def test_disk_that_hangs_is_looked_for_now_and_then(bench: Bench) -> None:
    bench.disk.is_ready = False
    assert bench.hand_over()
    bench.clock.now += HANG_S
    bench.loop.turn()
    assert len(bench.loop.soon) == 1, "not yet"
    bench.clock.now += 0.01 * MS
    bench.loop.turn()
    for _ in range(5):
        assert bench.loop.soon == []
        bench.poller.came()
        assert bench.loop.soon == [], "whoever comes meanwhile does not change that"
        looks = bench.disk.looks
        bench.clock.now += bench.loop.wait()
        assert bench.disk.looks > looks
    assert bench.done == []
    bench.disk.is_ready = True
    assert bench.loop.wait() == HANG_S
    assert bench.done == [1]
    assert bench.seconds.last == pytest.approx(6 * HANG_S, abs=0.1 * MS)
    assert_rests(bench, REST_S_MIN)


def test_failure_of_the_disk_reaches_the_guard_and_ends_the_looks(bench: Bench) -> None:
    bench.disk.error = OSError("the disk is gone")
    assert bench.hand_over()
    with pytest.raises(OSError, match="the disk is gone"):
        bench.loop.turn()
    assert bench.failures == [bench.disk.error]
    assert bench.loop.is_asleep
    assert bench.done == []


# --- requests --------------------------------------------------------------------------------------------------------


def test_next_request_is_looked_for_only_if_the_last_one_came_soon(bench: Bench) -> None:
    bench.others_take_s = 10 * US
    bench.poller.came()
    bench.poller.answered()
    assert bench.loop.is_asleep, "nobody knows yet how soon they come"
    for after_s, is_near in [(0.9, True), (1.1, False), (0.5, True), (NOBODYS_S, False), (0.9, True)]:
        bench.request(REQUEST_S * after_s)
        bench.clock.now += NOBODYS_S
        bench.poller.came()  # only the first one after an answer tells
        bench.settle()
        bench.poller.answered()
        assert bool(bench.loop.soon) == is_near
        bench.settle()


def test_look_for_a_request_has_an_end(bench: Bench) -> None:
    """An idle engine costs nothing."""
    bench.others_take_s = REQUEST_S / 20
    bench.request(QUICK_S)
    bench.poller.answered()
    begun = bench.clock.now
    assert bench.settle() >= 20
    assert bench.clock.now - begun == pytest.approx(REQUEST_S, rel=0.1)
    assert bench.loop.is_asleep
    bench.clock.now += NOBODYS_S
    bench.poller.came()
    assert bench.loop.is_asleep


def test_look_for_a_request_ends_when_one_comes(bench: Bench) -> None:
    bench.others_take_s = US
    bench.request(QUICK_S)
    bench.poller.answered()
    bench.loop.turn()
    assert len(bench.loop.soon) == 1
    bench.poller.came()
    assert bench.settle() == 1
    assert bench.hand_over(), "and what came can be written"
    bench.settle()
    assert bench.done == [1]


def test_one_look_serves_the_write_and_the_request_after_it(bench: Bench) -> None:
    bench.others_take_s = 10 * US
    bench.request(QUICK_S)
    bench.on_done = bench.poller.answered
    assert bench.hand_over()
    assert bench.settle() > 10


def test_processor_that_others_keep_for_long_is_left_to_them(bench: Bench) -> None:
    """On a busy machine whoever does not sleep is let in last."""
    rest_s = REST_S_MIN
    for _ in range(3):
        bench.request(QUICK_S)
        bench.others_take_s = SLOW_S
        bench.poller.answered()
        bench.loop.turn()
        bench.others_take_s = US
        begun = bench.clock.now
        bench.request(QUICK_S)
        bench.poller.answered()
        assert bench.settle() <= 1, "nor is a request looked for meanwhile"
        assert_rests(bench, rest_s - (bench.clock.now - begun))
        rest_s *= 2


@pytest.mark.parametrize("what", ["write", "hang", "request"])
def test_nothing_is_looked_for_after_the_end(bench: Bench, what: str) -> None:
    bench.others_take_s = US
    bench.request(QUICK_S)
    bench.disk.is_ready = False
    if what == "request":
        bench.poller.answered()
    else:
        assert bench.hand_over()
        bench.clock.now += 2 * HANG_S * (what == "hang")
    bench.loop.turn()
    assert bool(bench.loop.later) == (what == "hang")
    looks, bench.disk.is_ready = bench.disk.looks, True
    bench.poller.stop()
    if bench.loop.later:
        bench.loop.wait()
    assert bench.settle() <= 1
    bench.poller.answered()
    assert bench.loop.is_asleep
    assert bench.disk.looks == looks
    assert bench.done == []


def test_group_that_the_kernel_gives_back_is_for_the_thread_and_a_rest_follows(bench: Bench) -> None:
    bench.disk.error = WriteNotTaken(errno.EAGAIN, "it would have to wait")
    assert bench.hand_over()
    bench.settle()
    assert (bench.given_back, bench.done, bench.failures) == ([1], [], [])
    assert not bench.hand_over(), "a rest"
    assert bench.loop.is_asleep
