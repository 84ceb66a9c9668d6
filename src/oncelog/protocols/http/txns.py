"""Transactions over HTTP: `/v1/txns/<id>/…`, one to one on the calls of Kafka's coordinator, and the append.

`begin` answers a producer id and an epoch; every other call carries both and is refused with 403 once a newer holder
exists. What is appended is a transactional batch, so a Kafka consumer sees it as that of a Kafka producer.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from oncelog.core import batch as codec
from oncelog.core import command as c
from oncelog.core import outcome as o
from oncelog.core.append import kafka_name
from oncelog.core.flat import ProducerClaim
from oncelog.core.producer import SequenceMode
from oncelog.core.txn import Txn, TxnState, TxnTimeouts
from oncelog.limits import KAFKA_SEQUENCE_MAX
from oncelog.protocols.http import answers
from oncelog.protocols.http.actions import Action, Done, ListTxns, Submit
from oncelog.protocols.http.commit_body import BodyInvalid, RecordBody, parsed, record_of
from oncelog.protocols.http.refusal_map import problem_of
from oncelog.protocols.http.request import Request
from oncelog.protocols.http.target import Query, TargetInvalid, decoded

GROUP_SCOPE: Final = "kafka:"
"""Groups are those of Kafka clients: a consumer of theirs goes on where a transaction has put its group."""

NameOf = Callable[[int], tuple[str, int]]


class _Begin(msgspec.Struct, forbid_unknown_fields=True):
    timeout_ms: int | None = None
    producer_id: int = -1
    epoch: int = -1


class _Place(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    partition: int = 0


class _Holder(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    producer_id: int
    epoch: int


class _Partitions(_Holder, kw_only=True):
    partitions: list[_Place]


class _Groups(_Holder, kw_only=True):
    groups: list[str]


class _Offset(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    offset: int
    partition: int = 0
    metadata: str | None = None


class _Offsets(_Holder, kw_only=True):
    group: str
    offsets: list[_Offset]


class _Append(_Holder, kw_only=True):
    topic: str
    sequence: int
    records: list[RecordBody]
    partition: int = 0


class _End(_Holder, kw_only=True):
    commit: bool


def list_txns(query: Query) -> Action:
    """`GET /v1/txns`."""
    limit = query.number("limit", 100, low=1, high=1_000)
    return ListTxns(query.text("prefix") or "", query.text("after") or "", limit)


def txn(request: Request, rest: bytes, now_ms: int, name_of: NameOf, timeouts: TxnTimeouts) -> Action:
    """`/v1/txns/<id>` and `/v1/txns/<id>/<verb>`. A transactional id with a slash has it encoded."""
    raw_id, slash, verb = rest.partition(b"/")
    txn_id = decoded(raw_id)
    if not txn_id:
        raise TargetInvalid("the path goes on with the transactional id")
    if not slash:
        if request.method not in (b"GET", b"HEAD"):
            return Done(
                answers.problem(405, "method_not_allowed", "this path takes GET, HEAD", headers=b"Allow: GET, HEAD\r\n")
            )
        return Submit(c.GetTxn(txn_id), _rendered(o.TxnFound, lambda found: answers.json(txn_row(found.txn, name_of))))
    if request.method != b"POST":
        return Done(answers.problem(405, "method_not_allowed", "this path takes POST", headers=b"Allow: POST\r\n"))
    if verb == b"begin":
        return _begin(txn_id, bytes(request.body) or b"{}", timeouts)
    make = _VERBS.get(verb)
    if make is None:
        verbs = ", ".join(["begin", *(name.decode() for name in _VERBS)])
        raise TargetInvalid(f"the path ends with one of {verbs}, not {decoded(verb)[:40]!r}")
    return make(txn_id, bytes(request.body) or b"{}", now_ms)


def _rendered(kind: type, answer: Callable[..., bytes]) -> Callable[[o.Outcome], bytes]:
    def render(outcome: o.Outcome) -> bytes:
        if isinstance(outcome, kind):
            return answer(outcome)
        assert isinstance(outcome, o.Refusal), outcome
        return problem_of(outcome)

    return render


def _held(done: o.TxnDone) -> bytes:
    return answers.json({"producer_id": done.producer_id, "epoch": done.epoch})


def _begin(txn_id: str, body: bytes, timeouts: TxnTimeouts) -> Action:
    asked: _Begin = parsed(body, _Begin)
    command = c.InitProducer(txn_id, asked.timeout_ms, asked.producer_id, asked.epoch, timeouts=timeouts)
    return Submit(command, _rendered(o.TxnDone, _held))


def _partitions(txn_id: str, body: bytes, _now_ms: int) -> Action:
    asked: _Partitions = parsed(body, _Partitions)
    streams = [(place.topic, place.partition) for place in asked.partitions]
    return Submit(c.AddToTxn(txn_id, asked.producer_id, asked.epoch, streams), _rendered(o.TxnDone, _held))


def _groups(txn_id: str, body: bytes, _now_ms: int) -> Action:
    asked: _Groups = parsed(body, _Groups)
    groups = [GROUP_SCOPE + group for group in asked.groups]
    return Submit(c.AddToTxn(txn_id, asked.producer_id, asked.epoch, [], groups), _rendered(o.TxnDone, _held))


def _offsets(txn_id: str, body: bytes, _now_ms: int) -> Action:
    asked: _Offsets = parsed(body, _Offsets)
    group = GROUP_SCOPE + asked.group
    moves = [
        c.CursorMove(group, each.topic, each.partition, each.offset, each.metadata or "") for each in asked.offsets
    ]

    def stored(done: o.OffsetsCommitted) -> bytes:
        refused = next((refusal for refusal in done.answers if refusal is not None), None)
        if refused is not None:
            return problem_of(refused)
        return answers.json({"producer_id": asked.producer_id, "epoch": asked.epoch})

    command = c.TxnCursors(txn_id, asked.producer_id, asked.epoch, group, moves)
    return Submit(command, _rendered(o.OffsetsCommitted, stored))


def _append(txn_id: str, body: bytes, now_ms: int) -> Action:
    asked: _Append = parsed(body, _Append)
    if not asked.records:
        raise BodyInvalid("records holds at least one record")
    if not 0 <= asked.sequence <= KAFKA_SEQUENCE_MAX:
        raise BodyInvalid(f"sequence is {asked.sequence}; it counts the records of a partition from 0 on")
    if not 0 <= asked.producer_id < 1 << 63 or not 0 <= asked.epoch < 1 << 15:
        raise BodyInvalid("producer_id and epoch are those that begin answered")
    records = [record_of(f"records[{delta}]", delta, record, now_ms) for delta, record in enumerate(asked.records)]
    last = (asked.sequence + len(records) - 1) & KAFKA_SEQUENCE_MAX
    batch = codec.encode(
        records,
        producer_id=asked.producer_id,
        producer_epoch=asked.epoch,
        base_sequence=asked.sequence,
        transactional=True,
    )
    name, mode = kafka_name(asked.producer_id), int(SequenceMode.RECORDS)
    claim = ProducerClaim(name, asked.epoch, asked.sequence, last, mode)

    def written(done: o.Confirmed) -> bytes:
        return answers.json({"first": done.first, "next": done.next, "duplicate": done.duplicate})

    command = c.Append(asked.topic, asked.partition, batch, len(records), claim=claim, txn_id=txn_id)
    return Submit(command, _rendered(o.Confirmed, written))


def _end(txn_id: str, body: bytes, _now_ms: int) -> Action:
    asked: _End = parsed(body, _End)
    return Submit(c.EndTxn(txn_id, asked.producer_id, asked.epoch, asked.commit), _rendered(o.TxnDone, _held))


def _abort(txn_id: str, body: bytes, _now_ms: int) -> Action:
    """An administrator's abort: it names the holder that was seen, so that it cannot end the transaction after it."""
    asked: _Holder = parsed(body, _Holder)
    return Submit(c.EndTxn(txn_id, asked.producer_id, asked.epoch, False), _rendered(o.TxnDone, _held))


