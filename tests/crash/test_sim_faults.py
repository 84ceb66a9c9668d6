"""Every call to the disk fails once, in every way it can, during every operation: the engine stops, and nothing that it
had confirmed or shown is lost. A full disk is no failure: writes are refused, everything else goes on."""

from typing import NamedTuple

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    AddToTxn,
    Append,
    Command,
    CreateTopic,
    DeleteTopic,
    EndTxn,
    GetStream,
    InitProducer,
    OpenStage,
    Trim,
)
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import Confirmed, NoRoom, Refusal, StageDone, StreamDone, TxnDone
from oncelog.core.producer import SequenceMode
from oncelog.errors import DiskFault, DiskFull, JournalPoisoned, StorageError
from oncelog.testing.sim_disk import Fault, SimDisk, crash_states, keep_all, lose_all
from oncelog.testing.sim_engine import Contents, IndexAfterCrash, SimEngine, WatchedDisk
from tests.crash.sim_explorer import FATES, Base, nothing_cached
from tests.crash.sim_operations import OPERATIONS, Client, Operation, check_whole, run

BASES = {"fresh": Base(), "near end": Base(near_end=True)}
FAULTS = tuple(fault for fault in Fault if fault is not Fault.CRASH)


class Ran(NamedTuple):
    """A run up to its end, or up to the failure that stopped it."""

    engine: SimEngine
    clients: list[Client]
    seen: Contents
    """What readers saw at the last moment."""
    error: StorageError | None
    needs_entry: int


def run_to_the_end(engine: SimEngine, clients: list[Client]) -> None:
    """The scripts, then what follows any of them: proof, checkpoint."""
    run(engine, clients, together=False)
    engine.tick()
    engine.builds_at_once = True
    engine.build()
    engine.checkpoint()


def run_with_fault(base: Base, operation: Operation, call: int, fault: Fault) -> Ran:
    """`call` counts from the first one after opening."""
    engine = base.open()
    clients = [Client(operation, 0)]
    engine.disk.fail_at(engine.disk.calls + call, fault)
    try:
        run_to_the_end(engine, clients)
        error = None
    except StorageError as stopped:
        error = stopped
    # The process is gone now; what readers saw is a matter of memory, so no fault may hit this look back.
    engine.disk._faults.clear()
    needs_entry = max((answer.needs_entry for answer in engine.answers), default=0)
    return Ran(engine, clients, engine.contents(), error, needs_entry)


def calls_of(base: Base, operation: Operation) -> list[str]:
    """The calls that the operation makes when nothing fails."""
    engine = base.open()
    opened = engine.disk.calls
    run_to_the_end(engine, [Client(operation, 0)])
    return engine.disk.history[opened:]


def expected_of(base: Base, operation: Operation) -> Contents:
    engine = base.open()
    run(engine, [Client(operation, 0)], together=False)
    return engine.contents()


def check_restarts(ran: Ran, expected: Contents) -> None:
    """The process is started again, on a machine that kept its page cache or lost its power, and then loses it."""
    survivors = [ran.engine.disk, *crash_states(ran.engine.disk, states_max=8, samples=4)]
    for number, disk in enumerate(survivors):
        after = ran.engine.reopen(disk, FATES[number % len(FATES)])
        entry_number = after.commits.state.entry_number
        assert entry_number >= ran.needs_entry, "a confirmed write is lost"
        assert entry_number >= ran.engine.view.entry_number, "what readers saw is lost"
        if entry_number == ran.engine.view.entry_number:
            assert after.contents() == ran.seen
        contents, image = after.contents(), after.image()
        # What recovery shows has to stay, whatever the page cache made it believe.
        cut = after.crash(lose_all, FATES[(number + 1) % len(FATES)])
        assert cut.contents() == contents
        assert cut.image().difference(image) == ""
        clients = [client.fork() for client in ran.clients]
        run(cut, clients, together=False)
        check_whole(cut.contents(), clients)
        assert cut.contents() == expected


@pytest.mark.parametrize("base_name", BASES)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_every_call_fails_once(operation: Operation, base_name: str) -> None:
    base = BASES[base_name]
    expected = expected_of(base, operation)
    stopped = 0
    with nothing_cached():
        for call, name in enumerate(calls_of(base, operation), start=1):
            for fault in FAULTS:
                if name not in _can_fail(fault):
                    continue
                ran = run_with_fault(base, operation, call, fault)
                if fault is Fault.SHORT_WRITE:
                    assert ran.error is None, "a short write is continued"
                elif ran.error is not None:
                    stopped += 1
                    _check_stays_down(ran.engine)
                check_restarts(ran, expected)
    assert stopped > 0


