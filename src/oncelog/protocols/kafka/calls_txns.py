"""The transaction coordinator's calls. Every rule is in `core.txn`; here are codes, versions and who may ask."""

from typing import Any, Final

from oncelog.core.command import AddToTxn, EndTxn, InitProducer, TxnCursors
from oncelog.core.outcome import OffsetsCommitted, Outcome, Refusal, TopicMissing, TxnDone
from oncelog.protocols.kafka.broker import Broker
from oncelog.protocols.kafka.calls_offsets import by_topic, cursor_name, moves_of
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.gather import Gather
from oncelog.protocols.kafka.refusal_map import offset_code, txn_code
from oncelog.protocols.kafka.replaced import Role
from oncelog.protocols.kafka.session import Call

INIT_KNOWS_FENCED_FROM: Final = 4
KNOWS_FENCED_FROM: Final = 2
BATCHED_FROM: Final = 4
"""AddPartitionsToTxn of several transactions, as brokers send it."""


def _refused(broker: Broker, txn_id: str) -> Code | None:
    """Why this transactional id has no coordinator here."""
    if not broker.settings.transactions:
        return Code.COORDINATOR_NOT_AVAILABLE
    if not txn_id:
        return Code.INVALID_REQUEST
    return None if broker.may_use(txn_id) else Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def init_producer_id(broker: Broker, call: Call) -> None:
    """A producer id: fresh for everyone who names no transactional id, else with its next epoch."""
    message = call.request()
    txn_id = message["transactional_id"]
    code = None if txn_id is None else _refused(broker, txn_id)
    if code is not None:
        call.answer({"error_code": code, "producer_id": -1, "producer_epoch": -1})
        return
    command = InitProducer(
        txn_id or "",
        message["transaction_timeout_ms"] if txn_id else None,
        message["producer_id"],
        message["producer_epoch"],
        broker.settings.reject_timeout,
        broker.settings.timeouts,
    )
    row: dict[str, Any] = {"error_code": Code.NONE}

    def told(outcome: Outcome) -> None:
        if isinstance(outcome, TxnDone):
            row["producer_id"], row["producer_epoch"] = outcome.producer_id, outcome.epoch
        else:
            assert isinstance(outcome, Refusal)
            row["error_code"] = txn_code(outcome, knows_fenced=call.version >= INIT_KNOWS_FENCED_FROM)
            row["producer_epoch"] = -1

    gather = Gather(broker.log, call)
    gather.submit(command, told)
    gather.finish(lambda: row)


# --- adding ----------------------------------------------------------------------------------------------------


def add_partitions_to_txn(broker: Broker, call: Call) -> None:
    """Partitions of one transaction, or of several from version 4 on. All partitions of one, or none."""
    message = call.request()
    gather = Gather(broker.log, call)
    if call.version >= BATCHED_FROM:
        rows = [
            {
                "transactional_id": each["transactional_id"],
                "topic_results": _add(
                    broker,
                    call,
                    gather,
                    (each["transactional_id"], each["producer_id"], each["producer_epoch"]),
                    each["topics"],
                    verify_only=each["verify_only"],
                ),
            }
            for each in message["transactions"]
        ]
        gather.finish(lambda: {"error_code": Code.NONE, "results_by_transaction": rows})
        return
    identity = (
        message["v3_and_below_transactional_id"],
        message["v3_and_below_producer_id"],
        message["v3_and_below_producer_epoch"],
    )
    if not broker.connections.may_act(call.session, identity[0], identity[2], Role.COORDINATOR):
        return
    results = _add(broker, call, gather, identity, message["v3_and_below_topics"], verify_only=False)
    gather.finish(lambda: {"results_by_topic_v3_and_below": results})


