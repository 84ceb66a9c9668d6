"""The tools of KIP-664: who writes, which transactions there are, and an administrator's abort."""

from collections.abc import Callable
from typing import Any, Final

from oncelog.core.append import kafka_name
from oncelog.core.command import GetTxn, WriteMarker
from oncelog.core.flat import Producer, Stream
from oncelog.core.outcome import Outcome, Refusal, TxnFound
from oncelog.core.txn import Txn, TxnState
from oncelog.core.txn_commands import COORDINATOR_EPOCH
from oncelog.protocols.kafka.broker import Broker
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.gather import Gather
from oncelog.protocols.kafka.refusal_map import txn_code
from oncelog.protocols.kafka.session import Call
from oncelog.protocols.kafka.topic_settings import can_spell

STATE_NAMES: Final = {
    TxnState.EMPTY: "Empty",
    TxnState.ONGOING: "Ongoing",
    TxnState.PREPARE_COMMIT: "PrepareCommit",
    TxnState.PREPARE_ABORT: "PrepareAbort",
    TxnState.COMPLETE_COMMIT: "CompleteCommit",
    TxnState.COMPLETE_ABORT: "CompleteAbort",
    TxnState.DEAD: "Dead",
}

_KAFKA: Final = "kafka:"
_NS_PER_MS: Final = 1_000_000


def write_txn_markers(broker: Broker, call: Call) -> None:
    """An administrator aborts a transaction, named by its producer id and a partition of it."""
    message = call.request()
    gather = Gather(broker.log, call)
    answers = []
    for marker in message["markers"]:
        topics = [
            {
                "name": topic["name"],
                "partitions": [
                    {"partition_index": partition, "error_code": Code.NONE} for partition in topic["partition_indexes"]
                ],
            }
            for topic in marker["topics"]
        ]
        answers.append({"producer_id": marker["producer_id"], "topics": topics})
        rows = [row for topic in topics for row in topic["partitions"]]
        streams = [(topic["name"], partition) for topic in marker["topics"] for partition in topic["partition_indexes"]]
        if not broker.settings.transactions:
            _set_all(rows, Code.COORDINATOR_NOT_AVAILABLE)
            continue
        command = WriteMarker(
            marker["producer_id"],
            marker["producer_epoch"],
            marker["transaction_result"],
            streams,
            marker["coordinator_epoch"],
        )
        gather.submit(command, _marked(rows))
    gather.finish(lambda: {"markers": answers})


def _marked(rows: list[dict[str, Any]]) -> Callable[[Outcome], None]:
    def told(outcome: Outcome) -> None:
        if isinstance(outcome, Refusal):
            _set_all(rows, txn_code(outcome, knows_fenced=False))

    return told


def _set_all(rows: list[dict[str, Any]], code: Code) -> None:
    for row in rows:
        row["error_code"] = code


def describe_producers(broker: Broker, call: Call) -> None:
    """Who writes to a partition, and where its open transaction begins."""
    message = call.request()
    gather = Gather(broker.log, call)
    topics = []
    for asked in message["topics"]:
        topic = broker.log.topic(asked["name"]) if can_spell(asked["name"]) else None
        rows: list[dict[str, Any]] = []
        for partition in asked["partition_indexes"]:
            row = {"partition_index": partition, "error_code": Code.NONE, "active_producers": []}
            rows.append(row)
            if topic is None or not 0 <= partition < len(topic.stream_ids):
                row["error_code"] = Code.UNKNOWN_TOPIC_OR_PARTITION
                continue
            stream_id = topic.stream_ids[partition]
            done = gather.expect()
            broker.log.producers(
                stream_id,
                lambda producers, row=row, id_=stream_id, done=done: done(  # type: ignore[misc]
                    lambda: row.update(active_producers=_active(broker.log.stream_row(id_), producers))
                ),
            )
        topics.append({"name": asked["name"], "partitions": rows})
    gather.finish(lambda: {"topics": topics})