def _can_fail(fault: Fault) -> frozenset[str]:
    match fault:
        case Fault.SHORT_WRITE:
            return frozenset({"pwritev"})
        case Fault.NO_SPACE:
            return frozenset({"pwritev", "create"})
        case Fault.SYNC_FAILS:
            return frozenset({"fdatasync", "sync_directory"})
        case _:
            return frozenset({"pwritev", "create", "rename", "remove", "pread", "names", "open"})


def _check_stays_down(engine: SimEngine) -> None:
    """A failed write or sync of the journal is never followed by a confirmation."""
    if engine._in_flight is not None:
        answers = len(engine.answers)
        with pytest.raises(JournalPoisoned):
            engine.journal.write(engine._in_flight.open, engine._in_flight.buffers)
        with pytest.raises(JournalPoisoned):
            engine.written()
        assert len(engine.answers) == answers


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_call_of_opening_fails_once_and_the_next_opening_succeeds(fault: Fault) -> None:
    base = BASES["near end"]
    opened = base.open()
    contents, image = opened.contents(), opened.image()
    refused = 0
    # The unindexed opening reads and writes more: it is the one to break.
    for call in range(1, 200):
        disk = WatchedDisk.of(base.disk)
        disk.fail_at(call, fault)
        try:
            engine = SimEngine(disk, salt=5)
        except (DiskFault, DiskFull):
            refused += 1
        else:
            if disk.calls < call:
                break
            engine.disk._faults.clear()
            assert engine.contents() == contents
        disk._faults.clear()
        for survivor in (disk, disk.crash(lose_all), disk.crash(keep_all)):
            again = SimEngine(survivor, salt=6)
            assert again.contents() == contents
            assert again.image().difference(image) == ""
    else:
        pytest.fail("opening never ended")
    assert refused > 0 or fault is Fault.SHORT_WRITE


def test_a_command_in_the_group_that_failed_is_never_answered_nor_is_anyone_behind_it() -> None:
    engine = BASES["fresh"].open()
    first = engine.submit(_append(b"in the group"))
    engine.seal()
    behind = [engine.submit(_append(b"behind")), engine.submit(GetStream("a"))]
    seen = engine.contents()
    engine.disk.fail_at(engine.disk.calls + 2, Fault.SYNC_FAILS)
    with pytest.raises(DiskFault):
        engine.write()
    with pytest.raises(JournalPoisoned):
        engine.written()
    assert [pending.outcome for pending in (first, *behind)] == [None, None, None]
    assert engine.contents() == seen


# --- a full disk ---------------------------------------------------------------------------------------------------


def _append(value: bytes, *, size: int = 0) -> Append:
    return Append("a", 0, codec.encode_values([value.ljust(size, b".")], 1), 1)


def _filled() -> tuple[SimEngine, list[Confirmed]]:
    """An engine on a disk with room for four segments, written to until it refuses."""
    engine = SimEngine(SimDisk(capacity_bytes=4 * limits.SEGMENT_BYTES_MIN + 100))
    engine.execute(CreateTopic("a"))
    confirmed: list[Confirmed] = []
    while isinstance(outcome := engine.execute(_append(b"%d" % len(confirmed), size=4000)), Confirmed):
        confirmed.append(outcome)
    assert isinstance(outcome, NoRoom)
    return engine, confirmed


def test_full_disk_refuses_writes_and_serves_reads() -> None:
    engine, confirmed = _filled()
    assert engine.commits.disk_full
    records = engine.contents()["a", 0].records
    assert [offset for offset, _ in records] == [answer.first for answer in confirmed]
    assert isinstance(engine.execute(_append(b"again", size=4000)), NoRoom)
    stands = engine.execute(GetStream("a"))
    assert isinstance(stands, StreamDone)
    assert stands.tail == len(confirmed)
    assert engine.crash().contents() == engine.contents()


