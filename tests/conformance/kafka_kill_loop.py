"""Transactional producers and a read-committed consumer of confluent-kafka, while the server is killed again and again.

python -m tests.conformance.kafka_kill_loop --rounds 100

Each transaction writes its number to two partitions and commits, as the offset of a group, how far its producer has
come; one in five is aborted with other values. The server dies by kill -9 after each round, producers are thrown away
without a word now and then. At the end every partition holds every number once, in its order; nothing aborted was ever
read; no transaction is open, and the stable offset is at the tail.
"""

import argparse
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.conformance.kafka_wire import Wire

TOPIC = "kill"
PRODUCERS = 3
PATIENCE_S = 30.0
CLIENT: dict[str, str | int | float | bool] = {
    "log_level": 0,
    "reconnect.backoff.max.ms": 300,
    "metadata.recovery.strategy": "none",
}
"""The last one: see docs/protocols/kafka.md, known faults of clients."""


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


class Failed(Exception):
    """The server broke a promise."""


class Server:
    """`oncelog serve` on one port, killed and started again."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._directory = directory
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        settings = ["--set", "storage.segment_bytes=1048576", "--set", "transactions.check_interval_ms=500"]
        command = ["serve", "--data", str(self._directory), "--any-port", "--kafka", self.address, *settings]
        run = [sys.executable, "-c", "from oncelog.cli.main import main; main()", *command]
        self._process = subprocess.Popen(run, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("ready"):
            raise Failed(f"the server does not start: {line!r}")

    def kill(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise Failed(f"the server ended by itself with code {self._process.returncode}")
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Writer(threading.Thread):
    """One transactional id."""

    def __init__(self, number: int, address: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._id = f"writer-{number}"
        self._address = address
        self._stop_event = stop
        self._chance = random.Random(number)
        self.done = 0
        self.lives = 0
        self.aborted = 0
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stop_event.is_set():
                self._live()
        except BaseException as error:
            self.failed = error
            raise

    def _live(self) -> None:
        self.lives += 1
        settings = CLIENT | {"bootstrap.servers": self._address}
        producer = Producer(settings | {"transactional.id": self._id, "transaction.timeout.ms": 10_000, "linger.ms": 1})
        progress = Consumer(settings | {"group.id": self._id})
        place = TopicPartition(TOPIC, 0)
        try:
            self._insist(lambda: producer.init_transactions(PATIENCE_S))
            self.done = max(0, self._insist(lambda: progress.committed([place], PATIENCE_S))[0].offset)
            while not self._stop_event.is_set():
                self._transaction(producer, progress)
                if self._chance.random() < 0.02:
                    return  # thrown away without a word
        except KafkaException:
            return  # fatal, or to be aborted: the next life asks how far this one came
        finally:
            producer.purge()
            progress.close()

    def _transaction(self, producer: Any, progress: Any) -> None:
        aborts = self._chance.random() < 0.2
        word = "aborted" if aborts else "done"
        self._insist(producer.begin_transaction)
        for partition in (0, 1):
            producer.produce(TOPIC, f"{self._id} {word} {self.done}", partition=partition)
        if aborts:
            self._insist(lambda: producer.flush(PATIENCE_S))
            self._insist(lambda: producer.abort_transaction(PATIENCE_S))
            self.aborted += 1
            return
        offset = TopicPartition(TOPIC, 0, self.done + 1)
        group = progress.consumer_group_metadata()
        self._insist(lambda: producer.send_offsets_to_transaction([offset], group, PATIENCE_S))
        self._insist(lambda: producer.commit_transaction(PATIENCE_S))
        self.done += 1

    def _insist(self, call: Any) -> Any:
        deadline = time.monotonic() + 2 * PATIENCE_S
        while True:
            try:
                return call()
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise


class Seen(threading.Thread):
    """A read-committed consumer that reads all the time."""

    def __init__(self, address: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._stop_event = stop
        self._consumer = Consumer(
            CLIENT
            | {
                "bootstrap.servers": address,
                "group.id": "seen",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in (0, 1)])
        self.records: dict[int, list[tuple[int, str]]] = defaultdict(list)

    def run(self) -> None:
        while not self._stop_event.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                value = (message.value() or b"").decode()
                self.records[message.partition() or 0].append((message.offset() or 0, value))

    def count(self) -> int:
        return sum(map(len, self.records.values()))


def expected_by_writer(records: list[tuple[int, str]]) -> dict[str, list[int]]:
    """Numbers by writer, in the order of the offsets. Raises Failed for anything that may not be seen."""
    last = -1
    found: dict[str, list[int]] = defaultdict(list)
    for offset, value in records:
        if offset <= last:
            raise Failed(f"offset {offset} after {last}")
        last = offset
        writer, word, number = value.split()
        if word != "done":
            raise Failed(f"an aborted record was read: {value!r} at {offset}")
        found[writer].append(int(number))
    return found


def check(writers: list[Writer], seen: Seen) -> None:
    """Everything once, in its order, and whole in both partitions."""
    for partition in (0, 1):
        found = expected_by_writer(seen.records[partition])
        for number, writer in enumerate(writers):
            numbers = found[f"writer-{number}"]
            if numbers != list(range(writer.done)):
                raise Failed(f"partition {partition}, writer-{number}: {len(numbers)} of {writer.done}: {numbers[-5:]}")


def nothing_hangs(address: str) -> None:
    """Every transaction has ended, and the stable offset is at the tail."""
    with Wire(address) as wire:
        listed = wire.ask("ListTransactions", 0, {"state_filters": ["Ongoing"]})["transaction_states"]
        if listed:
            raise Failed(f"open transactions: {listed}")
        if wire.latest(TOPIC)["offset"] != wire.latest(TOPIC, committed=False)["offset"]:
            raise Failed("the stable offset is behind the tail")


def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder) / "data")
        server.start()
        admin = AdminClient(CLIENT | {"bootstrap.servers": server.address})
        admin.create_topics([NewTopic(TOPIC, 2, 1)])[TOPIC].result(PATIENCE_S)
        stop, stop_reading = threading.Event(), threading.Event()
        writers = [Writer(number, server.address, stop) for number in range(PRODUCERS)]
        seen = Seen(server.address, stop_reading)
        for thread in (*writers, seen):
            thread.start()
        chance = random.Random(rounds)
        began = time.monotonic()
        for number in range(rounds):
            _pause(chance.uniform(0.2, 1.2))
            before = sum(writer.done for writer in writers)
            server.kill()
            _pause(chance.uniform(0.0, 0.2))
            server.start()
            if number % 10 == 9:
                print(f"{number + 1} kills, {before} commits, {seen.count()} records read", flush=True)
        stop.set()
        for writer in writers:
            writer.join(4 * PATIENCE_S)
            if writer.is_alive() or writer.failed is not None:
                raise Failed(f"a writer hangs or failed: {writer.failed!r}")
        finish(server.address, writers, seen, stop_reading)
        aborted, lives = sum(writer.aborted for writer in writers), sum(writer.lives for writer in writers)
        done = sum(writer.done for writer in writers)
        print(
            f"{rounds} kills in {time.monotonic() - began:.0f} s: {done} transactions committed, {aborted} aborted, "
            f"{lives} lives of {PRODUCERS} producers, {seen.count()} records read: "
            "nothing lost, doubled, torn or aborted"
        )
        server.kill()


def finish(address: str, writers: list[Writer], seen: Seen, stop_reading: threading.Event) -> None:
    """Ask each producer's progress once more, since its last commit may have taken effect unheard; then compare."""
    for number, writer in enumerate(writers):
        settings = CLIENT | {"bootstrap.servers": address}
        producer = Producer(settings | {"transactional.id": f"writer-{number}"})
        producer.init_transactions(PATIENCE_S)  # aborts what the last life has left open
        progress = Consumer(settings | {"group.id": f"writer-{number}"})
        writer.done = max(0, progress.committed([TopicPartition(TOPIC, 0)], PATIENCE_S)[0].offset)
        progress.close()
    nothing_hangs(address)
    wanted = 2 * sum(writer.done for writer in writers)
    deadline = time.monotonic() + PATIENCE_S
    while seen.count() < wanted and time.monotonic() < deadline:
        _pause(0.1)
    stop_reading.set()
    seen.join(PATIENCE_S)
    check(writers, seen)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=100)
    main(parser.parse_args().rounds)
