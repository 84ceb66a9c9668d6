"""The Kafka face beside Apache Kafka: one node, KRaft, the same librdkafka client, alternating rounds.

python -m bench kafka [--rounds 2] [--seconds 4]

Kafka runs twice: with its defaults, which confirm before anything is synced, and with `flush.messages=1`, which syncs
every write as oncelog always does. Four kinds of work: bulk (one producer, batches of 64 KB), small (16 producers, one
record at a time), transactions (16 producers, one record each), and reading what the bulk producer wrote. CPU-seconds
are the server's, all of its processes.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.spark_kafka import BROKER_VERSION, SCALA, Broker, Jar, KafkaMissing, _fetched

RECORD = os.urandom(1024)
SMALL = os.urandom(100)
THREADS = 16
PATIENCE_S = 60.0
CLIENT: dict[str, str | int | float | bool] = {"log_level": 0, "metadata.recovery.strategy": "none"}


class Peer(NamedTuple):
    """A server that is measured."""

    name: str
    address: str
    cpu_s: Callable[[], float]
    config: dict[str, str]
    """Of its topics."""


class Oncelog:
    """`oncelog serve`, always synced."""

    def __init__(self, directory: Path) -> None:
        command = [sys.executable, "-c", "from oncelog.cli.main import main; main()", "serve", "--any-port"]
        self._process = subprocess.Popen([*command, "--data", str(directory)], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        words = dict(word.split("=", 1) for word in self._process.stdout.readline().split()[1:])
        self.address = words["kafka"]
        self._psutil = psutil.Process(self._process.pid)

    def cpu_s(self) -> float:
        processes = [self._psutil, *self._psutil.children(recursive=True)]
        return sum(sum(process.cpu_times()[:2]) for process in processes)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextlib.contextmanager
def peers(folder: Path) -> Iterator[list[Peer]]:
    with contextlib.ExitStack() as stack:
        ours = Oncelog(folder / "oncelog")
        stack.callback(ours.close)
        found = [Peer("oncelog", ours.address, ours.cpu_s, {})]
        try:
            jars = _fetched([Jar("org.apache.kafka", f"kafka_{SCALA}", BROKER_VERSION)], transitive=True)
            java = os.path.realpath("/usr/bin/java").removesuffix("/bin/java")
            os.environ.setdefault("JAVA_HOME", java)
            broker = Broker(jars, folder / "kafka", 1)
            stack.callback(broker.close)
            found.append(Peer("Kafka, not synced", broker.address, broker.cpu_s, {}))
            found.append(Peer("Kafka, flush.messages=1", broker.address, broker.cpu_s, {"flush.messages": "1"}))
        except KafkaMissing as missing:
            print(f"no Apache Kafka beside it: {missing}")
        yield found


def topic_of(peer: Peer, name: str) -> str:
    topic = f"{name}-{time.monotonic_ns()}"
    admin = AdminClient(CLIENT | {"bootstrap.servers": peer.address})
    admin.create_topics([NewTopic(topic, 1, 1, config=peer.config)])[topic].result(PATIENCE_S)
    return topic


def bulk(peer: Peer, seconds: float) -> tuple[float, str]:
    """MB/s, and the topic."""
    topic = topic_of(peer, "bulk")
    producer = Producer(
        CLIENT
        | {
            "bootstrap.servers": peer.address,
            "enable.idempotence": True,
            "batch.size": 65_536,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 65_536,
        }
    )
    began, sent = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        for _ in range(500):
            try:
                producer.produce(topic, RECORD)
                sent += 1
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return sent * len(RECORD) / 1e6 / (time.monotonic() - began), topic


def consume(peer: Peer, topic: str) -> float:
    """MB/s from the first offset to the last."""
    consumer = Consumer(CLIENT | {"bootstrap.servers": peer.address, "group.id": "bench", "check.crcs": True})
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, PATIENCE_S)
    consumer.assign([place])
    began, read = time.monotonic(), 0
    while read < end:
        read += len(consumer.consume(10_000, 1.0))
    took = time.monotonic() - began
    consumer.close()
    return read * len(RECORD) / 1e6 / took


def many(peer: Peer, seconds: float, work: Callable[[Peer, str, int, float], int]) -> float:
    """How often a second, of all threads together."""
    topic, counts = topic_of(peer, "many"), [0] * THREADS
    until = time.monotonic() + seconds

    def run(number: int) -> None:
        counts[number] = work(peer, topic, number, until)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(THREADS)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.monotonic() - began)


def small(peer: Peer, topic: str, _number: int, until: float) -> int:
    producer = Producer(CLIENT | {"bootstrap.servers": peer.address, "enable.idempotence": True, "linger.ms": 0})
    count = 0
    while time.monotonic() < until:
        producer.produce(topic, SMALL)
        producer.flush()
        count += 1
    return count


def transactions(peer: Peer, topic: str, number: int, until: float) -> int:
    settings = {"bootstrap.servers": peer.address, "transactional.id": f"{topic}-{number}", "linger.ms": 0}
    producer = Producer(CLIENT | settings)
    producer.init_transactions(PATIENCE_S)
    count = 0
    while time.monotonic() < until:
        producer.begin_transaction()
        producer.produce(topic, SMALL)
        retried(lambda: producer.commit_transaction(PATIENCE_S))
        count += 1
    return count


def retried(call: Callable[[], Any]) -> None:
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


KINDS = ("bulk MB/s", "consume MB/s", "small records/s", "transactions/s", "CPU s")


def measure(peer: Peer, seconds: float) -> dict[str, float]:
    before = peer.cpu_s()
    written, topic = bulk(peer, seconds)
    return {
        "bulk MB/s": written,
        "consume MB/s": consume(peer, topic),
        "small records/s": many(peer, seconds, small),
        "transactions/s": many(peer, seconds, transactions),
        "CPU s": peer.cpu_s() - before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench kafka")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=4.0)
    chosen = parser.parse_args()
    rows: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    with tempfile.TemporaryDirectory() as folder, peers(Path(folder)) as found:
        for number in range(chosen.rounds):
            for peer in found if number % 2 == 0 else reversed(found):
                for kind, value in measure(peer, chosen.seconds).items():
                    rows[peer.name][kind].append(value)
    print(f"{'median of ' + str(chosen.rounds):26}" + "".join(f"{kind:>18}" for kind in KINDS))
    for name, kinds in rows.items():
        print(f"{name:26}" + "".join(f"{median(kinds[kind]):18,.1f}" for kind in KINDS))


if __name__ == "__main__":
    main()
