"""Records that name themselves: in topics with `message_id_header = true` the header `oncelog.message-id` is a claim.

A record that was stored under its id, through whichever face, is not stored again. The batch is decoded for it, and
its records are decided together: all are new, or all are known and lie in line, and then the answer is their first
place.
If only some are known, those that are new are stored one by one and no place is told (base offset -1), since Kafka's
answer cannot name several. A known id with other content refuses the batch (87) and says which record it is.
"""

from collections.abc import Callable
from typing import Final

from oncelog.core import batch as codec
from oncelog.core.command import Columns
from oncelog.core.flat import ProducerClaim
from oncelog.core.outcome import Confirmed, IdConflict, Outcome, PartlyDuplicate, Refusal, each_outcome
from oncelog.core.producer import SequenceMode
from oncelog.limits import KAFKA_SEQUENCE_MAX
from oncelog.protocols.kafka.codes import Code
from oncelog.protocols.kafka.door import Admitted
from oncelog.protocols.kafka.log import Log
from oncelog.protocols.kafka.produce import PartitionAnswer, PartitionData
from oncelog.protocols.kafka.refusal_map import produce_code, text_of

HEADER: Final = "oncelog.message-id"

Tell = Callable[[PartitionAnswer], None]


class NamedRecords:
    """One batch of such a topic."""

    def __init__(self, log: Log, data: PartitionData, admitted: Admitted, version: int, tell: Tell) -> None:
        self._log = log
        self._data = data
        self._claim = admitted.claim
        self._version = version
        self._tell = tell
        _, self._times, self._keys, self._values, self._headers = codec.decode_columns(admitted.batch)
        self._ids = [_id_of(headers) for headers in self._headers]

    @property
    def has_ids(self) -> bool:
        """Whether any record names itself: else it is a batch like any other."""
        return any(self._ids)

    def submit(self) -> None:
        """Store what is new. Records without a name in a batch with some that have one are refused: nothing would
        recognise them when the batch is sent again."""
        nameless = [number for number, id_ in enumerate(self._ids) if not id_]
        if nameless:
            text = f"no header {HEADER}, while other records of the batch have one"
            errors = tuple((number, text) for number in nameless)
            self._refuse(Code.INVALID_RECORD, f"record {nameless[0]}: {text}", errors)
            return
        claims = None if self._claim is None else [self._claim]
        self._log.submit(self._columns(claims, together=True), self._decided)

    def _columns(self, claims: list[ProducerClaim] | None, *, together: bool) -> Columns:
        return Columns(
            self._data.topic,
            self._data.partition,
            self._values,
            None,
            claims,
            self._ids,
            together=together,
            keys=self._keys,
            headers=self._headers,
            timestamps_ms=self._times,
        )

    def _decided(self, outcome: Outcome) -> None:
        if isinstance(outcome, PartlyDuplicate):
            claims = None if self._claim is None else [self._claim_of(number) for number in range(len(self._values))]
            alone = self._columns(claims, together=False)
            self._log.submit(alone, lambda told: self._decided_alone(alone, told))
        elif isinstance(outcome, Confirmed):
            self._tell(PartitionAnswer(self._data.topic, self._data.partition, Code.NONE, outcome.first))
        else:
            assert isinstance(outcome, Refusal)
            self._refused({0 if outcome.append_number is None else outcome.append_number: outcome})

    def _decided_alone(self, command: Columns, outcome: Outcome) -> None:
        refused = {number: one for number, one in enumerate(each_outcome(outcome, command)) if isinstance(one, Refusal)}
        if refused:
            self._refused(refused)
        else:
            self._tell(PartitionAnswer(self._data.topic, self._data.partition, Code.NONE, -1))

    def _claim_of(self, number: int) -> ProducerClaim:
        """The sequence of one record: sequences count records."""
        assert self._claim is not None
        sequence = (self._claim.first + number) & KAFKA_SEQUENCE_MAX
        return ProducerClaim(self._claim.name, self._claim.epoch, sequence, sequence, int(SequenceMode.RECORDS))

    def _refused(self, refused: dict[int, Refusal]) -> None:
        texts = {number: text_of(refusal) for number, refusal in refused.items()}
        first = next(iter(refused.values()))
        code = produce_code(first, self._version)
        errors = tuple(texts.items()) if isinstance(first, IdConflict) else ()
        self._refuse(code, next(iter(texts.values())), errors)

    def _refuse(self, code: Code, message: str, errors: tuple[tuple[int, str], ...]) -> None:
        self._tell(PartitionAnswer(self._data.topic, self._data.partition, code, record_errors=errors, message=message))


def _id_of(headers: codec.Headers) -> bytes:
    return next((value for name, value in headers if name == HEADER and value), b"")
