"""The flat shapes: what a single append is made of, from the claim of its producer to the row that it changes.

Nearly all traffic is appends of one record, and nearly all of their cost is making and reading these few objects. They
are therefore classes that mypyc compiles to plain structures with their numbers inside, together with the modules on
the path of an append (`tools/compiled.py` lists them); without a compiler they are ordinary classes with slots.
Everything else that is asked, stored or answered is a `msgspec.Struct` in `command`, `entry`, `outcome` and `rows`.

Values only: none of them holds anything that could lead back to it, so the collector need not look at them. Fields
stand in the order of `fields`, which is the order on disk: one may be added at the end with a default, none removed.
Only `core.apply` changes a row (`Stream`, `Producer`); nobody changes the others once they were handed on.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from mypy_extensions import mypyc_attr

from oncelog.core.rows import TopicConfig
from oncelog.limits import BYTE_MARK_BITS, BYTE_MARKS_MAX, PRODUCER_BATCHES_REMEMBERED


@mypyc_attr(acyclic=True)
class Flat:
    """Equality, a readable form and copies, by fields. None of it is on the path of an append."""

    __slots__ = ()
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def fields(self) -> tuple[Any, ...]:
        """All of them, in their order."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flat) and type(other) is type(self) and self.fields() == other.fields()

    def __repr__(self) -> str:
        return f"{type(self).__name__}{self.fields()!r}"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.fields()

    def replaced(self, **changes: Any) -> Self:
        """The same but for some fields."""
        copy = type(self)(*self.fields())
        for name, value in changes.items():
            setattr(copy, name, value)
        return copy


@mypyc_attr(acyclic=True)
class ProducerClaim(Flat):
    """What a write says about itself. `first` and `last` are inclusive; RECORDS may wrap, so that last < first."""

    __slots__ = ("digest", "epoch", "first", "last", "managed", "mode", "name", "session", "start_any")

    def __init__(
        self,
        name: str,
        epoch: int,
        first: int,
        last: int,
        mode: int,
        digest: bytes = b"",
        managed: bool = False,
        session: str = "",
        start_any: bool = False,
    ) -> None:
        self.name = name
        self.epoch = epoch
        self.first = first
        self.last = last
        self.mode = mode
        self.digest = digest
        """16 bytes over the content; empty means that content is not compared, as on the Kafka face."""
        self.managed = managed
        """The server owns the epochs; `epoch` is NOT_TOLD unless the client named one."""
        self.session = session
        """One run of a managed client; empty when it does not say."""
        self.start_any = start_any
        """An unknown producer may start at any sequence (it would else have to start at 0). A managed client that names
        no run has waited for its sequence 0 in vain."""

    def fields(self) -> tuple[Any, ...]:
        return (
            self.name,
            self.epoch,
            self.first,
            self.last,
            self.mode,
            self.digest,
            self.managed,
            self.session,
            self.start_any,
        )


@mypyc_attr(acyclic=True)
class Written(Flat):
    """One batch that a producer wrote, as its row remembers it. What a commit did, or what lies in another stream, is
    kept as its `outcome`; then the two offsets are 0."""

    __slots__ = ("digest", "first", "first_offset", "last", "next_offset", "outcome")

    def __init__(
        self,
        first: int,
        last: int,
        digest: bytes,
        first_offset: int,
        next_offset: int,
        outcome: tuple[int, ...] | None = None,
    ) -> None:
        self.first = first
        self.last = last
        """Its sequences, inclusive."""
        self.digest = digest
        self.first_offset = first_offset
        self.next_offset = next_offset
        self.outcome = outcome
        """Flat (stream, first, next)."""

    def fields(self) -> tuple[Any, ...]:
        return self.first, self.last, self.digest, self.first_offset, self.next_offset, self.outcome


