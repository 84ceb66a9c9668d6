"""`needs`: asks until nothing is missing, never for a key that cannot be spelled, never for more than it must."""

import pytest

from oncelog import limits
from oncelog.core import command as c
from oncelog.core import needs
from oncelog.core.entry import CONTROL, MANY_CLAIMS, TRANSACTIONAL, Appended
from oncelog.core.flat import ProducerClaim, Stream
from oncelog.core.message_id import id_hash
from oncelog.core.row_codec import encode_key
from oncelog.core.rows import Table, TableKey, Topic, TopicConfig
from oncelog.core.state import State
from oncelog.core.touches import is_loaded
from oncelog.core.txn import Txn, TxnState
from oncelog.testing.core_harness import CoreHarness, records, requests

CHUNK = 1 << limits.HOLE_CHUNK_BITS


def log_with_holes() -> tuple[CoreHarness, State]:
    log = CoreHarness()
    log.create("t")
    log.append("t", *[b""] * (3 * CHUNK))
    log.run(c.DeleteRecords("t", 0, [10, 2 * CHUNK + 1]))
    log.restart()
    return log, log.state


def rounds(log: CoreHarness, command: c.Command) -> list[list[TableKey]]:
    """What is asked for, round by round."""
    asked: list[list[TableKey]] = []
    while missing := needs.needs(log.state, command):
        asked.append(missing)
        log.rows.load(log.state, missing)
    return asked


def test_name_leads_to_stream_and_stream_to_producer() -> None:
    log, _ = log_with_holes()
    asked = rounds(log, c.Append("t", 0, b"x", 1, claim=requests("http:p", 0)))
    assert asked == [[(Table.TOPIC, "t")], [(Table.STREAM, 2)], [(Table.PRODUCER, (2, "http:p"))]]


def test_plain_append_to_a_loaded_stream_asks_for_nothing() -> None:
    log, _ = log_with_holes()
    rounds(log, c.GetStream("t"))
    assert rounds(log, c.Append("t", 0, b"x", 1)) == []


def test_walk_over_holes_asks_for_doubling_stretches_of_chunks() -> None:
    log, _ = log_with_holes()
    rounds(log, c.GetStream("t"))
    asked = rounds(log, c.Trim("t", 0, 10))
    assert asked == [[(Table.HOLES, (2, 0))], [(Table.HOLES, (2, 1)), (Table.HOLES, (2, 2))]]


@pytest.mark.parametrize("floor", [-1, 0, 3 * CHUNK + 1, 2**70])
def test_trim_that_will_do_nothing_asks_for_no_chunk(floor: int) -> None:
    log, _ = log_with_holes()
    rounds(log, c.GetStream("t"))
    assert rounds(log, c.Trim("t", 0, floor)) == []


def log_with_tail(tail: int, floor: int) -> CoreHarness:
    log = CoreHarness()
    log.state.topics["t"] = Topic(1, "t", [2], TopicConfig(), 1)
    log.state.streams[2] = Stream(2, 1, 0, TopicConfig(), tail, floor=floor)
    return log


@pytest.mark.parametrize("ranges", [[CHUNK, 2 * 10**9], [0, 1], [2 * 10**9, 2 * 10**9 + 1], [5, 4], []])
def test_delete_that_will_be_refused_asks_for_no_chunk(ranges: list[int]) -> None:
    log = log_with_tail(2 * 10**9, floor=CHUNK)
    assert needs.needs(log.state, c.DeleteRecords("t", 0, ranges)) == []