def _active(stream: Stream | None, producers: list[tuple[str, Producer]]) -> list[dict[str, Any]]:
    open_txns = {} if stream is None else {kafka_name(id_): first for id_, first in (stream.open_txns or {}).items()}
    return [
        {
            "producer_id": int(name.removeprefix(_KAFKA)),
            "producer_epoch": row.epoch,
            "last_sequence": row.last,
            "last_timestamp": row.used_ns // _NS_PER_MS,
            "coordinator_epoch": COORDINATOR_EPOCH,
            "current_txn_start_offset": open_txns.get(name, -1),
        }
        for name, row in producers
    ]


def describe_transactions(broker: Broker, call: Call) -> None:
    """Transactions by id."""
    message = call.request()
    gather = Gather(broker.log, call)
    rows: list[dict[str, Any]] = []
    for txn_id in message["transactional_ids"]:
        row: dict[str, Any] = {"transactional_id": txn_id, "error_code": Code.NONE, "transaction_state": ""}
        row |= {"transaction_start_time_ms": -1, "topics": [], "producer_id": -1, "producer_epoch": -1}
        rows.append(row)
        if not broker.settings.transactions:
            row["error_code"] = Code.COORDINATOR_NOT_AVAILABLE
        elif not broker.may_use(txn_id):
            row["error_code"] = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        else:
            gather.submit(GetTxn(txn_id), _described(broker, row))
    gather.finish(lambda: {"transaction_states": rows})


def _described(broker: Broker, row: dict[str, Any]) -> Callable[[Outcome], None]:
    def told(outcome: Outcome) -> None:
        if not isinstance(outcome, TxnFound):
            row["error_code"] = Code.TRANSACTIONAL_ID_NOT_FOUND
            return
        txn = outcome.txn
        is_open = txn.state is TxnState.ONGOING
        row["transaction_state"] = STATE_NAMES[txn.state]
        row["transaction_timeout_ms"] = txn.timeout_ms
        row["transaction_start_time_ms"] = txn.started_ns // _NS_PER_MS if is_open else -1
        row["producer_id"], row["producer_epoch"] = txn.producer_id, txn.epoch
        row["topics"] = _topics_of(broker, txn)

    return told


def _topics_of(broker: Broker, txn: Txn) -> list[dict[str, Any]]:
    topics: dict[str, list[int]] = {}
    for stream_id in txn.streams:
        stream = broker.log.stream_row(stream_id)
        if stream is not None:
            topics.setdefault(stream.topic, []).append(stream.partition)
    return [{"topic": name, "partitions": sorted(partitions)} for name, partitions in sorted(topics.items())]


def list_transactions(broker: Broker, call: Call) -> None:
    """Every transactional id that is known, by state, producer id and how long it has been open."""
    message = call.request()
    if not broker.settings.transactions:
        call.answer({"error_code": Code.COORDINATOR_NOT_AVAILABLE})
        return
    broker.log.txns(lambda txns: _list(broker, call, message, txns))


def _list(broker: Broker, call: Call, message: dict[str, Any], txns: list[Txn]) -> None:
    if call.session.is_over:
        return
    known = {name.lower(): name for name in STATE_NAMES.values()}
    asked = {state.lower() for state in message["state_filters"]}
    ids = set(message["producer_id_filters"])
    now_ns = broker.log.now_ns()
    rows = []
    for txn in txns:
        name = STATE_NAMES[txn.state]
        if (asked and name.lower() not in asked) or (ids and txn.producer_id not in ids):
            continue
        open_ms = (now_ns - txn.started_ns) // _NS_PER_MS if txn.state is TxnState.ONGOING else -1
        if message["duration_filter"] >= 0 and open_ms <= message["duration_filter"]:
            continue
        rows.append({"transactional_id": txn.txn_id, "producer_id": txn.producer_id, "transaction_state": name})
    unknown = [state for state in message["state_filters"] if state.lower() not in known]
    call.answer({"error_code": Code.NONE, "unknown_state_filters": unknown, "transaction_states": rows})