@mypyc_attr(acyclic=True)
class Producer(Flat):
    """One producer of one stream: the row that `producer.judge` compares with.

    `last` is -1 and nothing is remembered while the epoch is only a fence and nothing has been written in it: the next
    sequence is then 0 in every mode that counts.
    """

    __slots__ = (
        "_fifth",
        "_first",
        "_fourth",
        "_second",
        "_third",
        "displaced",
        "early_digests",
        "epoch",
        "epoch_batch_count",
        "epoch_first_digest",
        "last",
        "mode",
        "session",
        "used_ns",
    )

    def __init__(
        self,
        epoch: int,
        mode: int,
        last: int,
        used_ns: int,
        batches: tuple[Written, ...],
        session: str = "",
        epoch_first_digest: bytes = b"",
        epoch_batch_count: int = 0,
        displaced: tuple[str, ...] = (),
        early_digests: tuple[bytes, ...] = (),
    ) -> None:
        assert len(batches) <= PRODUCER_BATCHES_REMEMBERED == 5
        self.epoch = epoch
        self.mode = mode
        self.last = last
        self.used_ns = used_ns
        # The batches, newest first; in five fields and not in a tuple, so that nothing is made anew for every append.
        self._first: Written | None = None
        self._second: Written | None = None
        self._third: Written | None = None
        self._fourth: Written | None = None
        self._fifth: Written | None = None
        for written in batches:
            self.remember(written)
        self.session = session
        self.epoch_first_digest = epoch_first_digest
        """Digest of the batch that opened this epoch at sequence 0; empty if the epoch opened at another sequence."""
        self.epoch_batch_count = epoch_batch_count
        self.displaced = displaced
        """Sessions that held earlier epochs, oldest first: what they still send is a zombie's, never a restart."""
        self.early_digests = early_digests
        """Digests of the sequences from 1 on of this epoch, four at most, of a managed producer: they tell a retry from
        another run that names itself in no way. Empty where a sequence was not written."""

    def fields(self) -> tuple[Any, ...]:
        return (
            self.epoch,
            self.mode,
            self.last,
            self.used_ns,
            self.batches,
            self.session,
            self.epoch_first_digest,
            self.epoch_batch_count,
            self.displaced,
            self.early_digests,
        )

    @property
    def newest(self) -> Written | None:
        """What it wrote last in this epoch."""
        return self._first

    @property
    def batches(self) -> tuple[Written, ...]:
        """What is remembered of this epoch, oldest first, PRODUCER_BATCHES_REMEMBERED at most."""
        newest_first = (self._fifth, self._fourth, self._third, self._second, self._first)
        return tuple([written for written in newest_first if written is not None])

    def remember(self, written: Written) -> None:
        """One more, in the place of the oldest."""
        self._fifth = self._fourth
        self._fourth = self._third
        self._third = self._second
        self._second = self._first
        self._first = written


@mypyc_attr(acyclic=True)
class Stream(Flat):
    """One ordered sequence of records: its row. Containers are made on first use: most streams never need one."""

    __slots__ = (
        "byte_marks",
        "closed",
        "config",
        "deleted_ns",
        "floor",
        "hole_count",
        "open_txns",
        "order_key",
        "partition",
        "pins",
        "shard",
        "stored_bytes",
        "stream_id",
        "subjects_next",
        "tail",
        "time_ns",
        "topic",
        "topic_id",
        "trim_marks",
    )

    def __init__(
        self,
        stream_id: int,
        topic_id: int,
        partition: int,
        config: TopicConfig,
        tail: int = 0,
        floor: int = 0,
        closed: bool = False,
        deleted_ns: int = 0,
        shard: int = 0,
        time_ns: int = 0,
        order_key: str = "",
        hole_count: int = 0,
        open_txns: dict[int, int] | None = None,
        trim_marks: list[int] | None = None,
        pins: dict[str, int] | None = None,
        topic: str = "",
        stored_bytes: int = 0,
        byte_marks: list[int] | None = None,
        subjects_next: int = -1,
    ) -> None:
        self.stream_id = stream_id
        self.topic_id = topic_id
        self.partition = partition
        self.config = config
        self.tail = tail
        self.floor = floor
        self.closed = closed
        self.deleted_ns = deleted_ns
        self.shard = shard
        self.time_ns = time_ns
        """Append time of the newest batch; never decreases."""
        self.order_key = order_key
        """Last accepted `Stream-Seq`: a free string that must rise."""
        self.hole_count = hole_count
        """Offsets in [0, tail) that are holes; 0 spares every reader the look-up."""
        self.open_txns = open_txns
        """producer id -> first offset of its open txn here."""
        self.trim_marks = trim_marks
        """Flat (floor, time ns) pairs, oldest first: when each stretch was removed, for the dedupe floor."""
        self.pins = pins
        """Pinned cursors and their frontiers: retention never passes them unless told."""
        self.topic = topic
        """The name of its topic, for listings: rows that hang on a stream know its id alone."""
        self.stored_bytes = stored_bytes
        """Bytes of all batches that were ever appended."""
        self.byte_marks = byte_marks
        """Flat (offset, bytes of all batches below it), rising, at most BYTE_MARKS_MAX pairs."""
        self.subjects_next = subjects_next
        """Up to where the subjects are indexed (`core.subjects`); -1 if they are not."""

    def fields(self) -> tuple[Any, ...]:
        return (
            self.stream_id,
            self.topic_id,
            self.partition,
            self.config,
            self.tail,
            self.floor,
            self.closed,
            self.deleted_ns,
            self.shard,
            self.time_ns,
            self.order_key,
            self.hole_count,
            self.open_txns,
            self.trim_marks,
            self.pins,
            self.topic,
            self.stored_bytes,
            self.byte_marks,
            self.subjects_next,
        )

    def add_bytes(self, size: int) -> None:
        """A batch of this size was appended; the tail is behind it. Every MiB there is a mark; of too many, every
        second one goes."""
        before = self.stored_bytes
        after = self.stored_bytes = before + size
        if before >> BYTE_MARK_BITS == after >> BYTE_MARK_BITS:
            return
        marks = self.byte_marks
        if marks is None:
            marks = self.byte_marks = []
        marks.append(self.tail)
        marks.append(after)
        if len(marks) > 2 * BYTE_MARKS_MAX:
            thinned: list[int] = []
            for at in range(2, len(marks), 4):
                thinned.append(marks[at])
                thinned.append(marks[at + 1])
            self.byte_marks = thinned

    def bytes_below(self, offset: int) -> int:
        """Bytes of the batches below an offset, estimated between two marks by the share of the offsets."""
        low_offset = low_bytes = 0
        marks = self.byte_marks or []
        for at in range(0, len(marks), 2):
            if marks[at] > offset:
                return low_bytes + (marks[at + 1] - low_bytes) * (offset - low_offset) // (marks[at] - low_offset)
            low_offset, low_bytes = marks[at], marks[at + 1]
        if offset >= self.tail:
            return self.stored_bytes
        return low_bytes + (self.stored_bytes - low_bytes) * (offset - low_offset) // (self.tail - low_offset)

    @property
    def live_bytes(self) -> int:
        """Bytes of the batches from the floor on, as `bytes_below` estimates them."""
        return self.stored_bytes - self.bytes_below(self.floor)

    @property
    def stable(self) -> int:
        """Nothing open lies below this offset."""
        return min(self.open_txns.values()) if self.open_txns else self.tail


