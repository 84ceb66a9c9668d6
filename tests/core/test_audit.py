"""Whole-state invariants: a state that commands made has none broken, and each one broken by hand is named."""

from collections.abc import Callable

import pytest

from oncelog.core.audit import audit
from oncelog.core.command import AddToTxn, Append, InitProducer, OpenStage
from oncelog.core.flat import Producer, ProducerClaim, Stream
from oncelog.core.outcome import TxnDone
from oncelog.core.producer import SequenceMode
from oncelog.core.rows import Cursor, HoleChunk, Stage, Topic, TopicConfig
from oncelog.core.state import State
from oncelog.core.txn import Txn
from oncelog.storage.disk import MemoryDisk
from tests.storage.log_writer import LogWriter, batch_of, write_everything


def whole_state() -> State:
    """Everything that a log can hold, an open txn and an open stage included."""
    log = LogWriter(MemoryDisk())
    write_everything(log)
    txn = log.ask(InitProducer("open"))
    assert isinstance(txn, TxnDone)
    log.ask(AddToTxn("open", txn.producer_id, txn.epoch, [("a", 0)], []))
    claim = ProducerClaim(f"kafka:{txn.producer_id}", txn.epoch, 0, 0, int(SequenceMode.RECORDS))
    log.ask(Append("a", 0, batch_of(b"open"), 1, claim=claim, txn_id="open"))
    log.ask(OpenStage("", 0))
    return log.state


def topic(state: State) -> Topic:
    row = state.topics["a"]
    assert row is not None
    return row


def stream(state: State) -> Stream:
    row = state.streams[2]
    assert row is not None
    return row


def producer(state: State) -> Producer:
    row = state.producers[(2, "http:p")]
    assert row is not None
    return row


def cursor(state: State) -> Cursor:
    row = state.cursors[("reader", 2)]
    assert row is not None
    return row


def txn(state: State) -> Txn:
    row = state.txns["open"]
    assert row is not None
    return row


def stage(state: State) -> Stage:
    return next(row for row in state.stages.values() if row is not None)


def chunk(state: State) -> HoleChunk:
    row = state.holes[(2, 0)]
    assert row is not None
    return row


def test_state_made_by_commands_is_sound() -> None:
    assert audit(whole_state()) == []


def test_rows_that_are_not_loaded_are_not_judged() -> None:
    state = whole_state()
    for table in (state.streams, state.txns, state.holes):
        table.clear()
    assert audit(state) == []


BREAKS: list[tuple[str, Callable[[State], object]]] = [
    ("calls itself 'b'", lambda s: setattr(topic(s), "name", "b")),
    ("names a stream twice", lambda s: setattr(topic(s), "stream_ids", [2, 2])),
    ("names stream 2, which is not there", lambda s: s.streams.update({2: None})),
    ("does not know that it is partition 0", lambda s: setattr(stream(s), "partition", 1)),
    ("has other settings than its topic", lambda s: setattr(stream(s), "config", TopicConfig(id_zone="z"))),
    ("names stream 2, which was deleted", lambda s: setattr(stream(s), "deleted_ns", 5)),
    ("uses an id that was not handed out", lambda s: setattr(s, "next_id", 1)),
    ("stream 2 calls itself 9", lambda s: setattr(stream(s), "stream_id", 9)),
    ("stream 2 has an id that was not handed out", lambda s: setattr(s, "next_id", 2)),
    ("are out of order", lambda s: setattr(stream(s), "floor", 1000)),
    ("was appended to after the newest entry", lambda s: setattr(s, "time_ns", 1)),
    ("counts 99 holes", lambda s: setattr(stream(s), "hole_count", 99)),
    ("do not rise to the floor", lambda s: setattr(stream(s), "trim_marks", [7, 1])),
    ("whose txn is not open there", lambda s: setattr(txn(s), "streams", {})),
    ("are not whole holes", lambda s: chunk(s).holes.pop()),
    ("overlaps another, is empty or lies outside", lambda s: chunk(s).holes.__setitem__(1, 0)),
    ("has no cause", lambda s: chunk(s).holes.__setitem__(2, 77)),
    ("a hole ends at 4000", lambda s: chunk(s).holes.extend([3000, 4000, 0, -1])),
    ("its newest batch ends at 1", lambda s: setattr(producer(s), "last", 5)),
    ("was used after the newest entry", lambda s: setattr(producer(s), "used_ns", 2**62)),
    ("sequences 0 to 0 follow 1", lambda s: producer(s).remember(producer(s).batches[0])),
    (
        "to 5000, the tail is",
        lambda s: setattr(producer(s).batches[-1], "next_offset", 5000),
    ),
    ("is empty, touches what is before it", lambda s: cursor(s).confirmed.__setitem__(0, 0)),
    ("have an odd end", lambda s: cursor(s).confirmed.append(9)),
    ("stands at 5000, the tail is", lambda s: cursor(s).confirmed.extend([4000, 5000])),
    ("its stream pins", lambda s: setattr(cursor(s), "pinned", False)),
    ("txn 'open' calls itself 'other'", lambda s: setattr(txn(s), "txn_id", "other")),
    ("which was not handed out yet", lambda s: setattr(s, "next_producer_id", 1)),
    ("is not open and still holds", lambda s: setattr(s.txns["txn-True"], "groups", ["g"])),
    ("are not sorted and apart", lambda s: txn(s).streams[2].extend([1, 0])),
    ("wrote stream 2 up to 5000", lambda s: txn(s).streams[2].__setitem__(1, 5000)),
    ("which does not wait for it", lambda s: setattr(stream(s), "open_txns", None)),
    ("stage 11 calls itself 1", lambda s: setattr(stage(s), "stage_id", 1)),
    ("its newest batch begins at 3", lambda s: setattr(stage(s), "last_first", 3)),
]


@pytest.mark.parametrize(("what", "break_it"), BREAKS, ids=[what for what, _ in BREAKS])
def test_broken_invariant_is_named(what: str, break_it: Callable[[State], object]) -> None:
    state = whole_state()
    break_it(state)
    assert any(what in wrong for wrong in audit(state)), audit(state)
