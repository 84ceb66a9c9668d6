"""What went wrong in Kafka and its kin, one test per row of the table in docs/protocols/kafka.md."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncelog.core.txn import TxnTimeouts
from oncelog.engine.engine import Settings
from oncelog.limits import MIB
from tests.conformance.kafka_wire import Closed, Wire, batch_of, produce_message, values_of
from tests.conformance.kafka_work import fresh
from tests.servers.process import Process, process
from tests.servers.running import Running, running

QUICK = Settings(8 * MIB, 1 * MIB, TxnTimeouts(check_interval_ms=50, min_timeout_ms=100))


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running(engine=QUICK) as server:
        yield server


@pytest.fixture
def wire(server: Running) -> Iterator[Wire]:
    with Wire(str(server.addresses["kafka"])) as client:
        yield client


def another(server: Running) -> Wire:
    return Wire(str(server.addresses["kafka"]))


def opened(wire: Wire, topic: str, txn_id: str, **more: int) -> tuple[int, int]:
    """A transaction of one partition is open; its producer id and epoch."""
    found = wire.init(txn_id, **more)
    pid, epoch = found["producer_id"], found["producer_epoch"]
    assert wire.add(txn_id, pid, epoch, [(topic, 0)]) == [0]
    return pid, epoch


def write(wire: Wire, topic: str, txn_id: str, pid: int, epoch: int, sequence: int, value: bytes = b"x") -> int:
    batch = batch_of(value, pid=pid, epoch=epoch, sequence=sequence, transactional=True)
    return int(wire.produce(topic, batch, txn_id=txn_id)["error_code"])


def test_kafka_5494_five_in_flight_sent_again_get_their_own_offsets(wire: Wire) -> None:
    topic = fresh("topic")
    wire.create(topic)
    pid = wire.init(None)["producer_id"]
    batches = [batch_of(b"%d" % n, b"%d'" % n, pid=pid, epoch=0, sequence=2 * n) for n in range(5)]
    for again in range(3):
        order = batches if again == 0 else list(reversed(batches))
        sent = [(wire.send("Produce", 9, produce_message(topic, batch)), batch) for batch in order]
        for correlation, batch in sent:
            answered, message = wire.receive()
            row = message["responses"][0]["partition_responses"][0]
            assert answered == correlation
            assert (row["error_code"], row["base_offset"]) == (0, 2 * batches.index(batch))
    assert wire.latest(topic)["offset"] == 10


def test_kafka_6119_a_timeout_fences_the_producer(wire: Wire) -> None:
    topic, txn_id = fresh("topic"), fresh("txn")
    wire.create(topic)
    pid, epoch = opened(wire, topic, txn_id, transaction_timeout_ms=100)
    assert write(wire, topic, txn_id, pid, epoch, 0) == 0
    assert wire.latest(topic)["offset"] == 0
    until_stable(wire, topic, 2)
    assert write(wire, topic, txn_id, pid, epoch, 1) == 47
    assert wire.add(txn_id, pid, epoch, [(topic, 0)]) == [90]


def until_stable(wire: Wire, topic: str, offset: int) -> None:
    """Until the server has ended a transaction by itself."""
    for _ in range(300):
        if wire.latest(topic)["offset"] >= offset:
            return
        wire.fetch(topic, wire.latest(topic)["offset"], wait_ms=100)
    raise AssertionError("the stable offset does not move")


def test_kafka_9777_the_next_transaction_begins_at_once_after_the_end_of_the_last(wire: Wire) -> None:
    topic, txn_id = fresh("topic"), fresh("txn")
    wire.create(topic)
    pid, epoch = opened(wire, topic, txn_id)
    place = [{"name": topic, "partitions": [0]}]
    holder = {"producer_id": pid, "producer_epoch": epoch}
    add = {
        f"v3_and_below_{name}": value
        for name, value in ({"transactional_id": txn_id, "topics": place} | holder).items()
    }
    for number in range(50):
        # All three without waiting: none of them may be told that another one is still at work.
        batch = batch_of(b"x", pid=pid, epoch=epoch, sequence=number, transactional=True)
        wire.send("Produce", 9, produce_message(topic, batch, txn_id=txn_id))
        wire.send("EndTxn", 3, {"transactional_id": txn_id, "committed": True} | holder)
        wire.send("AddPartitionsToTxn", 3, add)
        produced = wire.receive()[1]["responses"][0]["partition_responses"][0]
        ended = wire.receive()[1]
        added = wire.receive()[1]["results_by_topic_v3_and_below"][0]["results_by_partition"][0]
        assert (produced["error_code"], ended["error_code"], added["partition_error_code"]) == (0, 0, 0)
    assert wire.end(txn_id, pid, epoch, True) == 0
    assert wire.latest(topic)["offset"] == 100


def test_kafka_12671_a_late_write_after_the_abort_opens_nothing(wire: Wire) -> None:
    topic, txn_id = fresh("topic"), fresh("txn")
    wire.create(topic)
    pid, epoch = opened(wire, topic, txn_id)
    assert write(wire, topic, txn_id, pid, epoch, 0) == 0
    assert wire.end(txn_id, pid, epoch, False) == 0
    assert write(wire, topic, txn_id, pid, epoch, 1) == 48
    assert wire.latest(topic)["offset"] == wire.latest(topic, committed=False)["offset"] == 2


def test_jepsen_2024_a_delayed_end_on_a_replaced_connection_ends_nothing(server: Running) -> None:
    """KAFKA-17754: version 1 cannot tell a delayed EndTxn from one of the next transaction."""
    topic, txn_id = fresh("topic"), fresh("txn")
    with another(server) as old, another(server) as new:
        old.create(topic)
        pid, epoch = opened(old, topic, txn_id)
        assert write(old, topic, txn_id, pid, epoch, 0, b"first") == 0
        # The client gave the old connection up, with an EndTxn on its way, and sent it again on a new one.
        assert new.end(txn_id, pid, epoch, True) == 0
        assert new.add(txn_id, pid, epoch, [(topic, 0)]) == [0]
        assert write(new, topic, txn_id, pid, epoch, 1, b"second") == 0
        with pytest.raises((Closed, OSError)):
            old.end(txn_id, pid, epoch, True)
        assert values_of(new.fetch(topic)["records"]) == [b"first"], "the second transaction is still open"
        assert new.end(txn_id, pid, epoch, False) == 0
        assert write(new, topic, txn_id, pid, epoch, 2) == 48


def test_jepsen_2024_a_write_on_a_replaced_connection_is_not_carried_out(server: Running) -> None:
    topic, txn_id = fresh("topic"), fresh("txn")
    with another(server) as old, another(server) as new:
        old.create(topic)
        pid, epoch = opened(old, topic, txn_id)
        assert write(old, topic, txn_id, pid, epoch, 0) == 0
        assert write(new, topic, txn_id, pid, epoch, 1) == 0
        with pytest.raises((Closed, OSError)):
            write(old, topic, txn_id, pid, epoch, 2)
        assert new.latest(topic, committed=False)["offset"] == 2


def test_kafka_17507_offsets_and_records_become_visible_together(wire: Wire) -> None:
    topic, txn_id, group = fresh("topic"), fresh("txn"), fresh("group")
    wire.create(topic)
    pid, epoch = opened(wire, topic, txn_id)
    holder = {"transactional_id": txn_id, "producer_id": pid, "producer_epoch": epoch, "group_id": group}
    row = {"partition_index": 0, "committed_offset": 7, "committed_metadata": None}
    assert wire.ask("AddOffsetsToTxn", 3, holder)["error_code"] == 0
    wire.ask("TxnOffsetCommit", 3, holder | {"topics": [{"name": topic, "partitions": [row]}]})
    write(wire, topic, txn_id, pid, epoch, 0)
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}], "require_stable": True}
    # The end and both questions leave in one go: whoever asks after the end sees both.
    wire.send("EndTxn", 3, {key: holder[key] for key in holder if key != "group_id"} | {"committed": True})
    wire.send("OffsetFetch", 7, asked)
    assert wire.receive()[1]["error_code"] == 0
    assert wire.receive()[1]["topics"][0]["partitions"][0]["committed_offset"] == 7
    assert wire.latest(topic)["offset"] == 2


def test_kafka_18660_the_last_epoch_goes_on_with_a_fresh_producer_id(wire: Wire) -> None:
    txn_id = fresh("txn")
    first = wire.init(txn_id)
    message = {"transactional_id": txn_id, "transaction_timeout_ms": 60_000}
    for _ in range(32_764 // 4):  # pipelined; a connection may have so many requests unanswered
        for _ in range(4):
            wire.send("InitProducerId", 4, message)
        for _ in range(4):
            found = wire.receive()[1]
    seen = [(found["producer_id"], found["producer_epoch"])]
    assert seen == [(first["producer_id"], 32_764)]
    for _ in range(4):
        found = wire.init(txn_id)
        assert found["error_code"] == 0
        seen.append((found["producer_id"], found["producer_epoch"]))
    pid, fresh_pid = first["producer_id"], seen[-1][0]
    assert fresh_pid != pid
    assert seen[1:] == [(pid, 32_765), (pid, 32_766), (fresh_pid, 0), (fresh_pid, 1)]
    topic = fresh("topic")
    wire.create(topic)
    assert wire.add(txn_id, pid, 32_766, [(topic, 0)]) == [49]
    assert wire.add(txn_id, fresh_pid, 1, [(topic, 0)]) == [0]
    assert wire.end(txn_id, fresh_pid, 1, True) == 0


def test_kafka_20785_a_commit_after_the_servers_own_abort_is_fenced(wire: Wire) -> None:
    topic, txn_id = fresh("topic"), fresh("txn")
    wire.create(topic)
    pid, epoch = opened(wire, topic, txn_id, transaction_timeout_ms=100)
    write(wire, topic, txn_id, pid, epoch, 0)
    until_stable(wire, topic, 2)
    assert wire.end(txn_id, pid, epoch, True) == 90


def test_bufstream_a_retry_never_answers_offset_zero_for_another_place(wire: Wire) -> None:
    topic = fresh("topic")
    wire.create(topic)
    pid = wire.init(None)["producer_id"]
    for number in range(20):
        wire.produce(topic, batch_of(b"x", pid=pid, epoch=0, sequence=number))
    for number in range(20):
        row = wire.produce(topic, batch_of(b"x", pid=pid, epoch=0, sequence=number))
        remembered = number >= 15
        assert (row["error_code"], row["base_offset"]) == ((0, number) if remembered else (45, -1))


STATES = ("Empty", "Ongoing", "CompleteCommit", "CompleteAbort")


@pytest.mark.parametrize("state", STATES)
def test_kafka_19999_a_restart_in_every_stored_state(tmp_path: Path, state: str) -> None:
    """Prepare* is never stored: ending is one entry. After kill -9 each state is what it was, and the id goes on."""
    with process(data=str(tmp_path)) as first:
        with Wire(address(first)) as wire:
            wire.create("t")
            found = wire.init("txn")
            pid = found["producer_id"]
            if state != "Empty":
                wire.add("txn", pid, 0, [("t", 0)])
                write(wire, "t", "txn", pid, 0, 0)
            if state.startswith("Complete"):
                wire.end("txn", pid, 0, state == "CompleteCommit")
        first.popen.kill()
        first.popen.wait()
    with process(data=str(tmp_path)) as second, Wire(address(second)) as wire:
        described = wire.ask("DescribeTransactions", 0, {"transactional_ids": ["txn"]})["transaction_states"][0]
        assert (described["transaction_state"], described["producer_id"]) == (state, pid)
        if state == "Ongoing":
            assert wire.latest("t")["offset"] == 0
            assert write(wire, "t", "txn", pid, 0, 0) == 0, "a duplicate"
            assert wire.end("txn", pid, 0, True) == 0
            assert values_of(wire.fetch("t")["records"]) == [b"x"]
        elif state.startswith("Complete"):
            assert wire.end("txn", pid, 0, state == "CompleteCommit") == 0, "the retry of the end"
        assert wire.add("txn", pid, 0, [("t", 0)]) == [0]
        assert wire.end("txn", pid, 0, False) == 0
        other = wire.init(None)["producer_id"]
        assert other > pid, "producer ids are never handed out twice"


def address(server: Process) -> str:
    return server.addresses["kafka"]


def test_a_transaction_that_was_open_in_a_crash_times_out_after_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"data": str(tmp_path), "transactions__check_interval_ms": 100}
    with process(**settings) as first:
        with Wire(address(first)) as wire:
            wire.create("t")
            pid, epoch = opened(wire, "t", "txn", transaction_timeout_ms=1_000)
            assert write(wire, "t", "txn", pid, epoch, 0) == 0
        first.popen.kill()
        first.popen.wait()
    with process(**settings) as second, Wire(address(second)) as wire:
        until_stable(wire, "t", 2)
        assert write(wire, "t", "txn", pid, epoch, 1) == 47