def test_largest_delete_asks_for_the_chunks_that_it_spans() -> None:
    log = log_with_tail(2 * 10**9, floor=CHUNK)
    most = limits.DELETE_OFFSETS_MAX
    wanted = needs.needs(log.state, c.DeleteRecords("t", 0, [CHUNK, CHUNK + most]))
    assert wanted == [(Table.HOLES, (2, chunk)) for chunk in range(1, 1 + most // CHUNK)]
    assert needs.needs(log.state, c.DeleteRecords("t", 0, [CHUNK, CHUNK + most + 1])) == []


def test_found_id_leads_to_the_stream_and_holes_of_its_record() -> None:
    log = CoreHarness()
    config = TopicConfig(id_zone="z")
    log.create("a", config=config)
    log.create("b", config=config)
    log.append("a", b"x", message_id=b"m")
    log.append("a", b"y")
    log.run(c.DeleteRecords("a", 0, [0, 1]))
    log.restart()
    command = c.GetReceipt("b", 0, b"m")
    assert rounds(log, command) == [[(Table.TOPIC, "b")], [(Table.STREAM, 4)]]
    (hash_,) = needs.ids(log.state, command)
    log.state.ids_loaded[hash_] = log.rows.ids[hash_]
    assert rounds(log, command) == [[(Table.STREAM, 2)], [(Table.HOLES, (2, 0))]]


def test_ids_of_every_command_that_names_some() -> None:
    log = CoreHarness()
    log.create("t")
    rounds(log, c.GetStream("t"))
    stream = log.state.streams[2]
    assert stream is not None
    one = [id_hash(stream, b"m")]
    assert needs.ids(log.state, c.Append("t", 0, b"x", 1, message_id=b"m")) == one
    assert needs.ids(log.state, c.Append("t", 0, b"x", 1)) == []
    assert needs.ids(log.state, c.GetReceipt("t", 0, b"m")) == one
    each = c.Columns("t", 0, [b"x", b"y"], message_ids=[b"m", b""])
    assert needs.ids(log.state, each) == one
    appends = [c.CommitAppend("t", 0, b"x", 1, message_id=b"m")]
    commit = c.Commit(appends, [c.ExpectId("t", 0, b"n", True), c.ExpectNew("t")])
    assert needs.ids(log.state, commit) == [*one, id_hash(stream, b"n")]
    assert needs.ids(log.state, c.GetTopic("t")) == []
    assert needs.ids(log.state, c.Append("nowhere", 0, b"x", 1, message_id=b"m")) == []
    assert needs.ids(log.state, c.Columns("nowhere", 0, [b"x"], message_ids=[b"m"])) == []


def test_commit_of_a_txn_asks_for_no_chunk_that_only_an_abort_needs() -> None:
    log = CoreHarness()
    state = log.state
    state.txns["x"] = Txn("x", 1, 0, -1, -1, 1000, TxnState.ONGOING, 1, 2, {2: [0, 5 * CHUNK]})
    state.streams[2] = Stream(2, 1, 0, TopicConfig(), 9 * CHUNK, open_txns={1: 0})
    producer = (Table.PRODUCER, (2, "kafka:1"))
    marker = (Table.HOLES, (2, 9))
    assert needs.needs(state, c.EndTxn("x", 1, 0, True)) == [producer, marker]
    aborted = [(Table.HOLES, (2, chunk)) for chunk in range(5)]
    assert needs.needs(state, c.EndTxn("x", 1, 0, False)) == [producer, marker, *aborted]


def test_producer_of_commits_leads_to_the_streams_it_wrote_last() -> None:
    log = CoreHarness()
    log.create("a")
    log.create("b")
    claim = ProducerClaim("commit:p", 0, 0, 0, 1)
    log.run(c.Commit([c.CommitAppend("b", 0, b"x", 1, b"d" * 16)], claim=claim))
    log.restart()
    asked = [key for round_ in rounds(log, c.GetProducer("", 0, "commit:p")) for key in round_]
    assert asked == [(Table.PRODUCER, (0, "commit:p")), (Table.STREAM, 4)]


BAD_NAMES = ["n" * 600, "a\0b", "\ud800"]


def every_command(name: str) -> list[c.Command]:
    """One of each kind that takes a name, with this one in every place."""
    claim = ProducerClaim(name, 0, 0, 0, 1)
    move = c.CursorMove(name, name, 0, 0)
    return [
        c.Append(name, 0, b"x", 1, b"d" * 16, claim, b"m", txn_id=name),
        c.Append("t", 0, b"x", 1, claim=claim),
        c.Append("t", 0, b"x", 1, claim=records(1, 0), txn_id=name),
        c.one_value(name, 0, b"x", b"d" * 16, claim, b"m"),
        c.one_value("t", 0, b"x", claim=claim),
        c.Columns(name, 0, [b"x"], [b"d" * 16], [claim], [b"m"]),
        c.Columns("t", 0, [b"x"], None, [claim]),
        c.Columns("t", 0, [b"x", b"y"], together=True, batch_id=name, batch_scope="nats"),
        c.Columns("t", 0, [b"x", b"y"], together=True, batch_id="b", batch_scope=name),
        c.Commit([c.CommitAppend(name, 0, b"x", 1, b"d" * 16, b"m")]),
        c.Commit([c.CommitAppend("t", 0, b"x", 1, b"d" * 16)], commit_id=name),
        c.Commit([c.CommitAppend("t", 0, b"x", 1, b"d" * 16)], claim=claim),
        c.Commit([c.CommitAppend("t", 0, b"x", 1, b"d" * 16)], [c.ExpectCursor(name, "t", 0, 0)]),
        c.Commit([c.CommitAppend("t", 0, b"x", 1, b"d" * 16)], [c.ExpectEpoch("t", 0, name, 0)]),
        c.Commit([c.CommitAppend("t", 0, b"x", 1, b"d" * 16)], [c.ExpectNew(name)]),
        c.Commit([], cursors=[move]),
        c.CreateTopic(name),
        c.AddPartitions(name, 2),
        c.ConfigureTopic(name, TopicConfig()),
        c.DeleteTopic(name),
        c.CloseStream(name),
        c.CloseStream("t", 0, claim),
        c.Trim(name, 0, 1),
        c.DeleteRecords(name, 0, [0, 1]),
        c.BeginSubjects(name),
        c.IndexSubjects(name, 0, 0, 1, [("a", 1, 0, 0)]),
        c.IndexSubjects("t", 0, 0, 1, [(name, 1, 0, 0)]),
        c.GetSubject(name, 0, "a"),
        c.GetSubject("t", 0, name),
        c.OpenApplication(name),
        c.OpenStage(name, 1),
        c.Publish([c.PublishItem(1, name, 0, 1)], "app", 1, "q", 0),
        c.Publish([], name, 1, "q", 0),
        c.MoveCursors([move]),
        c.CommitOffsets([move]),
        c.WriteMarker(1, 0, False, [(name, 0)]),
        c.ConfirmCursor(name, "t", 0, [0, 1]),
        c.DeleteCursor(name, "t", 0),
        c.SetConsumer(name, "t"),
        c.SetConsumer("c", name),
        c.UpdateConsumers([c.ConsumerUpdate(name, "t"), c.ConsumerUpdate("c", name)]),
        c.DeleteConsumer(name, [("t", 0)]),
        c.DeleteConsumer("c", [(name, 0)]),
        c.InitProducer(name),
        c.AddToTxn(name, 1, 0, [("t", 0)]),
        c.AddToTxn("x", 1, 0, [(name, 0)], [name]),
        c.TxnCursors(name, 1, 0, "g", []),
        c.TxnCursors("x", 1, 0, name, [move]),
        c.EndTxn(name, 1, 0, True),
        c.ExpireTxn(name),
        c.GetTopic(name),
        c.GetStream(name),
        c.GetReceipt(name, 0, b"m"),
        c.GetProducer("t", 0, name),
        c.GetCursor(name, "t", 0),
        c.GetTxn(name),
        c.GetApplication(name),
    ]


@pytest.mark.parametrize("name", BAD_NAMES, ids=["long", "nul", "surrogate"])
def test_no_command_makes_needs_ask_for_a_key_that_cannot_be_spelled(name: str) -> None:
    named = {type(command) for command in every_command(name)}
    unnamed = {c.AppendStage, c.DropStages, c.ExpireStages}
    assert named | unnamed == set(needs._NEEDS)
    for command in every_command(name):
        log = CoreHarness()
        log.create("t")
        log.run(command)  # loads by encoded key, and decides without a KeyError
        assert all(len(encode_key(table, key)) <= 511 for table in Table for key in log.state.tables[table])


def test_state_without_the_topic_row_answers_no_stream() -> None:
    state = State()
    state.topics["t"] = Topic(1, "t", [2], TopicConfig(), 1)
    state.streams[2] = None
    assert state.stream("t", 0) is None
    assert state.stream("t", 1) is None
    with pytest.raises(KeyError):
        state.stream("never loaded", 0)


@pytest.mark.parametrize(
    "op",
    [
        Appended(2, 0, 1, b"x", 1),
        Appended(2, 0, 1, b"x", 1, claim=requests("http:p", 0), epoch=0),
        Appended(2, 0, 2, b"x", 1, MANY_CLAIMS, claims=((0, 0, requests("http:p", 0)), (1, 0, requests("http:q", 0)))),
        Appended(2, 0, 1, b"x", 1, TRANSACTIONAL, claim=records(7, 0), epoch=0, txn_id="order"),
        Appended(2, 0, 1, b"x", 1, CONTROL),
    ],
    ids=["plain", "claim", "many claims", "txn", "control"],
)
def test_an_append_counts_as_loaded_only_when_nothing_that_it_touches_is_missing(op: Appended) -> None:
    state = State()
    asked = 0
    while missing := needs.touched_by(state, op):
        assert not is_loaded(state, op)
        table, key = missing[0]
        state.tables[table][key] = None
        asked += 1
    assert asked
    is_plain = not op.flags & (TRANSACTIONAL | CONTROL)
    assert is_loaded(state, op) == is_plain, "what is rare may go the long way"
