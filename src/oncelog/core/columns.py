"""Columns: the values that one turn brings for one stream, decided together and packed into one batch.

Each value stands or falls alone and means what it would mean in a command of its own, one after the other in their
order; or all of a command are written, or none. What most values are (new records of known producers, with new message
ids or without) is recognised here, by asking for no more than that; for whatever else there is to say about one, the
rules of `append` are asked, with what the values before it have changed (`seen`). A test compares every command with
the same values decided one by one.

Small values share a batch. A large one is a batch of its own, so that it is copied once; so are values that come
together, which share one claim.
"""

from collections.abc import Sequence
from typing import Final

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core import message_id, names
from oncelog.core.append import Judged, Unit, appended_unit, as_entry, id_refused, judge_unit
from oncelog.core.command import Columns
from oncelog.core.content_type import ANY, is_same_type
from oncelog.core.entry import (
    CLOSES,
    MANY_CLAIMS,
    PACKED_ID,
    RENEWS,
    Appended,
    ClaimRemembered,
    Entry,
    IdsUsed,
    Operation,
)
from oncelog.core.fact_columns import holds_facts, prepared
from oncelog.core.flat import Headers, Producer, ProducerClaim, Stream
from oncelog.core.memory import floor_of, is_gone, is_known_claim, surely_living
from oncelog.core.outcome import (
    BatchRefused,
    ClaimInvalid,
    Confirmed,
    IdConflict,
    Outcome,
    PartlyDuplicate,
    Refusal,
    TooLarge,
    TopicMissing,
)
from oncelog.core.producer import is_next, judge
from oncelog.core.seen import Seen
from oncelog.core.state import State
from oncelog.core.subjects import is_current, rows_of, subject_of, too_many, written
from oncelog.core.verdict import Accept

Records = Sequence[tuple[int, int, bytes | None, bytes | None, Headers]]

_VALUE_BYTES_MAX: Final = limits.RUN_VALUE_BYTES_MAX
_CLAIMS_BYTES_MAX: Final = limits.RUN_CLAIMS_BYTES_MAX

CLAIM_BYTES: Final = 96
"""What a claim takes in an entry beside its texts: numbers of up to nine bytes, a digest, heads."""

assert CLAIM_BYTES > 5 * 9 + limits.CLAIM_DIGEST_BYTES_MAX + 3 * 3 + 3

RECORD_BYTES: Final = 48
"""What a record may need beside its texts: its framing in the batch."""

ID_BYTES_MAX: Final = 16 + message_id.VALUE_BYTES
"""What an id may need in an entry, also where it is used up by an operation of its own."""

_NO_HASHES: Final[list[bytes]] = []


def stream_of(state: State, topic: str, partition: int) -> Stream | None:
    """The stream of a name; None if there is none. KeyError if it is not loaded."""
    row = state.topics[topic]
    if row is None or not 0 <= partition < len(row.stream_ids):
        return None
    return state.streams[row.stream_ids[partition]]


def hashes_of(stream: Stream, command: Columns) -> list[bytes]:
    """The hash of every message id of a command, empty for a value without; none at all if there is none."""
    ids = prepared(stream, command).message_ids
    return _NO_HASHES if ids is None else message_id.id_hashes(stream, ids)


def decide_columns(
    state: State, commands: Sequence[Columns], hashes: Sequence[list[bytes]] | None, now_ns: int
) -> tuple[list[Operation], list[Outcome]]:
    """What the commands bring about, all for one stream and in their order, and what their senders are told. `hashes`
    are those of their ids, where somebody has them already. Changes nothing."""
    first = commands[0]
    stream = stream_of(state, first.topic, first.partition)
    if stream is None:
        return [], [TopicMissing(command.topic, command.partition) for command in commands]
    deciding = _Deciding(state, stream, max(now_ns, state.time_ns))
    answers: list[Outcome] = []
    if holds_facts(stream):
        commands = [prepared(stream, command) for command in commands]
    for number, command in enumerate(commands):
        of_ids = hashes_of(stream, command) if hashes is None else hashes[number]
        answers.append(deciding.answer(command, of_ids))
    return deciding.operations_of_all(), answers


