"""The log's time: CLOCK_BOOTTIME, drawn slowly towards the wall clock; no step of the wall clock changes a decision."""

import asyncio
import time as real_time
from itertools import pairwise
from pathlib import Path

import pytest

from oncelog import limits
from oncelog.core.command import AddToTxn, GetTxn, InitProducer
from oncelog.core.outcome import TxnDone, TxnFound
from oncelog.core.txn import NS_PER_MS, TxnState, TxnTimeouts
from oncelog.engine.clock import ClockRefused, LogClock, check_clock
from oncelog.engine.engine import Settings
from oncelog.storage.clock_note import read_clock_note, write_clock_note
from tests.engine.opening import SETTINGS, append, done, make_topic, opened

SECOND_NS = 10**9
HOUR_NS = 3600 * SECOND_NS
DAY_NS = 24 * HOUR_NS


class Time:
    """Both clocks of a machine. Stands in for the module `time`."""

    strftime = staticmethod(real_time.strftime)
    gmtime = staticmethod(real_time.gmtime)

    def __init__(self) -> None:
        self.wall_ns = 1_700_000_000 * 10**9
        self.running_ns = 12 * HOUR_NS

    def time_ns(self) -> int:
        return self.wall_ns

    def clock_gettime_ns(self, _clock: int) -> int:
        return self.running_ns

    def pass_ns(self, ns: int) -> None:
        self.wall_ns += ns
        self.running_ns += ns


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("oncelog.engine.clock.time", time)
    return time


def seconds(clock: LogClock, time: Time, count: int) -> list[int]:
    """Let so many seconds pass, the clock being called in each; what it said."""
    said = []
    for _ in range(count):
        time.pass_ns(SECOND_NS)
        said.append(clock())
    return said


def test_time_is_the_wall_clocks_as_long_as_that_is_not_set(time: Time) -> None:
    clock = LogClock(0)
    assert clock() == time.wall_ns
    time.pass_ns(5)
    assert clock() == time.wall_ns
    assert clock.skew_ns == 0


