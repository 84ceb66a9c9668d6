"""Error codes where they arise: the ten of seed 002, the others of the coordinator, and those of the door."""

from collections.abc import Iterator
from typing import Any

import pytest

from oncelog.core import batch as codec
from oncelog.core.compression import deflate
from oncelog.protocols.kafka.codes import Code
from tests.conformance.kafka_wire import Wire, batch_of, values_of
from tests.conformance.kafka_work import fresh
from tests.servers.running import running


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running() as server:
        yield str(server.addresses["kafka"])


@pytest.fixture
def wire(address: str) -> Iterator[Wire]:
    with Wire(address) as client:
        yield client


class Txn:
    """A transactional id with a topic of its own."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.id, self.topic = fresh("txn"), fresh("topic")
        wire.create(self.topic, 2)
        found = wire.init(self.id)
        self.pid, self.epoch = found["producer_id"], found["producer_epoch"]
        self.sequence = 0

    def add(self, partition: int = 0, **more: Any) -> int:
        return self.wire.add(self.id, self.pid, self.epoch, [(self.topic, partition)], **more)[0]

    def write(self, value: bytes, **more: Any) -> int:
        batch = batch_of(value, pid=self.pid, epoch=self.epoch, sequence=self.sequence, transactional=True)
        code = int(self.wire.produce(self.topic, batch, txn_id=self.id, **more)["error_code"])
        self.sequence += code == 0
        return code

    def end(self, commit: bool, **more: Any) -> int:
        return self.wire.end(self.id, self.pid, self.epoch, commit, **more)


def test_0_a_transaction_from_begin_to_end(wire: Wire) -> None:
    txn = Txn(wire)
    assert (txn.add(), txn.write(b"one"), txn.end(True)) == (0, 0, 0)
    assert txn.end(True) == 0, "the retry of a commit succeeds again"
    assert values_of(wire.fetch(txn.topic)["records"]) == [b"one"]


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_3_a_partition_that_is_missing_and_55_for_the_others(wire: Wire, version: int) -> None:
    txn = Txn(wire)
    places = [(txn.topic, 0), ("nowhere", 0), (txn.topic, 9)]
    codes = wire.add(txn.id, txn.pid, txn.epoch, places, version=version)
    assert codes == [Code.OPERATION_NOT_ATTEMPTED, 3, 3]
    assert wire.produce("nowhere", batch_of(b"x"))["error_code"] == 3


def test_15_transactions_are_switched_off() -> None:
    with running(faces={"kafka": {"transactions": False}}) as server, Wire(str(server.addresses["kafka"])) as wire:
        assert wire.init("t")["error_code"] == 15
        assert wire.init(None)["error_code"] == 0, "idempotent producers need no coordinator"
        assert wire.end("t", 1, 0, True) == 15
        assert wire.add("t", 1, 0, [("a", 0)]) == [15]
        assert wire.ask("FindCoordinator", 3, {"key": "t", "key_type": 1})["error_code"] == 15


def test_44_more_partitions_than_one_transaction_may_name() -> None:
    with running(faces={"kafka": {"txn_partitions_max": 2}}) as server, Wire(str(server.addresses["kafka"])) as wire:
        wire.create("wide", 3)
        pid = wire.init("t")["producer_id"]
        assert wire.add("t", pid, 0, [("wide", 0), ("wide", 1)]) == [0, 0]
        assert wire.add("t", pid, 0, [("wide", 2)]) == [44]


def test_47_and_90_an_older_epoch(wire: Wire) -> None:
    txn = Txn(wire)
    txn.add()
    wire.init(txn.id)
    again = wire.init(txn.id)
    assert again["producer_epoch"] > txn.epoch
    assert txn.write(b"late") == 47, "the data path never says 90"
    assert [txn.end(True, version=version) for version in (0, 1, 2, 3)] == [47, 47, 90, 90]
    assert [txn.add(version=version) for version in (0, 1, 2, 3, 4)] == [47, 47, 90, 90, 90]
    stale = {"producer_id": txn.pid, "producer_epoch": txn.epoch}
    assert [wire.init(txn.id, version, **stale)["error_code"] for version in (3, 4)] == [47, 90]


def test_48_what_the_state_forbids(wire: Wire) -> None:
    txn = Txn(wire)
    assert txn.end(True) == 48, "nothing is open"
    assert txn.write(b"unregistered", version=10) == 48
    assert txn.write(b"unregistered", version=11) == Code.TRANSACTION_ABORTABLE
    txn.add()
    txn.write(b"x")
    plain = batch_of(b"plain", pid=txn.pid, epoch=txn.epoch, sequence=1)
    assert wire.produce(txn.topic, plain)["error_code"] == 48, "outside of the transaction that is open"
    assert txn.end(False) == 0
    assert txn.end(True) == 48


def test_48_offsets_of_a_group_that_was_not_added(wire: Wire) -> None:
    txn = Txn(wire)
    txn.add()
    row = {"partition_index": 0, "committed_offset": 1, "committed_metadata": None}
    message = {
        "transactional_id": txn.id,
        "group_id": "g",
        "producer_id": txn.pid,
        "producer_epoch": txn.epoch,
        "topics": [{"name": txn.topic, "partitions": [row]}],
    }
    for version in (0, 1, 2, 3, 4):
        answer = wire.ask("TxnOffsetCommit", version, message)
        assert answer["topics"][0]["partitions"][0]["error_code"] == 48


def test_49_an_id_that_is_unknown_or_held_by_another_producer(wire: Wire) -> None:
    txn = Txn(wire)
    assert wire.end("nobody", 1, 0, True) == 49
    assert wire.end(txn.id, txn.pid + 1, txn.epoch, True) == 49
    assert wire.add("nobody", 1, 0, [(txn.topic, 0)]) == [49]


def test_50_only_where_it_is_asked_for() -> None:
    settings = {"txn_timeout_policy": "reject"}
    with running(faces={"kafka": settings}) as server, Wire(str(server.addresses["kafka"])) as wire:
        assert wire.init("t", transaction_timeout_ms=2**31 - 1)["error_code"] == 50
    with running() as server, Wire(str(server.addresses["kafka"])) as wire:
        assert wire.init("t", transaction_timeout_ms=2**31 - 1)["error_code"] == 0
        described = wire.ask("DescribeTransactions", 0, {"transactional_ids": ["t"]})
        assert described["transaction_states"][0]["transaction_timeout_ms"] == 900_000


def test_51_an_open_transaction_is_aborted_first(wire: Wire) -> None:
    txn = Txn(wire)
    txn.add()
    txn.write(b"open")
    assert wire.init(txn.id)["error_code"] == 51
    assert wire.init(txn.id)["error_code"] == 0
    assert values_of(wire.fetch(txn.topic, committed=False)["records"]) == [b"open"]
    found = wire.fetch(txn.topic)
    assert [row["producer_id"] for row in found["aborted_transactions"]] == [txn.pid]


def markers(wire: Wire, txn: Txn, coordinator_epoch: int, commit: bool = False, version: int = 1) -> int:
    marker = {
        "producer_id": txn.pid,
        "producer_epoch": txn.epoch,
        "transaction_result": commit,
        "topics": [{"name": txn.topic, "partition_indexes": [0]}],
        "coordinator_epoch": coordinator_epoch,
    }
    answer = wire.ask("WriteTxnMarkers", version, {"markers": [marker]})
    return int(answer["markers"][0]["topics"][0]["partitions"][0]["error_code"])


def test_52_a_marker_of_a_coordinator_that_was_replaced(wire: Wire) -> None:
    txn = Txn(wire)
    txn.add()
    txn.write(b"x")
    assert [markers(wire, txn, 0, version=version) for version in (0, 1)] == [52, 52]
    assert markers(wire, txn, -1) == 0, "an administrator's abort"
    assert wire.latest(txn.topic)["offset"] == 2
    assert txn.end(True) in (47, 48, 90)


def test_53_an_id_that_may_not_be_used() -> None:
    settings = {"transactional_ids": "shop-* billing"}
    with running(faces={"kafka": settings}) as server, Wire(str(server.addresses["kafka"])) as wire:
        assert wire.init("shop-7")["error_code"] == wire.init("billing")["error_code"] == 0
        assert wire.init("other")["error_code"] == 53
        assert wire.end("other", 1, 0, True) == 53
        wire.create("t")
        batch = batch_of(b"x", pid=1, epoch=0, sequence=0, transactional=True)
        assert wire.produce("t", batch, txn_id="other")["error_code"] == 53
        assert wire.produce("t", batch, txn_id=None)["error_code"] == 53


def test_88_an_offset_that_waits_for_a_transaction(wire: Wire) -> None:
    txn, group = Txn(wire), fresh("group")
    assert (
        wire.ask(
            "AddOffsetsToTxn",
            3,
            {"transactional_id": txn.id, "producer_id": txn.pid, "producer_epoch": txn.epoch, "group_id": group},
        )["error_code"]
        == 0
    )
    row = {"partition_index": 0, "committed_offset": 150, "committed_metadata": "m"}
    message = {
        "transactional_id": txn.id,
        "group_id": group,
        "producer_id": txn.pid,
        "producer_epoch": txn.epoch,
        "topics": [{"name": txn.topic, "partitions": [row]}],
    }
    assert wire.ask("TxnOffsetCommit", 3, message)["topics"][0]["partitions"][0]["error_code"] == 0

    def offset(*, stable: bool) -> tuple[int, int]:
        asked = {"group_id": group, "topics": [{"name": txn.topic, "partition_indexes": [0]}], "require_stable": stable}
        found = wire.ask("OffsetFetch", 7, asked)["topics"][0]["partitions"][0]
        return found["error_code"], found["committed_offset"]

    assert offset(stable=True) == (88, -1)
    assert offset(stable=False) == (0, -1)
    assert txn.end(True) == 0
    assert offset(stable=True) == (0, 150)


def test_90_a_producer_that_was_fenced_by_its_successor(wire: Wire) -> None:
    txn = Txn(wire)
    wire.init(txn.id)
    assert txn.add() == 90
    assert txn.end(False) == 90


# --- the door ------------------------------------------------------------------------------------------------------


def damaged(batch: bytes, at: int, byte: int) -> bytes:
    return batch[:at] + bytes((byte,)) + batch[at + 1 :]


def resealed(batch: bytes) -> bytes:
    from crc32c import crc32c

    checked = batch[codec.ATTRIBUTES_AT :]
    return batch[: codec.CRC_AT] + crc32c(checked).to_bytes(4, "big") + checked


GOOD = batch_of(b"a", b"b", b"c")
BAD_BATCHES = {
    "a wrong checksum": (damaged(GOOD, len(GOOD) - 2, 0xFF), 2),
    "an old format": (damaged(GOOD, codec.MAGIC_AT, 1), 87),
    "a count that is not so": (resealed(damaged(GOOD, codec.RECORD_COUNT_AT + 3, 2)), 87),
    "an unknown codec": (resealed(damaged(GOOD, codec.ATTRIBUTES_AT + 1, 7)), 76),
    "records that do not inflate": (resealed(damaged(GOOD, codec.ATTRIBUTES_AT + 1, 4)), 2),
    "more than one batch": (GOOD + GOOD, 87),
    "no records": (b"", 87),
    "a control batch": (codec.encode_marker(1, 0, True, 0, 1_000), 87),
    "a time that only the server sets": (resealed(damaged(GOOD, codec.ATTRIBUTES_AT + 1, 8)), 32),
    "a producer id without an epoch": (batch_of(b"x", pid=5), 87),
}


@pytest.mark.parametrize("name", BAD_BATCHES)
def test_bad_batches_are_refused_and_nothing_is_stored(wire: Wire, name: str) -> None:
    topic = fresh("topic")
    wire.create(topic)
    batch, code = BAD_BATCHES[name]
    answer = wire.produce(topic, batch)
    assert answer["error_code"] == code
    assert answer["error_message"]
    assert wire.latest(topic)["offset"] == 0
    assert wire.produce(topic, GOOD)["error_code"] == 0, "the connection goes on"


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_bombs_in_every_codec_are_refused(wire: Wire, number: int) -> None:
    topic = fresh("topic")
    wire.create(topic)
    records = deflate(number, bytes(200 << 20))
    head = bytearray(GOOD[: codec.HEADER_BYTES])
    head[codec.ATTRIBUTES_AT + 1] = number
    head[codec.BATCH_LENGTH_AT : codec.LEADER_EPOCH_AT] = (len(head) - 12 + len(records)).to_bytes(4, "big")
    if len(records) > 3 << 20:
        records = records[: 3 << 20]
        head[codec.BATCH_LENGTH_AT : codec.LEADER_EPOCH_AT] = (len(head) - 12 + len(records)).to_bytes(4, "big")
    answer = wire.produce(topic, resealed(bytes(head) + records))
    assert answer["error_code"] == 2, answer
    assert wire.latest(topic)["offset"] == 0


def test_zstd_needs_the_version_that_knows_it(wire: Wire) -> None:
    topic = fresh("topic")
    wire.create(topic)
    records = deflate(4, GOOD[codec.HEADER_BYTES :])
    head = bytearray(GOOD[: codec.HEADER_BYTES])
    head[codec.ATTRIBUTES_AT + 1] = 4
    head[codec.BATCH_LENGTH_AT : codec.LEADER_EPOCH_AT] = (len(head) - 12 + len(records)).to_bytes(4, "big")
    batch = resealed(bytes(head) + records)
    assert wire.produce(topic, batch, version=6)["error_code"] == 76
    assert wire.produce(topic, batch, version=7)["error_code"] == 0


def test_a_batch_above_the_topics_bound_is_10_and_unknown_acks_are_21(wire: Wire) -> None:
    topic = fresh("topic")
    wire.create(topic, max_message_bytes="100")
    assert wire.produce(topic, batch_of(bytes(200)))["error_code"] == 10
    assert wire.produce(topic, batch_of(b"x"), acks=2)["error_code"] == 21
    assert wire.produce(topic, batch_of(b"x"), acks=1)["error_code"] == 0


def test_log_append_time_rewrites_the_time_and_the_checksum_and_nothing_else(wire: Wire) -> None:
    topic = fresh("topic")
    wire.create(topic, message_timestamp_type="LogAppendTime")
    sent = batch_of(b"a", b"b", time_ms=5)
    wire.produce(topic, sent)
    stored = bytes(wire.fetch(topic)["records"])
    assert codec.check_crc(stored)
    assert {time for _, time, *_ in codec.decode(stored)} != {5}
    assert codec.read_header(stored).attributes == codec.TIMESTAMP_LOG_APPEND
    assert stored[codec.PRODUCER_ID_AT :] == sent[codec.PRODUCER_ID_AT :]


def test_stored_bytes_are_those_that_were_sent(wire: Wire) -> None:
    topic = fresh("topic")
    wire.create(topic)
    sent = [batch_of(b"%d" % number, pid=77, epoch=0, sequence=number) for number in range(3)]
    for batch in sent:
        wire.produce(topic, batch)
    stored = bytes(wire.fetch(topic)["records"])
    assert stored[codec.MAGIC_AT : len(sent[0])] == sent[0][codec.MAGIC_AT :]
    assert len(stored) == sum(map(len, sent))


# --- names ---------------------------------------------------------------------------------------------------------


def test_17_a_name_that_kafka_cannot_spell_and_36_one_that_is_taken(wire: Wire) -> None:
    topic = fresh("topic")
    wire.create(topic)

    def create(name: str) -> int:
        row = {"name": name, "num_partitions": 1, "replication_factor": 1}
        return int(wire.ask("CreateTopics", 5, {"topics": [row], "timeout_ms": 1})["topics"][0]["error_code"])

    assert create(topic) == 36
    assert create("with/slash") == create("") == create("x" * 250) == create("..") == 17
    metadata = wire.ask("Metadata", 9, {"topics": [{"name": "with/slash"}], "allow_auto_topic_creation": True})
    assert metadata["topics"][0]["error_code"] == 17