def decide_one(state: State, command: Columns, now_ns: int) -> tuple[Entry | None, Outcome]:
    """One command of columns."""
    operations, answers = decide_columns(state, (command,), None, now_ns)
    return as_entry(operations, now_ns), answers[0]


def command_too_large(command: Columns) -> Refusal | None:
    """Whether it is too much for one entry. Estimated, before anything is encoded."""
    count = len(command.values)
    if count > limits.BATCH_RECORDS_MAX:
        return TooLarge("records of one batch", limits.BATCH_RECORDS_MAX, count)
    return names.entry_refused("command", bytes_of(command))


def bytes_of(command: Columns) -> int:
    """What the records of a command may need in an entry, at most."""
    size = 0
    for value in command.values:
        size += RECORD_BYTES if value is None else RECORD_BYTES + len(value)
    if command.message_ids is not None:
        size += ID_BYTES_MAX * len(command.message_ids)
    if command.keys is not None:
        size += sum([len(key) for key in command.keys if key is not None])
    if command.headers is not None:
        for headers in command.headers:
            for name, content in headers:
                size += 16 + max(0, names.text_bytes(name)) + len(content or b"")
    if command.claims is not None:
        for claim in command.claims:
            if claim is not None:
                size += CLAIM_BYTES + 4 * (len(claim.name) + len(claim.session))
    return size


def records_of(command: Columns, first: int, next_: int, now_ns: int) -> Records:
    """Some values of a command as records, with all that comes with them."""
    now_ms = now_ns // 1_000_000
    keys, headers, times = command.keys, command.headers, command.timestamps_ms
    return [
        (
            number - first,
            now_ms if times is None or not times[number] else times[number],
            None if keys is None else keys[number],
            command.values[number],
            () if headers is None else headers[number],
        )
        for number in range(first, next_)
    ]


def flaw_of(command: Columns, number: int) -> str:
    """What is wrong with a record itself; empty if nothing is."""
    times, headers, flaws = command.timestamps_ms, command.headers, command.flaws
    if flaws is not None and flaws[number]:
        return flaws[number]
    if times is not None and not -codec.TIMESTAMP_TAME_MAX < times[number] < codec.TIMESTAMP_TAME_MAX:
        return "a timestamp is out of range"
    if headers is not None and any(names.text_bytes(name) < 0 for name, _ in headers[number]):
        return "a header name is Unicode text"
    return ""


def record_bytes(command: Columns, number: int) -> int:
    """How large a record is: its value, key and headers."""
    size = len(command.values[number] or b"")
    if command.keys is not None:
        size += len(command.keys[number] or b"")
    for name, content in () if command.headers is None else command.headers[number]:
        size += max(0, names.text_bytes(name)) + len(content or b"")
    return size


def expected_of(command: Columns, first: int, next_: int) -> list[tuple[str, int]]:
    """What some values of a command expect of subjects."""
    expected = command.expected_subjects
    return [] if expected is None else [one for one in expected[first:next_] if one is not None]


def _is_bare(command: Columns) -> bool:
    """Whether its records are values and nothing else."""
    return command.keys is None and command.headers is None and command.timestamps_ms is None