@pytest.mark.parametrize("step_ns", [8 * DAY_NS, -8 * DAY_NS])
def test_a_step_of_the_wall_clock_and_back_changes_nothing(time: Time, step_ns: int) -> None:
    """Eight days forward for a second and a half, and back: ids of a week were forgotten by that once."""
    clock = LogClock(0)
    before = clock()
    time.wall_ns += step_ns
    assert clock() == before
    time.pass_ns(SECOND_NS * 3 // 2)
    assert abs(clock() - before - SECOND_NS * 3 // 2) <= 2 * NS_PER_MS
    time.wall_ns -= step_ns
    (now,) = seconds(clock, time, 1)
    assert abs(now - time.wall_ns) <= 2 * NS_PER_MS
    assert clock.steps == 0


def test_time_is_drawn_to_the_wall_clock_by_a_millisecond_per_second_and_never_runs_back(time: Time) -> None:
    for offset_ms in (20, -20):
        clock = LogClock(0)
        clock()
        time.wall_ns += offset_ms * NS_PER_MS
        said = seconds(clock, time, 10)
        steps = [after - before for before, after in pairwise(said)]
        assert set(steps) == {SECOND_NS + (NS_PER_MS if offset_ms > 0 else -NS_PER_MS)}
        seconds(clock, time, 11)
        assert clock() == time.wall_ns
    clock = LogClock(0)
    time.wall_ns -= DAY_NS
    said = []
    for _ in range(1_000):
        time.pass_ns(7)  # far less than one nanosecond of drawing each
        said.append(clock())
    assert said == sorted(said)
    assert said[-1] - said[0] == 999 * 7 - 7, "it adds up all the same"


def test_a_wall_clock_that_stays_ahead_is_taken_over_in_one_step_and_reported(time: Time) -> None:
    clock = LogClock(0, settle_ms=60_000)
    notices: list[str] = []
    clock.on_notice = notices.append
    clock()
    time.wall_ns += 2 * DAY_NS
    seconds(clock, time, 50)
    time.wall_ns -= 2 * DAY_NS
    seconds(clock, time, 1)
    time.wall_ns += 2 * DAY_NS
    seconds(clock, time, 50)
    assert (clock.steps, notices) == (0, []), "there was a break"
    seconds(clock, time, 11)
    assert clock() == time.wall_ns
    assert clock.steps == 1
    assert notices == ["the log's time was set forward by 2.0 days, to the clock of this machine"]


def test_a_wall_clock_beyond_the_limit_is_never_taken_over_and_reported_once(time: Time) -> None:
    clock = LogClock(0, settle_ms=60_000, jump_max_ms=DAY_NS // NS_PER_MS)
    notices: list[str] = []
    clock.on_notice = notices.append
    before = clock()
    time.wall_ns += 40 * DAY_NS
    said = seconds(clock, time, 300)
    assert said[-1] - before < 301 * SECOND_NS
    assert clock.steps == 0
    assert len(notices) == 1
    assert "40.0 days ahead of the log" in notices[0]
    assert "--accept-clock" in notices[0]


def test_a_wall_clock_that_was_set_back_is_followed_by_no_step(time: Time) -> None:
    clock = LogClock(0, settle_ms=1_000)
    before = clock()
    time.wall_ns -= HOUR_NS
    said = seconds(clock, time, 100)
    assert said[-1] == before + 100 * (SECOND_NS - NS_PER_MS)
    assert clock.skew_ns == HOUR_NS - 100 * NS_PER_MS


def test_time_goes_on_in_suspend(time: Time) -> None:
    clock = LogClock(0)
    before = clock()
    time.pass_ns(3 * HOUR_NS)
    assert clock() == before + 3 * HOUR_NS


def test_time_goes_on_from_the_last_entry_of_a_log_that_is_ahead_of_the_wall_clock(time: Time) -> None:
    clock = LogClock(time.wall_ns + HOUR_NS)
    begun = clock()
    assert begun == time.wall_ns + HOUR_NS
    assert clock.skew_ns == HOUR_NS
    time.pass_ns(1_000)
    assert clock() == begun + 1_000 - 1


def test_a_start_far_ahead_of_what_the_log_knows_is_refused(time: Time) -> None:
    check_clock(0, 1_000)  # a new log knows nothing
    check_clock(time.wall_ns + DAY_NS, 1_000)  # the log is ahead: that is told, not refused
    check_clock(time.wall_ns - SECOND_NS, 1_000)
    with pytest.raises(ClockRefused, match=r"31\.0 days after the log's last time.*the limit is 30\.0 days") as raised:
        check_clock(time.wall_ns - 31 * DAY_NS, limits.CLOCK_JUMP_MAX_MS)
    assert "--accept-clock" in raised.value.hint


def test_the_note_is_read_as_it_was_written_and_anything_else_counts_as_none(tmp_path: Path) -> None:
    assert read_clock_note(tmp_path) == 0
    write_clock_note(tmp_path, 1_700_000_000 * SECOND_NS)
    assert read_clock_note(tmp_path) == 1_700_000_000 * SECOND_NS
    for damaged in (b"", b"-5", b"1e9", b"9" * 30, b"\xff"):
        (tmp_path / "clock").write_bytes(damaged)
        assert read_clock_note(tmp_path) == 0
    write_clock_note(tmp_path / "missing", 5)


def test_an_idle_log_is_opened_by_its_note_and_not_by_its_last_entry(tmp_path: Path, time: Time) -> None:
    """It was written to 40 days ago and stopped cleanly yesterday."""

    async def once(*, accept: bool = False) -> int:
        settings = Settings(SETTINGS.segment_bytes, SETTINGS.checkpoint_bytes, accept_clock=accept)
        async with opened(tmp_path / "log", settings) as engine:
            if engine.view.topic("a") is None:
                await make_topic(engine, "a")
            return engine.now_ns()

    asyncio.run(once())
    time.pass_ns(40 * DAY_NS)
    with pytest.raises(ClockRefused):
        asyncio.run(once())
    write_clock_note(tmp_path / "log", time.wall_ns - DAY_NS)
    assert asyncio.run(once()) == time.wall_ns
    time.pass_ns(40 * DAY_NS)
    assert asyncio.run(once(accept=True)) == time.wall_ns
    assert read_clock_note(tmp_path / "log") == time.wall_ns, "written at a clean stop"


def test_txn_times_out_although_the_wall_clock_was_set_back(time: Time) -> None:
    async def scenario() -> None:
        async with opened(None) as engine:
            await make_topic(engine, "a")
            who = await done(engine, InitProducer("t"), TxnDone)
            await done(engine, AddToTxn("t", who.producer_id, who.epoch, [("a", 0)]), TxnDone)
            times = [(await append(engine, "a", b"before")).time_ns]
            engine._timers.timeouts = TxnTimeouts(check_interval_ms=0)
            time.wall_ns -= HOUR_NS
            time.pass_ns((limits.TXN_TIMEOUT_MS_DEFAULT - 1) * NS_PER_MS)
            engine._tick()
            assert (await done(engine, GetTxn("t"), TxnFound)).txn.state is TxnState.ONGOING
            times.append((await append(engine, "a", b"after")).time_ns)
            time.pass_ns(70 * NS_PER_MS)  # its time is drawn back by a thousandth
            engine._tick()
            assert (await done(engine, GetTxn("t"), TxnFound)).txn.state is TxnState.COMPLETE_ABORT
            passed_ns = (limits.TXN_TIMEOUT_MS_DEFAULT - 1) * NS_PER_MS
            assert times[1] - times[0] == passed_ns - passed_ns // 1_000

    asyncio.run(scenario())