def test_full_disk_still_takes_urgent_commands_from_the_reserve() -> None:
    engine = SimEngine(SimDisk(capacity_bytes=4 * limits.SEGMENT_BYTES_MIN + 100))
    engine.execute(CreateTopic("a"))
    producer = engine.execute(InitProducer("txn", timeout_ms=60_000))
    assert isinstance(producer, TxnDone)
    identity = ("txn", producer.producer_id, producer.epoch)
    engine.execute(AddToTxn(*identity, [("a", 0)]))
    claim = ProducerClaim(f"kafka:{producer.producer_id}", producer.epoch, 0, 0, int(SequenceMode.RECORDS))
    batch = codec.encode_values([b"open"], 1)
    assert isinstance(engine.execute(Append("a", 0, batch, 1, claim=claim, txn_id="txn")), Confirmed)
    while isinstance(outcome := engine.execute(_append(b"", size=4000)), Confirmed):
        pass
    assert isinstance(outcome, NoRoom)
    assert engine.contents()["a", 0].records == ()
    urgent: list[Command] = [EndTxn(*identity, commit=False), Trim("a", 0, 3), DeleteTopic("a")]
    for command in urgent:
        answer = engine.execute(command)
        assert not isinstance(answer, Refusal), f"{command}: {answer}"
    assert engine.crash().contents() == {}


def test_a_timer_ends_a_txn_on_a_full_disk() -> None:
    """P7 holds also then: the expiry is urgent, and if even the reserve is used up it is tried at every tick."""
    engine = SimEngine(SimDisk(capacity_bytes=4 * limits.SEGMENT_BYTES_MIN + 100))
    engine.execute(CreateTopic("a"))
    producer = engine.execute(InitProducer("txn", timeout_ms=10_000))
    assert isinstance(producer, TxnDone)
    engine.execute(AddToTxn("txn", producer.producer_id, producer.epoch, [("a", 0)]))
    claim = ProducerClaim(f"kafka:{producer.producer_id}", producer.epoch, 0, 0, int(SequenceMode.RECORDS))
    engine.execute(Append("a", 0, codec.encode_values([b"open"], 1), 1, claim=claim, txn_id="txn"))
    while isinstance(engine.execute(_append(b"", size=4000)), Confirmed):
        pass
    stream = engine.contents()["a", 0]
    assert (stream.stable, stream.stable < stream.tail) == (0, True)
    engine.tick(10_000)
    stream = engine.contents()["a", 0]
    assert stream.stable == stream.tail


def test_an_expiry_that_found_no_room_is_tried_again() -> None:
    engine = SimEngine(SimDisk(capacity_bytes=4 * limits.SEGMENT_BYTES_MIN + 100))
    engine.execute(CreateTopic("a"))
    stage = engine.execute(OpenStage(ttl_ms=5_000))
    assert isinstance(stage, StageDone)
    while engine.commits.proof_group() is not None:  # proofs are urgent: they take the reserve too
        _finish_proof(engine)
    engine.commits.disk_full = True
    engine.tick(5_000)
    assert engine.commits.state.stages[stage.stage_id] is not None
    engine.disk.capacity_bytes = None
    engine.tick()
    engine.tick()
    assert engine.commits.state.stages[stage.stage_id] is None


def _finish_proof(engine: SimEngine) -> None:
    group = engine.commits._in_flight
    assert group is not None
    engine._in_flight = group
    engine.write()
    engine.written()
    engine.answer()


def test_writing_resumes_when_there_is_room() -> None:
    engine, confirmed = _filled()
    engine.disk.capacity_bytes = None
    assert isinstance(engine.execute(_append(b"too early", size=4000)), NoRoom), "nobody has looked yet"
    engine.tick()
    assert not engine.commits.disk_full
    outcome = engine.execute(_append(b"after", size=4000))
    assert isinstance(outcome, Confirmed)
    assert outcome.first == len(confirmed)
    assert len(engine.crash(lose_all, IndexAfterCrash.LOST).contents()["a", 0].records) == len(confirmed) + 1


def test_commands_wait_for_a_spare_while_the_disk_may_have_room() -> None:
    """No spare is ready and nobody has said that the disk is full: a command waits, and so does all behind it."""
    engine = SimEngine(SimDisk())
    engine.execute(CreateTopic("a"))
    engine.journal.prepare = lambda: False  # type: ignore[method-assign]
    while engine.commits.waiting == 0:
        engine.submit(_append(b"", size=4000))
        engine.flush()
    waiting = [engine.submit(_append(b"waits", size=100)), engine.submit(GetStream("a"))]
    engine.flush()
    assert [pending.outcome for pending in waiting] == [None, None]
    del engine.journal.prepare
    engine.prepare()
    engine.flush()
    assert isinstance(waiting[0].outcome, Confirmed)
    assert isinstance(waiting[1].outcome, StreamDone)
    assert waiting[1].outcome.tail == waiting[0].outcome.next
