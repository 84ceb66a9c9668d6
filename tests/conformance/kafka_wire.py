"""A Kafka client that says exactly what a test wants: one socket, any API and version, raw bytes as well."""

import socket
from struct import Struct
from typing import Any

from oncelog.core import batch as codec
from oncelog.protocols.kafka import offered
from oncelog.protocols.kafka.produce import FLEXIBLE_FROM
from oncelog.protocols.kafka.schema import Api, Message
from oncelog.protocols.kafka.wire import Reader
from tests.protocols.kafka_face.data_tables import FETCH, PRODUCE

_HEAD = Struct(">hhih")
_INT = Struct(">i")
PATIENCE_S = 30.0

assert PRODUCE.flexible_from == FLEXIBLE_FROM

API_OF: dict[str, Api] = {api.name: api for api in (*offered.TABLED.values(), PRODUCE, FETCH)}


class Closed(Exception):
    """The server ended the connection."""


class Wire:
    """One connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        self._correlation = 0
        self._sent: dict[int, tuple[Api, int]] = {}

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, name: str, version: int, message: Message) -> int:
        """One request; its correlation id."""
        api = API_OF[name]
        self._correlation += 1
        head = _HEAD.pack(api.key, version, self._correlation, -1)
        tags = b"\x00" if api.is_flexible(version) else b""
        self.raw(head + tags + api.encode_request(version, message))
        self._sent[self._correlation] = (api, version)
        return self._correlation

    def raw(self, frame: bytes) -> None:
        """A frame of any content."""
        self.socket.sendall(_INT.pack(len(frame)) + frame)

    def frame(self) -> bytes:
        """The next response. Raises Closed."""
        length = _INT.unpack(self._exactly(4))[0]
        return self._exactly(length)

    def receive(self) -> tuple[int, Message]:
        """The next response: correlation id and fields."""
        frame = self.frame()
        correlation = _INT.unpack_from(frame)[0]
        api, version = self._sent.pop(correlation)
        at = 5 if offered.has_flexible_answer(api.key, version) else 4
        reader = Reader(frame, at)
        message = api.decode_response(version, reader)
        assert reader.at == len(frame)
        return correlation, message

    def ask(self, name: str, version: int, message: Message) -> Message:
        """One request and its answer."""
        self.send(name, version, message)
        return self.receive()[1]

    def _exactly(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except ConnectionError:
                raise Closed from None
            if not piece:
                raise Closed
            data += piece
        return data

    # --- what many tests do --------------------------------------------------------------------------------------

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        wanted = [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()]
        row = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "configs": wanted}
        answer = self.ask("CreateTopics", 4, {"topics": [row], "timeout_ms": 1_000})
        assert answer["topics"][0]["error_code"] == 0, answer

    def init(self, txn_id: str | None, version: int = 4, **more: Any) -> Message:
        message = {"transactional_id": txn_id, "transaction_timeout_ms": 60_000} | more
        return self.ask("InitProducerId", version, message)

    def add(self, txn_id: str, pid: int, epoch: int, places: list[tuple[str, int]], version: int = 3) -> list[int]:
        """AddPartitionsToTxn; the codes in the order of the partitions."""
        topics = [{"name": topic, "partitions": [partition]} for topic, partition in places]
        if version >= 4:
            row = {"transactional_id": txn_id, "producer_id": pid, "producer_epoch": epoch, "topics": topics}
            answer = self.ask("AddPartitionsToTxn", version, {"transactions": [row]})
            results = answer["results_by_transaction"][0]["topic_results"]
        else:
            prefix = "v3_and_below_"
            message = {
                f"{prefix}transactional_id": txn_id,
                f"{prefix}producer_id": pid,
                f"{prefix}producer_epoch": epoch,
                f"{prefix}topics": topics,
            }
            results = self.ask("AddPartitionsToTxn", version, message)["results_by_topic_v3_and_below"]
        return [row["results_by_partition"][0]["partition_error_code"] for row in results]

    def end(self, txn_id: str, pid: int, epoch: int, commit: bool, version: int = 3) -> int:
        message = {"transactional_id": txn_id, "producer_id": pid, "producer_epoch": epoch, "committed": commit}
        return int(self.ask("EndTxn", version, message)["error_code"])

    def produce(
        self,
        topic: str,
        records: bytes,
        *,
        txn_id: str | None = None,
        version: int = 9,
        partition: int = 0,
        acks: int = -1,
    ) -> Message:
        """One batch; the answer of its partition."""
        self.send("Produce", version, produce_message(topic, records, txn_id=txn_id, partition=partition, acks=acks))
        row: Message = self.receive()[1]["responses"][0]["partition_responses"][0]
        return row

    def fetch(
        self, topic: str, offset: int = 0, *, committed: bool = True, wait_ms: int = 0, version: int = 12
    ) -> Message:
        """One partition's answer."""
        row: Message = self.ask("Fetch", version, fetch_message(topic, offset, committed=committed, wait_ms=wait_ms))
        found: Message = row["responses"][0]["partitions"][0]
        return found

    def latest(self, topic: str, *, committed: bool = True, time_ms: int = -1, version: int = 7) -> Message:
        row = {"partition_index": 0, "timestamp": time_ms}
        message = {
            "replica_id": -1,
            "isolation_level": int(committed),
            "topics": [{"name": topic, "partitions": [row]}],
        }
        found: Message = self.ask("ListOffsets", version, message)["topics"][0]["partitions"][0]
        return found


def produce_message(
    topic: str, records: bytes, *, txn_id: str | None = None, partition: int = 0, acks: int = -1
) -> Message:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return {"transactional_id": txn_id, "acks": acks, "timeout_ms": 1_000, "topic_data": data}


def fetch_message(
    topic: str, offset: int, *, committed: bool = True, wait_ms: int = 0, bytes_max: int = 1 << 20
) -> Message:
    row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": bytes_max}
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": 1,
        "max_bytes": bytes_max,
        "isolation_level": int(committed),
        "topics": [{"topic": topic, "partitions": [row]}],
    }


def batch_of(
    *values: bytes,
    pid: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    time_ms: int = 1_000,
) -> bytes:
    """A batch as a producer would send it."""
    records: list[codec.Record] = [(number, time_ms, None, value, ()) for number, value in enumerate(values)]
    return codec.encode(
        records, producer_id=pid, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )


def values_of(records: bytes | None) -> list[bytes | None]:
    """Values of all batches in a fetched stretch, control batches left out."""
    found: list[bytes | None] = []
    rest = records or b""
    while rest:
        header = codec.read_header(rest)
        if not header.attributes & codec.CONTROL and header.record_count:
            found += codec.decode_values(rest[: header.batch_bytes])
        rest = rest[header.batch_bytes :]
    return found