Headers = Sequence[tuple[str, bytes | None]]
"""Those of one record."""


@mypyc_attr(acyclic=True)
class Columns(Flat):
    """The command to append values to one stream: all that one turn of a face brings for it. A column has one element
    per value, and is None where no value has anything to say.

    Each value stands or falls alone, in their order, as if it had come in a command of its own. With `together` all of
    them are written or none: then claims, expected tails and order keys have one element, which is about the whole; so
    have ids and digests, or one per value. What is the same for all values stands once.
    """

    __slots__ = (
        "batch_digest",
        "batch_id",
        "batch_scope",
        "claims",
        "close",
        "content_type",
        "digests",
        "expected_subjects",
        "expected_tails",
        "facts",
        "flaws",
        "headers",
        "keys",
        "message_ids",
        "order_keys",
        "partition",
        "timestamps_ms",
        "together",
        "topic",
        "values",
    )
    urgent: ClassVar[bool] = False

    def __init__(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        digests: Sequence[bytes] | None = None,
        claims: Sequence[ProducerClaim | None] | None = None,
        message_ids: Sequence[bytes] | None = None,
        content_type: str = "",
        together: bool = False,
        keys: Sequence[bytes | None] | None = None,
        headers: Sequence[Headers] | None = None,
        timestamps_ms: Sequence[int] | None = None,
        expected_tails: Sequence[int] | None = None,
        order_keys: Sequence[str] | None = None,
        close: bool = False,
        batch_id: str = "",
        batch_scope: str = "",
        batch_digest: bytes = b"",
        expected_subjects: Sequence[tuple[str, int] | None] | None = None,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.values = values
        self.digests = digests
        """Of the contents, for message ids; None: over the values alone. Empty where there is no id."""
        self.claims = claims
        self.message_ids = message_ids
        """Empty for a value without one."""
        self.content_type = content_type
        """What the face says the values are, having looked at them; empty if it has not looked."""
        self.together = together
        self.keys = keys
        self.headers = headers
        self.timestamps_ms = timestamps_ms
        """0: the time at which it is decided."""
        self.expected_tails = expected_tails
        """-1: none."""
        self.order_keys = order_keys
        """Empty for none."""
        self.close = close
        """Close the stream with the last value."""
        self.batch_id = batch_id
        """Of values that come together: a retry with an equal `batch_digest` gets the first outcome. Other content is a
        new batch."""
        self.batch_scope = batch_scope
        """Whose batch ids these are."""
        self.batch_digest = batch_digest
        self.expected_subjects = expected_subjects
        """(subject, its last offset, -1 for none) as it was before the command or, of values that stand alone, before
        the value; None: none. One element per value, also of values that come together."""
        self.facts: Any = None
        """Of a fact topic, what each value was found to be (`core.fact_columns`). Not part of what was asked."""
        self.flaws: Sequence[str] | None = None
        """What is wrong with each record itself, where somebody has looked already; empty if nothing is."""

    def fields(self) -> tuple[Any, ...]:
        return (
            self.topic,
            self.partition,
            self.values,
            self.digests,
            self.claims,
            self.message_ids,
            self.content_type,
            self.together,
            self.keys,
            self.headers,
            self.timestamps_ms,
            self.expected_tails,
            self.order_keys,
            self.close,
            self.batch_id,
            self.batch_scope,
            self.batch_digest,
            self.expected_subjects,
        )

    @property
    def claim(self) -> ProducerClaim | None:
        """The claim of a command that has one for all that it brings."""
        return None if self.claims is None else self.claims[0]


def one_value(
    topic: str,
    partition: int,
    value: bytes,
    digest: bytes = b"",
    claim: ProducerClaim | None = None,
    message_id: bytes = b"",
    content_type: str = "",
) -> Columns:
    """Columns of one value. The digest belongs to its id."""
    claims = None if claim is None else (claim,)
    if not message_id:
        return Columns(topic, partition, (value,), None, claims, None, content_type)
    return Columns(topic, partition, (value,), (digest,), claims, (message_id,), content_type)


@mypyc_attr(acyclic=True)
class Appended(Flat):
    """The entry that says that a batch took the offsets [first, first + count) of a stream."""

    __slots__ = (
        "batch",
        "batch_at",
        "claim",
        "claims",
        "count",
        "epoch",
        "first",
        "flags",
        "ids",
        "order_key",
        "stream_id",
        "time_ns",
        "txn_id",
    )
    tag: ClassVar[int] = 1

    def __init__(
        self,
        stream_id: int,
        first: int,
        count: int,
        batch: bytes,
        time_ns: int,
        flags: int = 0,
        claim: ProducerClaim | None = None,
        epoch: int = -1,
        ids: bytes = b"",
        order_key: str = "",
        txn_id: str = "",
        batch_at: int = -1,
        claims: tuple[tuple[int, int, ProducerClaim], ...] = (),
    ) -> None:
        self.stream_id = stream_id
        self.first = first
        self.count = count
        self.batch = batch
        self.time_ns = time_ns
        self.flags = flags
        """Those of `core.entry`: CONTROL and the others."""
        self.claim = claim
        self.epoch = epoch
        """The epoch the claim was accepted under: the claim itself may have left it to the server."""
        self.ids = ids
        self.order_key = order_key
        self.txn_id = txn_id
        self.batch_at = batch_at
        """Where the batch begins in the encoded entry; set by the codec, never stored."""
        self.claims = claims
        """With MANY_CLAIMS: (record number, epoch accepted under, claim), each of one record, in their order. None of
        them starts anew a row that was forgotten."""

    def fields(self) -> tuple[Any, ...]:
        return (
            self.stream_id,
            self.first,
            self.count,
            self.batch,
            self.time_ns,
            self.flags,
            self.claim,
            self.epoch,
            self.ids,
            self.order_key,
            self.txn_id,
            self.batch_at,
            self.claims,
        )


@mypyc_attr(acyclic=True)
class Confirmed(Flat):
    """The answer that the records are at [first, next) of the stream, on disk by the time this is delivered.

    Of values that stand alone, those that are not among the `exceptions` are there, in their order.
    """

    __slots__ = (
        "closed",
        "duplicate",
        "epoch",
        "exceptions",
        "first",
        "gone",
        "next",
        "sequence",
        "stream_id",
        "time_ns",
    )

    def __init__(
        self,
        stream_id: int,
        first: int,
        next: int,  # noqa: A002 - as everywhere: ranges are first and next
        time_ns: int = 0,
        duplicate: bool = False,
        gone: bool = False,
        epoch: int = -1,
        sequence: int = -1,
        closed: bool = False,
        exceptions: dict[int, Any] | None = None,
    ) -> None:
        self.stream_id = stream_id
        self.first = first
        self.next = next
        """-1 in both: a duplicate so old that its offsets are no longer remembered."""
        self.time_ns = time_ns
        self.duplicate = duplicate
        self.gone = gone
        """The record was removed since; its id is still remembered."""
        self.epoch = epoch
        self.sequence = sequence
        """Highest sequence accepted from this producer; -1 without a producer claim."""
        self.closed = closed
        self.exceptions = exceptions
        """Number of the value → its own answer, where several values were sent and this one was refused, is a duplicate
        or was accepted under an epoch that its claim did not name."""

    def fields(self) -> tuple[Any, ...]:
        return (
            self.stream_id,
            self.first,
            self.next,
            self.time_ns,
            self.duplicate,
            self.gone,
            self.epoch,
            self.sequence,
            self.closed,
            self.exceptions,
        )
