"""A named import: lines whose numbers are the producer's sequence, so that a run that was cut off can be continued.

The producer's sequence is the number of the last line of each batch (`Producer-Mode: rising`). What the server has
stored is therefore known by one number, and a continued run begins behind it. One batch is under way at a time: with
several, a later one could be stored while an earlier one was refused, and the number would hide the difference.

A continued run stays in the epoch, because a new one would forget what the old one has stored: 1. The new run asks, and
line 2 is the last. 2. A batch of the run that hung, lines 3 to 5, arrives after all. 3. The new run writes lines 3 to 5
in an epoch that knows nothing of them: they are there twice.

The number of the last line is not enough either. If the file has grown meanwhile, the new run's batch is lines 3 to 8,
and 8 is higher than 5. So every batch has a message id too, made of the line it begins with: what begins there was
stored once. A batch that is the same is then a duplicate, another one is refused. Two runs of the same input cut the
same batches (`lines.py`), so each is a duplicate for the other.

A name belongs to one input. If another input came under the same name, the run would skip as many of its first lines as
the first input had stored, and lose them. So the last record of every batch has a header with a digest of all that the
import has stored up to there, and the lines that a run skips are compared with the last digest (`checked`). The records
of the last batch are compared too: they show which line differs, and imports that began before there was a digest have
nothing else.
Blank lines that are left out are no records, and not in it. Nor is a header part of what a message id stands for: a
batch that is sent again stays a duplicate.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from oncelog.cli.lines import Batch
from oncelog.cli.live_check import Producer, shaped
from oncelog.cli.remote import Remote
from oncelog.client.errors import NotFound, OffsetGone
from oncelog.client.packing import now_ms, records_of
from oncelog.client.wire import BATCHES, name_path, topic_path
from oncelog.core import batch as codec

EPOCH_FIRST = 0

DIGEST_HEADER: Final = "oncelog.import"
DIGEST_BYTES: Final = 16


class Progress(NamedTuple):
    """How far an import has come before."""

    epoch: int
    """Of the run before, and of this one."""
    last_line: int
    """Number of the last line that is stored; -1 for none."""
    first: int = -1
    next: int = -1
    """Where the batch lies that ends with it; -1 if that is not known."""


class OtherInput(Exception):
    """The lines that an import has stored are not those of this input: says how that is seen."""


class LastBatch(NamedTuple):
    """What the last batch of an import holds, as far as it is still there."""

    values: dict[int, bytes | None]
    """By offset."""
    digest: bytes | None
    """Of all records up to its end; None if it has none, or its last record is gone."""


class Digest:
    """Of all records of an import, from the first one on."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=DIGEST_BYTES)

    def add(self, line: bytes) -> None:
        """With its length before it: lines that are cut elsewhere are others."""
        self._hash.update(b"%d:%b" % (len(line), line))

    def value(self) -> bytes:
        """Of what was added by now."""
        return self._hash.digest()


class Stored(NamedTuple):
    """One batch that is on the server's disk."""

    last_line: int
    records: int
    first: int
    """-1 if it was stored by another run so long ago that its place is forgotten."""
    next: int
    duplicate: bool


def progress_of(log: Remote, topic: str, partition: int, name: str) -> Progress:
    """What the server knows of the import."""
    path = f"/v1/producers/{topic_path(topic)}/{name_path(name)}"
    try:
        known = shaped(log.get(path, {"partition": partition, "scope": "http"}), Producer)
    except NotFound as missing:
        if missing.code == "topic_missing":
            raise
        return Progress(EPOCH_FIRST, -1)
    return Progress(known.epoch, known.last_sequence, known.first, known.next)


def last_batch(log: Remote, topic: str, partition: int, known: Progress) -> LastBatch:
    """What there is to compare with."""
    values: dict[int, bytes | None] = {}
    digest = None
    offset = known.first
    try:
        while 0 <= offset < known.next:
            page = log.raw(topic, partition, offset)
            for record in records_of(page.body, offset):
                values[record.offset] = record.value
                if record.offset == known.next - 1:
                    digest = dict(record.headers).get(DIGEST_HEADER)
            if page.next_offset <= offset:
                break
            offset = page.next_offset
    except OffsetGone:
        return LastBatch({}, None)  # trimmed: there is nothing left to compare with
    return LastBatch(values, digest)


def checked(
    lines: Iterable[bytes], known: Progress, last: LastBatch, digest: Digest, *, skip_blank: bool
) -> Iterator[bytes]:
    """The same lines; those that are passed over are added to `digest`. Raises OtherInput before the first new one if
    they are not those that are stored."""
    passed: deque[tuple[int, bytes]] = deque(maxlen=max(0, known.next - known.first))
    for number, line in enumerate(lines):
        if number <= known.last_line and not (skip_blank and not line.strip()):
            passed.append((number, line))
            digest.add(line)
        if number == known.last_line:
            for offset, (stored_number, stored_line) in zip(
                range(known.next - len(passed), known.next), passed, strict=True
            ):
                if last.values.get(offset, stored_line) != stored_line:
                    raise OtherInput(f"line {stored_number + 1:,} is not the one that this import has stored")
            if last.digest is not None and last.digest != digest.value():
                raise OtherInput(f"the first {number + 1:,} lines are not those that this import has stored")
        yield line


class Import:
    """The writing half of an import."""

    def __init__(
        self, log: Remote, topic: str, partition: int, name: str, known: Progress, key: bytes | None, digest: Digest
    ) -> None:
        self._log = log
        self._topic = topic
        self._partition = partition
        self._key = key
        self._digest = digest
        """Of what `known` is about; then of all that is stored."""
        self._last_line = known.last_line
        # A digest, since names may be as long as an id may be; with the topic, since an id zone may span several.
        self._batch_id = hashlib.blake2b(msgspec.json.encode([topic, partition, name]), digest_size=16).hexdigest()
        self._claim: dict[str, str | int] = {
            "Content-Type": BATCHES,
            "Producer-Id": name,
            "Producer-Epoch": known.epoch,
            "Producer-Mode": "rising",
        }

    def store(self, batches: Iterable[Batch], stored: Callable[[Stored], None]) -> None:
        """Writes one batch after the other, and tells of each when it is on disk."""
        for batch in batches:
            message_id = f"import-{self._batch_id}-{self._last_line + 1}"
            self._last_line = batch.last_line
            headers = self._claim | {"Producer-Seq": batch.last_line, "Stream-Message-Id": message_id}
            for value in batch.values:
                self._digest.add(value)
            body = encoded(batch.values, self._key, ((DIGEST_HEADER, self._digest.value()),))
            answer = self._log.append(self._topic, self._partition, headers, body)
            next_ = answer.number("stream-next-offset")
            count = len(batch.values)
            duplicate = answer.status == 204 or answer.flag("stream-duplicate")
            stored(Stored(batch.last_line, count, next_ - count if next_ >= 0 else -1, next_, duplicate))


def encoded(values: Sequence[bytes], key: bytes | None, last_headers: Sequence[tuple[str, bytes | None]] = ()) -> bytes:
    """One record batch; the headers are its last record's."""
    time_ms = now_ms()
    if key is None and not last_headers:
        return codec.encode_values(values, time_ms)
    last = len(values) - 1
    return codec.encode(
        [(number, time_ms, key, value, last_headers if number == last else ()) for number, value in enumerate(values)]
    )