class _Deciding:
    """One stream, while commands for it are decided."""

    def __init__(self, state: State, row: Stream, now_ns: int) -> None:
        self.state = state
        self.row = row
        self.now_ns = now_ns
        self.seen = Seen(state, row, now_ns)
        self.tail = row.tail
        self.order_key = row.order_key
        self.closed = row.closed
        self.operations: list[Operation] = []
        self.used: dict[bytes, bytes] = {}
        """Hash → value of known ids whose memory starts anew."""
        self.is_indexed = is_current(row)
        self.keys: list[bytes | None] = []
        """Of every record that is appended, where subjects are indexed."""
        # The batch that is being filled.
        self.values: list[bytes] = []
        self.records: list[tuple[int, int, bytes | None, bytes | None, Headers]] = []
        """Instead of values, once one of them has more to it."""
        self.count = 0
        self.ids: dict[bytes, bytes] = {}
        """Hash → packed id, of this batch."""
        self.claims: list[tuple[int, int, ProducerClaim]] = []
        self.names: set[str] = set()
        self.claims_bytes = 0
        self.noted_claims = 0
        """How many of the claims `seen` knows of."""
        self.new_order_key = ""
        # Of the value that was accepted last.
        self.epoch = -1
        self.sequence = -1
        self.type_found = "" if row.config.content_type == ANY else row.config.content_type
        """The type that was last found to belong into the stream."""

    def operations_of_all(self) -> list[Operation]:
        """All that was decided, in its order."""
        self.flush(is_last=True)
        if self.used:
            self.operations.append(IdsUsed(b"".join(self.used), b"".join(self.used.values())))
        if self.keys:
            rows = rows_of(self.keys, self.row.tail)
            self.operations.append(written(self.state, self.row, rows, self.tail))
        return self.operations

    # --- one command -----------------------------------------------------------------------------------------------

    def answer(self, command: Columns, hashes: list[bytes]) -> Outcome:
        """Decide one command."""
        count = len(command.values)
        if command.together and (count != 1 or command.batch_id):
            return self.all_or_nothing(command, hashes)
        if count != 1 and (refusal := command_too_large(command)) is not None:
            return refusal
        if self.is_indexed and (refusal := self.too_many_subjects(command)) is not None:
            return refusal
        is_plain = self.is_plain(command)
        first = self.tail
        if count == 1:
            outcome = self.value(command, 0, hashes, is_plain)
            if outcome is not None:
                return outcome
            return self.accepted(first, self.closed)
        exceptions: dict[int, Outcome] = {}
        claims = command.claims
        epoch = sequence = -1
        for number in range(count):
            outcome = self.value(command, number, hashes, is_plain)
            if outcome is not None:
                exceptions[number] = outcome
                continue
            claim = None if claims is None else claims[number]
            if claim is not None and claim.epoch != self.epoch:
                exceptions[number] = self.accepted(self.tail - 1, self.closed)
            epoch, sequence = self.epoch, self.sequence
        closed = command.close and self.closed and count - 1 not in exceptions
        stream_id, told = self.row.stream_id, exceptions or None
        return Confirmed(stream_id, first, self.tail, self.now_ns, False, False, epoch, sequence, closed, told)

    def too_many_subjects(self, command: Columns) -> Refusal | None:
        """Whether its values have more subjects than one entry may tell of."""
        if command.keys is None or len(command.keys) <= limits.SUBJECTS_PER_ENTRY_MAX:
            return None
        return too_many(set(map(subject_of, command.keys)))

    def accepted(self, offset: int, closed: bool) -> Confirmed:
        """The answer to the value that was accepted last."""
        stream_id, now_ns = self.row.stream_id, self.now_ns
        return Confirmed(stream_id, offset, offset + 1, now_ns, False, False, self.epoch, self.sequence, closed)

    def is_plain(self, command: Columns) -> bool:
        """Whether nothing about the command as a whole asks for a closer look at its values."""
        row = self.row
        if self.closed or row.open_txns or command.close or command.expected_tails is not None:
            return False
        if (
            command.order_keys is not None
            or command.expected_subjects is not None
            or command.flaws is not None
            or row.config.record_bytes_max
        ):
            return False
        content_type = command.content_type
        if content_type != self.type_found:
            if not content_type or not is_same_type(content_type, row.config.content_type):
                return False
            self.type_found = content_type
        return True

    def value(self, command: Columns, number: int, hashes: list[bytes], is_plain: bool) -> Outcome | None:
        """Decide one value that stands alone; None if it is appended, at the tail and under `self.epoch`."""
        value = command.values[number]
        claim = None if command.claims is None else command.claims[number]
        id_hash = hashes[number] if hashes else b""
        if not is_plain or value is None or len(value) > _VALUE_BYTES_MAX:
            return self.unusual(command, number, id_hash)
        digest = b""
        if id_hash:
            digest = self.digest_of(command, number)
            if id_hash in self.ids or id_hash in self.seen.ids or self.state.find_id(id_hash) is not None:
                return self.unusual(command, number, id_hash)
            if id_refused(command.message_ids[number], digest) is not None:  # type: ignore[index]
                return self.unusual(command, number, id_hash)
        epoch = sequence = -1
        if claim is not None:
            epoch = self.plain_epoch(claim)
            if epoch < 0:
                return self.unusual(command, number, id_hash)
            sequence = claim.last
        if not _is_bare(command) and flaw_of(command, number):
            return self.unusual(command, number, id_hash)
        self.add(command, number, value, claim, epoch, id_hash, digest)
        self.epoch, self.sequence = epoch, sequence
        return None

    def note_subjects(self, command: Columns, first: int, next_: int) -> None:
        """Values of a command are appended at the tail: the index of subjects goes along."""
        if not self.is_indexed:
            return
        for number in range(first, next_):
            key = None if command.keys is None else command.keys[number]
            self.seen.subjects[subject_of(key)] = self.row.tail + len(self.keys)
            self.keys.append(key)

    def digest_of(self, command: Columns, number: int) -> bytes:
        """What the id of a value is compared by."""
        if command.digests is not None:
            return command.digests[number]
        return message_id.values_digest([command.values[number]])

    def plain_epoch(self, claim: ProducerClaim) -> int:
        """The epoch that the claim is accepted under, as the next of a producer that is loaded and surely not
        forgotten; -1 if it is anything else."""
        producer: Producer | None
        if claim.name in self.names:
            self.note()
        if claim.name in self.seen.producers:
            producer = self.seen.producers[claim.name]
        else:
            producer = self.state.producers.get((self.row.stream_id, claim.name))
        if producer is None or not surely_living(self.row, producer):
            return -1
        if is_next(producer, claim):
            return producer.epoch
        if names.known_claim_refused(claim) is not None:
            return -1
        verdict = judge(producer, claim)
        return verdict.epoch if type(verdict) is Accept and not verdict.new_epoch else -1

    def unusual(self, command: Columns, number: int, id_hash: bytes) -> Outcome | None:
        """As `value`, by all the rules."""
        value = command.values[number]
        is_last = number == len(command.values) - 1
        is_large = value is not None and len(value) > _VALUE_BYTES_MAX
        flaw = flaw_of(command, number)
        batch = self.alone(command, number) if is_large and not flaw else b"\0"
        unit = Unit(
            1,
            len(batch),
            lambda: [value],
            self.digest_of(command, number) if id_hash else b"",
            None if command.claims is None else command.claims[number],
            b"" if command.message_ids is None else command.message_ids[number],
            id_hash,
            -1 if command.expected_tails is None else command.expected_tails[number],
            "" if command.order_keys is None else command.order_keys[number],
            command.content_type,
            command.close and is_last,
            flaw=flaw,
            record_bytes=record_bytes(command, number),
            expected_subjects=expected_of(command, number, number + 1),
        )
        judged = self.judged(unit)
        if judged.answer is not None:
            return judged.answer
        if is_large or judged.flags & RENEWS:
            self.note_subjects(command, number, number + 1)
            self.append_alone(unit, batch if is_large else self.alone(command, number), judged)
        else:
            self.add(command, number, value, unit.claim, judged.epoch, id_hash, unit.digest)
            if unit.order_key:
                self.new_order_key = self.order_key = unit.order_key
            self.closed = unit.close
        self.epoch, self.sequence = judged.epoch, -1 if unit.claim is None else unit.claim.last
        return None

    def alone(self, command: Columns, number: int) -> bytes:
        """A batch of one value."""
        if _is_bare(command):
            return codec.encode_one(command.values[number], self.now_ns // 1_000_000)
        return codec.encode(records_of(command, number, number + 1, self.now_ns))

    # --- all or nothing --------------------------------------------------------------------------------------------

    def all_or_nothing(self, command: Columns, hashes: list[bytes]) -> Outcome:
        """Decide values that come together."""
        count = len(command.values)
        if not count:
            return BatchRefused("a batch holds at least one record")
        if self.is_indexed and (refusal := self.too_many_subjects(command)) is not None:
            return refusal
        again = self.known_batch(command)
        if again is not None:
            return again
        flaws = [flaw for number in range(count) if (flaw := flaw_of(command, number))]
        ids_each = count > 1 and len(hashes) == count
        if ids_each and (told := self.members_again(command, hashes)) is not None:
            return told
        batch = self.whole(command)
        ids = self.member_ids(command, hashes) if ids_each else b""
        one_id = bool(hashes) and not ids_each
        values = command.values
        unit = Unit(
            count,
            len(batch) + len(ids),
            lambda: values,
            b"" if not one_id else command.digests[0] if command.digests else message_id.values_digest(values),
            None if not command.claims else command.claims[0],
            command.message_ids[0] if one_id and command.message_ids else b"",
            hashes[0] if one_id else b"",
            -1 if not command.expected_tails else command.expected_tails[0],
            "" if not command.order_keys else command.order_keys[0],
            command.content_type,
            command.close,
            flaw=flaws[0] if flaws else "",
            record_bytes=max(record_bytes(command, number) for number in range(count)),
            expected_subjects=expected_of(command, 0, count),
        )
        judged = self.judged(unit)
        if judged.answer is not None:
            return judged.answer
        first = self.tail
        self.note_subjects(command, 0, count)
        self.append_alone(unit, batch, judged, ids)
        if command.batch_id:
            outcome = [self.row.stream_id, first, first + count]
            floor_ms = floor_of(self.state, outcome)
            self.operations.append(
                ClaimRemembered(command.batch_scope, command.batch_id, command.batch_digest, outcome, floor_ms)
            )
        sequence = -1 if unit.claim is None else unit.claim.last
        return Confirmed(
            self.row.stream_id, first, self.tail, self.now_ns, False, False, judged.epoch, sequence, command.close
        )

    def whole(self, command: Columns) -> bytes:
        """All of a command as one batch."""
        values = command.values
        if _is_bare(command) and None not in values:
            return codec.encode_values(values, self.now_ns // 1_000_000)  # type: ignore[arg-type]
        if any(flaw_of(command, number) for number in range(len(values))):
            return b"\0"  # it is refused for that
        return codec.encode(records_of(command, 0, len(values), self.now_ns))

    def known_batch(self, command: Columns) -> Confirmed | None:
        """The first outcome of a batch id, if its content is the same."""
        if not command.batch_id:
            return None
        row = self.state.remembered[(command.batch_scope, command.batch_id)]
        if row is None or row.digest != command.batch_digest or not is_known_claim(self.state, row, self.now_ns):
            return None
        stream_id, first, next_ = row.outcome
        return Confirmed(stream_id, first, next_, row.used_ns, True, is_gone(self.state, stream_id, first))

    def members_again(self, command: Columns, hashes: list[bytes]) -> Confirmed | Refusal | None:
        """What is told of values that come together and each of which may have an id: the first outcome if all of them
        are stored already, one behind the other; a refusal if only some are, or one differs."""
        self.flush()
        known: dict[int, Confirmed] = {}
        for number, id_hash in enumerate(hashes):
            if not id_hash:
                continue
            digest = self.digest_of(command, number)
            if (refusal := id_refused(command.message_ids[number], digest)) is not None:  # type: ignore[index]
                refusal.append_number = number
                return refusal
            if id_hash in hashes[:number]:
                return ClaimInvalid("one message id stands twice in one batch", append_number=number)
            value = self.seen.known_id(id_hash)
            if value is None:
                continue
            answer = self.seen.first_outcome(value, digest)
            if isinstance(answer, IdConflict):
                answer.append_number = number
                return answer
            known[number] = answer
        if not known:
            return None
        count = len(hashes)
        at, one = next(iter(known.items()))
        in_line = [
            other.stream_id == one.stream_id and other.first == one.first + number and other.next == other.first + 1
            for number, other in known.items()
        ]
        if len(known) < count or not all(in_line):
            return PartlyDuplicate(len(known), count - len(known), one.stream_id, one.first, append_number=at)
        gone = any(other.gone for other in known.values())
        return Confirmed(one.stream_id, one.first, one.first + count, one.time_ns, True, gone)

    def member_ids(self, command: Columns, hashes: list[bytes]) -> bytes:
        """The ids of values that come together, for their entry."""
        packed: list[bytes] = []
        for number, id_hash in enumerate(hashes):
            if id_hash:
                packed.append(PACKED_ID.pack(id_hash, self.digest_of(command, number), number, 1))
        return b"".join(packed)

    # --- what was decided ------------------------------------------------------------------------------------------

    def judged(self, unit: Unit) -> Judged:
        """Ask the rules; what they change beside an append is taken over."""
        self.note()
        packed = self.ids.get(unit.id_hash)
        if packed is not None:
            first = self.tail - self.count
            values = message_id.packed_each(PACKED_ID.iter_unpack(packed), self.row.stream_id, first, self.now_ns)
            self.seen.ids.update(values)
        self.seen.stand(self.tail, self.order_key, self.closed)
        judged = judge_unit(self.seen, unit)
        for operation in judged.operations:
            if isinstance(operation, IdsUsed):
                self.used[operation.hashes] = operation.values
            else:
                self.flush()  # a producer's claims are applied in their order
                self.operations.append(operation)
        return judged

    def add(
        self,
        command: Columns,
        number: int,
        value: bytes | None,
        claim: ProducerClaim | None,
        epoch: int,
        id_hash: bytes,
        digest: bytes,
    ) -> None:
        """Append a value to the batch that is being filled."""
        self.note_subjects(command, number, number + 1)
        if claim is not None:
            claim_bytes = CLAIM_BYTES + 4 * (len(claim.name) + len(claim.session))
            if self.claims_bytes + claim_bytes > _CLAIMS_BYTES_MAX:
                self.flush()
            self.claims_bytes += claim_bytes
            self.claims.append((self.count, epoch, claim))
            self.names.add(claim.name)
        if id_hash:
            self.ids[id_hash] = PACKED_ID.pack(id_hash, digest, self.count, 1)
        if self.records or value is None or not _is_bare(command):
            self.add_record(command, number)
        else:
            self.values.append(value)
        self.count += 1
        self.tail += 1

    def add_record(self, command: Columns, number: int) -> None:
        """The same of a value with more to it, or behind one."""
        if self.values:
            now_ms = self.now_ns // 1_000_000
            self.records = [(at, now_ms, None, value, ()) for at, value in enumerate(self.values)]
            self.values = []
        _, time_ms, key, value, headers = records_of(command, number, number + 1, self.now_ns)[0]
        self.records.append((self.count, time_ms, key, value, headers))

    def append_alone(self, unit: Unit, batch: bytes, judged: Judged, ids: bytes = b"") -> None:
        """Append a unit as a batch of its own."""
        self.flush()
        stream_id, first, next_ = self.row.stream_id, self.tail, self.tail + unit.count
        entry = appended_unit(stream_id, first, unit, batch, judged, self.now_ns)
        if ids:
            entry.ids = ids
        self.operations.append(entry)
        if entry.ids:
            self.seen.ids.update(
                message_id.packed_each(PACKED_ID.iter_unpack(entry.ids), stream_id, first, self.now_ns)
            )
        if unit.claim is not None:
            if judged.flags & RENEWS:
                self.seen.renewed(unit.claim, judged.epoch, first, next_)
            else:
                self.seen.wrote(unit.claim, judged.epoch, first, next_)
        self.order_key = unit.order_key or self.order_key
        self.closed = unit.close
        self.tail = next_

    def note(self) -> None:
        """Let the next value see which producers wrote into this batch."""
        first = self.tail - self.count
        for number, epoch, claim in self.claims[self.noted_claims :]:
            self.seen.wrote(claim, epoch, first + number, first + number + 1)
        self.noted_claims = len(self.claims)

    def flush(self, *, is_last: bool = False) -> None:
        """The batch that was filled becomes an operation."""
        if not self.count:
            return
        if not is_last:
            self.note()
            packed = PACKED_ID.iter_unpack(b"".join(self.ids.values()))
            first = self.tail - self.count
            self.seen.ids.update(message_id.packed_each(packed, self.row.stream_id, first, self.now_ns))
        now_ns = self.now_ns
        if self.records:
            batch = codec.encode(self.records)
        elif self.count == 1:
            batch = codec.encode_one(self.values[0], now_ns // 1_000_000)
        else:
            batch = codec.encode_values(self.values, now_ns // 1_000_000)
        entry = Appended(self.row.stream_id, self.tail - self.count, self.count, batch, now_ns)
        if self.ids:
            entry.ids = b"".join(self.ids.values())
        if self.claims:
            if self.count == 1:
                _, entry.epoch, entry.claim = self.claims[0]
            else:
                entry.flags = MANY_CLAIMS
                entry.claims = tuple(self.claims)
        entry.order_key = self.new_order_key
        if self.closed:
            entry.flags |= CLOSES
        self.operations.append(entry)
        self.values = []
        self.records = []
        self.ids = {}
        self.claims = []
        self.names = set()
        self.count = self.claims_bytes = self.noted_claims = 0
        self.new_order_key = ""