def _add(
    broker: Broker,
    call: Call,
    gather: Gather,
    identity: tuple[str, int, int],
    topics: list[dict[str, Any]],
    *,
    verify_only: bool,
) -> list[dict[str, Any]]:
    """Ask for one transaction; the rows get their codes when it is answered."""
    txn_id, producer_id, epoch = identity
    results = [
        {
            "name": topic["name"],
            "results_by_partition": [
                {"partition_index": partition, "partition_error_code": Code.NONE} for partition in topic["partitions"]
            ],
        }
        for topic in topics
    ]
    rows = {(topic["name"], row["partition_index"]): row for topic in results for row in topic["results_by_partition"]}

    def told(outcome: Outcome) -> None:
        if isinstance(outcome, TopicMissing):
            missing = {(outcome.topic, outcome.partition), *(outcome.also or ())}
            for name, row in rows.items():
                code = Code.UNKNOWN_TOPIC_OR_PARTITION if name in missing else Code.OPERATION_NOT_ATTEMPTED
                row["partition_error_code"] = code
        elif isinstance(outcome, Refusal):
            set_all(txn_code(outcome, knows_fenced=call.version >= KNOWS_FENCED_FROM))

    def set_all(code: Code) -> None:
        for row in rows.values():
            row["partition_error_code"] = code

    code = _refused(broker, txn_id)
    if code is not None:
        set_all(code)
    else:
        command = AddToTxn(
            txn_id,
            producer_id,
            epoch,
            list(rows),
            verify_only=verify_only,
            streams_max=broker.settings.txn_partitions_max,
        )
        gather.submit(command, told)
    return results


def add_offsets_to_txn(broker: Broker, call: Call) -> None:
    """The group whose offsets the transaction will commit."""
    message = call.request()
    txn_id, producer_id, epoch = message["transactional_id"], message["producer_id"], message["producer_epoch"]
    command = AddToTxn(txn_id, producer_id, epoch, [], [cursor_name(message["group_id"])])
    _coordinate(broker, call, txn_id, epoch, command, None if message["group_id"] else Code.INVALID_GROUP_ID)


def end_txn(broker: Broker, call: Call) -> None:
    """Commit or abort. The answer means that every partition shows it."""
    message = call.request()
    txn_id, producer_id, epoch = message["transactional_id"], message["producer_id"], message["producer_epoch"]
    _coordinate(broker, call, txn_id, epoch, EndTxn(txn_id, producer_id, epoch, message["committed"]), None)


def _coordinate(
    broker: Broker, call: Call, txn_id: str, epoch: int, command: AddToTxn | EndTxn, wrong: Code | None
) -> None:
    code = _refused(broker, txn_id) or wrong
    if code is not None:
        call.answer({"error_code": code})
        return
    if not broker.connections.may_act(call.session, txn_id, epoch, Role.COORDINATOR):
        return
    row: dict[str, Any] = {"error_code": Code.NONE}

    def told(outcome: Outcome) -> None:
        if isinstance(outcome, Refusal):
            row["error_code"] = txn_code(outcome, knows_fenced=call.version >= KNOWS_FENCED_FROM)

    gather = Gather(broker.log, call)
    gather.submit(command, told)
    gather.finish(lambda: row)


# --- offsets ---------------------------------------------------------------------------------------------------


def txn_offset_commit(broker: Broker, call: Call) -> None:
    """Offsets that become true with the commit. Each is answered alone."""
    message = call.request()
    txn_id, epoch, group_id = message["transactional_id"], message["producer_epoch"], message["group_id"]
    moves, rows = moves_of(group_id, message["topics"])
    code = _refused(broker, txn_id)
    if code is None:
        found = broker.groups.may_commit_in_txn(
            group_id, message["member_id"], message["group_instance_id"], message["generation_id"]
        )
        code = None if found is Code.NONE else found
    gather = Gather(broker.log, call)
    if code is not None:
        for row in rows:
            row["error_code"] = code
    elif not broker.connections.may_act(call.session, txn_id, epoch, Role.OFFSETS):
        return
    else:
        command = TxnCursors(txn_id, message["producer_id"], epoch, cursor_name(group_id), moves)
        gather.submit(command, lambda outcome: _take_answers(rows, outcome))
    gather.finish(lambda: {"topics": by_topic(rows)})


def _take_answers(rows: list[dict[str, Any]], outcome: Outcome) -> None:
    if isinstance(outcome, OffsetsCommitted):
        for row, refusal in zip(rows, outcome.answers, strict=True):
            row["error_code"] = Code.NONE if refusal is None else offset_code(refusal)
    else:
        assert isinstance(outcome, Refusal)
        # Clients of every version take 47 for fenced on this call.
        code = txn_code(outcome, knows_fenced=False)
        for row in rows:
            row["error_code"] = code
