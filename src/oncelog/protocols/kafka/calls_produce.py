"""Produce: every partition's batch is one command; the answer leaves when all of them are durable."""

from oncelog.core import batch as codec
from oncelog.core.command import Append
from oncelog.core.outcome import Confirmed, Outcome, Refusal
from oncelog.protocols.kafka.broker import Broker
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.door import Refused, admit
from oncelog.protocols.kafka.message_ids import NamedRecords
from oncelog.protocols.kafka.produce import PartitionAnswer, PartitionData, ProduceRequest, read_produce, write_produce
from oncelog.protocols.kafka.refusal_map import produce_code, text_of
from oncelog.protocols.kafka.replaced import Role
from oncelog.protocols.kafka.session import Call
from oncelog.protocols.kafka.topic_settings import rules_of

ACKS: frozenset[int] = frozenset((-1, 0, 1))


def produce(broker: Broker, call: Call) -> None:
    """Append what the request holds. Every acks above 0 means the same here: on disk."""
    request = read_produce(call.head.reader, call.version)
    gathering = _Gathering(call, request)
    for number, data in enumerate(request.partitions):
        answer = _begin(broker, call, request, data, _Reply(gathering, number))
        if answer is not None:
            gathering.set(number, answer)
        if call.session.is_over:
            return
    gathering.started()


def _begin(
    broker: Broker, call: Call, request: ProduceRequest, data: PartitionData, reply: "_Reply"
) -> PartitionAnswer | None:
    """Submit one partition's batch; an answer if it does not come so far."""
    topic, partition, records = data
    if request.acks not in ACKS:
        return _refused(data, Code.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; it may be -1, 0 or 1")
    row = broker.log.topic(topic)
    rules = rules_of(row)
    admitted = admit(records, call.version, rules, broker.now_ms())
    if isinstance(admitted, Refused):
        return _refused(data, admitted.code, admitted.message)
    txn_id = ""
    if admitted.header.attributes & codec.TRANSACTIONAL:
        txn_id = request.transactional_id or ""
        if not txn_id or not broker.may_use(txn_id):
            code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            return _refused(data, code, f"transactional id {txn_id!r} may not be used here")
        if not broker.connections.may_act(call.session, txn_id, admitted.header.producer_epoch, Role.RECORDS):
            return None
    if rules.message_ids and not txn_id:
        named = NamedRecords(broker.log, data, admitted, call.version, reply.tell)
        if named.has_ids:
            named.submit()
            return None
    append = Append(topic, partition, admitted.batch, admitted.header.record_count, claim=admitted.claim, txn_id=txn_id)
    broker.log.submit(append, reply.outcome)
    return None


def _refused(data: PartitionData, code: Code, message: str) -> PartitionAnswer:
    return PartitionAnswer(data.topic, data.partition, code, message=message)


class _Reply:
    """Where the answer of one partition goes."""

    def __init__(self, gathering: "_Gathering", number: int) -> None:
        self._gathering = gathering
        self._number = number

    def outcome(self, outcome: Outcome) -> None:
        """What the log says."""
        self._gathering.outcome(self._number, outcome)

    def tell(self, answer: PartitionAnswer) -> None:
        """The answer itself."""
        self._gathering.set(self._number, answer)


class _Gathering:
    """The answers of one request, until all are there."""

    def __init__(self, call: Call, request: ProduceRequest) -> None:
        self._call = call
        self._request = request
        self._answers: list[PartitionAnswer | None] = [None] * len(request.partitions)
        self._missing = len(request.partitions)
        self._is_started = False

    def set(self, number: int, answer: PartitionAnswer) -> None:
        """One partition's."""
        assert self._answers[number] is None
        self._answers[number] = answer
        self._missing -= 1
        if self._is_started:
            self._finish()

    def started(self) -> None:
        """Every partition was begun: an answer may leave from now on."""
        self._is_started = True
        self._finish()

    def outcome(self, number: int, outcome: Outcome) -> None:
        """What the log says."""
        data = self._request.partitions[number]
        if isinstance(outcome, Confirmed):
            first = outcome.first
            if outcome.duplicate and first < 0:  # a duplicate so old that nobody knows its place any more
                answer = _refused(data, Code.OUT_OF_ORDER_SEQUENCE_NUMBER, "this sequence was written long ago")
            else:
                answer = PartitionAnswer(data.topic, data.partition, Code.NONE, first)
        else:
            assert isinstance(outcome, Refusal)
            answer = _refused(data, produce_code(outcome, self._call.version), text_of(outcome))
        self.set(number, answer)

    def _finish(self) -> None:
        if self._missing or self._call.is_done:
            return
        answers = [answer for answer in self._answers if answer is not None]
        if self._request.acks != 0:
            self._call.answer_body([write_produce(self._call.version, answers)])
        elif any(answer.code for answer in answers):
            self._call.session.end()  # all that a client can be told that wants no answers
        else:
            self._call.answer_nothing()