_VERBS: Final[dict[bytes, Callable[[str, bytes, int], Action]]] = {
    b"partitions": _partitions,
    b"groups": _groups,
    b"offsets": _offsets,
    b"append": _append,
    b"end": _end,
    b"abort": _abort,
}


def txn_row(row: Txn, name_of: NameOf) -> dict[str, object]:
    """A transaction as listings show it. `holds` are the streams whose stable offset waits for it, and from where."""
    is_open = row.state is TxnState.ONGOING
    holds = [
        dict(zip(("topic", "partition"), name_of(stream_id), strict=True)) | {"offset": ranges[0]}
        for stream_id, ranges in row.streams.items()
        if ranges
    ]
    return {
        "txn_id": row.txn_id,
        "state": row.state.name.lower(),
        "producer_id": row.producer_id,
        "epoch": row.epoch,
        "timeout_ms": row.timeout_ms,
        "started_ms": row.started_ns // 1_000_000 if is_open else None,
        "ends_ms": row.due_ns // 1_000_000 if is_open else None,
        "updated_ms": row.updated_ns // 1_000_000,
        "groups": [group.removeprefix(GROUP_SCOPE) for group in row.groups],
        "partitions": [dict(zip(("topic", "partition"), name_of(stream_id), strict=True)) for stream_id in row.streams],
        "holds": holds,
    }
