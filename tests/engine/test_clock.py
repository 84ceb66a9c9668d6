"""Time: follows the wall clock forward, never back, and goes on at its own pace when the wall clock was set back."""

import asyncio

import pytest

from oncelog import limits
from oncelog.core.command import AddToTxn, GetTxn, InitProducer
from oncelog.core.outcome import TxnDone, TxnFound
from oncelog.core.txn import NS_PER_MS, TxnState, TxnTimeouts
from oncelog.engine.clock import SteadyClock
from tests.engine.opening import append, done, make_topic, opened

HOUR_NS = 3600 * 10**9


class Time:
    """Both clocks of a machine. Stands in for the module `time`."""

    def __init__(self) -> None:
        self.wall_ns = 1_700_000_000 * 10**9
        self.running_ns = 12 * HOUR_NS

    def time_ns(self) -> int:
        return self.wall_ns

    def monotonic_ns(self) -> int:
        return self.running_ns

    def pass_ns(self, ns: int) -> None:
        self.wall_ns += ns
        self.running_ns += ns


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    time = Time()
    monkeypatch.setattr("oncelog.engine.clock.time", time)
    return time


def test_time_is_the_wall_clocks_also_when_that_is_set_forward(time: Time) -> None:
    clock = SteadyClock(0)
    assert clock() == time.wall_ns
    time.pass_ns(5)
    assert clock() == time.wall_ns
    time.wall_ns += HOUR_NS
    assert clock() == time.wall_ns


def test_time_goes_on_at_its_pace_when_the_wall_clock_is_set_back(time: Time) -> None:
    clock = SteadyClock(0)
    before = clock()
    time.wall_ns -= HOUR_NS
    assert clock() == before
    for passed in range(1, 4):
        time.pass_ns(1_000)
        assert clock() == before + passed * 1_000
    time.pass_ns(HOUR_NS)
    assert clock() == before + HOUR_NS + 3_000
    # The wall clock is put right again: nothing jumps, and it is followed once it is ahead.
    time.wall_ns += HOUR_NS
    assert clock() == time.wall_ns
    time.wall_ns += 7
    assert clock() == before + HOUR_NS + 3_007


def test_time_goes_on_from_the_last_entry_of_a_log_that_is_ahead_of_the_wall_clock(time: Time) -> None:
    clock = SteadyClock(time.wall_ns + HOUR_NS)
    begun = clock()
    assert begun == time.wall_ns + HOUR_NS
    time.pass_ns(1_000)
    assert clock() == begun + 1_000


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
            time.pass_ns(NS_PER_MS)
            engine._tick()
            assert (await done(engine, GetTxn("t"), TxnFound)).txn.state is TxnState.COMPLETE_ABORT
            assert times[1] - times[0] == (limits.TXN_TIMEOUT_MS_DEFAULT - 1) * NS_PER_MS

    asyncio.run(scenario())
