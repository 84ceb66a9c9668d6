"""Rows of files into a topic, in the executors: a file is a producer, the number of a row is its sequence.

A task gets whole files, so that it can count. For each partition of the topic a file has one lane, whose producer
sequence is the number of the last row of each batch (`Producer-Mode: rising`: it may leave numbers out). What is
stored is therefore known by one number, and a run that was cut off goes on behind it. One batch of a lane is under way
at a time: with several, a later one could be stored while an earlier one was refused, and the number would hide it.

Every batch has a message id too, made of the row it begins with and of a digest of all rows of the lane before it:

1. Two runs at once, or one that hung and wakes up, cut the same batches at the same rows. Each is a duplicate for the
   other, also if the file has grown meanwhile: what begins at one row is stored once.
2. A file that was changed has another digest. A run that goes on first shows the server the batch stored last again: if
   its id is unknown or its content differs, the file is not the one that was stored, and it is refused.

Which lane a row belongs to follows from the number of partitions when the file was begun. It is part of the producer's
name, so a topic that has grown meanwhile does not send rows a second way.
"""

import hashlib
import json
import posixpath
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from xxhash import xxh3_128

from oncelog.client import Conflict
from oncelog.client.dialect import confirmed
from oncelog.client.packing import now_ms
from oncelog.client.wire import BATCHES, Answer, topic_path
from oncelog.core import batch as codec
from oncelog.limits import KIB
from oncelog.pipelines.bad_lines import BAD_HEADER, BLANK, FILE_HEADER, KINDS, LINE_HEADER, BadLines
from oncelog.pipelines.lake_place import NewFile
from oncelog.spark.link import Link
from oncelog.spark.options import REQUEST_TIMEOUT_MS_DEFAULT
from oncelog.spark.routing import hashed_partitions

BATCH_ROWS_MAX: Final = 5_000
BATCH_BYTES_MAX: Final = 512 * KIB
"""Large enough that a round trip costs little, small enough that a run that was cut off repeats little."""

EPOCH: Final = 0
"""Every run of a file stays in it: a new epoch would forget what the old one has stored."""

INPUT: Final = "file string, key binary, value binary, bad string"
"""The columns that a task gets. `bad` is null, or one of `bad_lines.KINDS`, or `bad_lines.BLANK`."""

TOLD: Final = "file string, records bigint, duplicates bigint, bad string, dead_file string, dead_bytes bigint"
"""What it hands back, one row for each file. `bad` is a JSON object: kind → lines."""

_TOLD_ARROW: Final = pa.schema(
    [
        ("file", pa.string()),
        ("records", pa.int64()),
        ("duplicates", pa.int64()),
        ("bad", pa.string()),
        ("dead_file", pa.string()),
        ("dead_bytes", pa.int64()),
    ]
)

SHOWN_BYTES: Final = 80
"""Of a bad line, in an error message."""

ONLY_BAD: Final = "/bad"
"""Behind the producer's name where a file's good rows are stored by another way, under their own ids."""


class FileChanged(Exception):
    """The file is not the one that was stored under this name."""


class LineBad(Exception):
    """A line does not fit, and the run is to fail at such a line."""


class Row(NamedTuple):
    """One row of a file."""

    number: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Destination(msgspec.Struct, frozen=True):
    """Where rows go, and under which name."""

    url: str
    topic: str
    partitions: int
    producer: str
    bad: BadLines = BadLines()
    dead_partitions: int = 0
    """Of the dead-letter topic."""
    only_bad: bool = False
    """Good rows are stored by somebody else: here they are only counted through."""


def store_rows(batches: Iterator[Any], destination: Destination) -> Iterator[Any]:
    """The task: rows of `INPUT`, each file's in its order and in one piece."""
    with Link(destination.url, REQUEST_TIMEOUT_MS_DEFAULT) as link:
        file: _File | None = None
        try:
            for batch in batches:
                for name, rows in _runs(batch):
                    if file is None or file.name != name:
                        if file is not None:
                            yield file.finish()
                        file = _File(link, destination, name)
                    file.add(rows)
            if file is not None:
                yield file.finish()
                file = None
        finally:
            if file is not None:
                file.abandon()


def _runs(batch: Any) -> Iterator[tuple[str, Any]]:
    """The batch, cut where the file changes."""
    if batch.num_rows == 0:
        return
    column = batch.column("file")
    ends = pc.run_end_encode(column).run_ends.to_pylist()
    first = 0
    for end in ends:
        yield column[first].as_py(), batch.slice(first, end - first)
        first = end


def producer_name(producer: str, file: str) -> str:
    """A file's producer without its number of partitions. A digest, since a path may be as long as it likes."""
    return f"{producer}/{_digest(file)}/"


class _File:
    """One file being stored."""

    def __init__(self, link: Link, destination: Destination, name: str) -> None:
        self.name = name
        self._rows = 0
        self._bad_lines = destination.bad
        self._only_bad = destination.only_bad
        self._bad: Counter[str] = Counter()
        producer = destination.producer + (ONLY_BAD if destination.only_bad else "")
        self._lanes = _Lanes(link, destination.topic, destination.partitions, producer, name)
        self._dead: _Lanes | None = None
        if destination.bad.topic:
            self._dead = _Lanes(link, destination.bad.topic, destination.dead_partitions, producer, name)
        self._dead_file: NewFile | None = None
        self._dead_name = f"{posixpath.basename(name)}-{_digest(f'{producer}/{name}')}.bad"

    def add(self, batch: Any) -> None:
        """The next rows."""
        keys = batch.column("key").cast(pa.binary())
        partitions = self._lanes.partitions_of(keys)
        rows = zip(
            partitions,
            keys.to_pylist(),
            batch.column("value").to_pylist(),
            batch.column("bad").to_pylist(),
            strict=True,
        )
        for partition, key, value, bad in rows:
            number = self._rows
            self._rows += 1
            if bad is not None:
                self._add_bad(number, partition, key, value, bad)
            elif not self._only_bad:
                self._lanes.add(partition, Row(number, key, value))

    def _add_bad(self, number: int, partition: int, key: bytes | None, line: bytes, kind: str) -> None:
        self._bad[kind] += 1
        if kind == BLANK:
            return
        headers = ((BAD_HEADER, kind.encode()),)
        if self._bad_lines.what == "fail":
            raise LineBad(
                f"line {number + 1:,} of {self.name} {KINDS[kind]}: {line[:SHOWN_BYTES]!r}. Lines before it may be "
                "stored and are not stored again. Mend the line; or let bad lines be kept (--bad keep), or put them "
                "elsewhere (--bad dead-letter:TOPIC or dead-letter:FOLDER)"
            )
        if self._bad_lines.what == "keep":
            self._lanes.add(partition, Row(number, key, line, headers))
        elif self._dead is not None:
            place = ((FILE_HEADER, self.name.encode()), (LINE_HEADER, b"%d" % (number + 1)))
            self._dead.add(-1, Row(number, key, line, headers + place))
        else:
            assert self._bad_lines.place is not None, "a dead letter is a topic or a folder"
            if self._dead_file is None:
                self._dead_file = self._bad_lines.place.replacing_file(self._dead_name)
            self._dead_file.write(line + b"\n")

    def abandon(self) -> None:
        """The task failed: what it stored stays, and no file of bad lines takes the place of an older one."""
        if self._dead_file is not None:
            self._dead_file.abandon()

    def finish(self) -> Any:
        """All rows are on disk. What was done, for the driver."""
        dead_bytes = 0
        if self._dead_file is not None:
            dead_bytes = self._dead_file.tell()
            self._dead_file.close()
        if self._dead is not None:
            self._dead.finish()
        self._lanes.finish()
        told = {
            "file": self.name,
            "records": self._lanes.records,
            "duplicates": self._lanes.duplicates,
            "bad": json.dumps(self._bad),
            "dead_file": self._dead_name if self._dead_file is not None else None,
            "dead_bytes": dead_bytes,
        }
        return pa.RecordBatch.from_pylist([told], schema=_TOLD_ARROW)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=10).hexdigest()


class _Lanes:
    """All lanes of one file in one topic."""

    def __init__(self, link: Link, topic: str, partitions: int, producer: str, name: str) -> None:
        prefix = producer_name(producer, name)
        known = _known(link, topic, partitions, prefix)
        begun_with = {int(info.name.removeprefix(prefix)) for info in known.values()}
        if len(begun_with) > 1:
            raise FileChanged(f"{name} was begun with {sorted(begun_with)} partitions: two runs started at once")
        self._partitions = begun_with.pop() if begun_with else partitions
        self._home = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) % self._partitions
        self._lanes = [
            _Lane(link, topic, partition, f"{prefix}{self._partitions}", name, known.get(partition))
            for partition in range(self._partitions)
        ]

    def partitions_of(self, keys: Any) -> list[int]:
        """The partition of each key; -1 where there is none."""
        found: list[int] = hashed_partitions(keys, self._partitions).tolist()
        return found

    def add(self, partition: int, row: Row) -> None:
        """The next row. One without a partition goes to the file's own."""
        self._lanes[partition if partition >= 0 else self._home].add(row)

    def finish(self) -> None:
        """The file is at its end."""
        for lane in self._lanes:
            lane.finish()

    @property
    def records(self) -> int:
        return sum(lane.records for lane in self._lanes)

    @property
    def duplicates(self) -> int:
        return sum(lane.duplicates for lane in self._lanes)


def _known(link: Link, topic: str, partitions: int, prefix: str) -> dict[int, Any]:
    """Partition → what the server remembers of this file there."""
    found = {}
    for partition in range(partitions):
        page = link.producers(topic, partition=partition, prefix=f"http:{prefix}")
        for info in page.producers:
            found[partition] = info
    return found


class _Lane:
    """Rows of one file that go to one partition."""

    def __init__(self, link: Link, topic: str, partition: int, producer: str, file: str, known: Any | None) -> None:
        self.records = 0
        self.duplicates = 0
        self._link = link
        self._topic = topic
        self._partition = partition
        self._producer = producer
        self._file = file
        self._stored = known.last_sequence if known is not None else -1
        # The rows of the batch that was stored last, as far as the server still knows how many they were.
        self._last_count = known.next - known.first if known is not None and known.first >= 0 else 0
        self._last: deque[tuple[Row, str]] = deque(maxlen=max(1, self._last_count))
        self._checked = known is None
        self._digest = xxh3_128()
        self._rows: list[Row] = []
        self._size = 0
        self._before = self._digest.hexdigest()

    def add(self, row: Row) -> None:
        """The next row of this lane."""
        if row.number <= self._stored:
            self._last.append((row, self._digest.hexdigest()))
            self._count_in(row)
            self.duplicates += 1
            if row.number == self._stored:
                self._check()
            return
        if not self._checked:
            raise self._changed(f"its row {self._stored:,} is not where it was")
        size = len(row.value or b"") + len(row.key or b"")
        if self._rows and (self._size + size > BATCH_BYTES_MAX or len(self._rows) == BATCH_ROWS_MAX):
            self._send()
        if not self._rows:
            self._before = self._digest.hexdigest()
        self._rows.append(row)
        self._size += size
        self._count_in(row)

    def finish(self) -> None:
        """The file is at its end."""
        if not self._checked:
            raise self._changed(f"it ends before row {self._stored:,}, which is stored")
        if self._rows:
            self._send()

    def _count_in(self, row: Row) -> None:
        for piece in (row.key, row.value):
            self._digest.update(b"-" if piece is None else b"%d:" % len(piece))
            self._digest.update(piece or b"")

    def _send(self) -> None:
        answer = self._post(self._rows, self._before)
        if answer.status == 204 or answer.flag("stream-duplicate"):
            self.duplicates += len(self._rows)
        else:
            self.records += len(self._rows)
        self._rows, self._size = [], 0

    def _check(self) -> None:
        """Whether the rows that are stored are those of this file."""
        self._checked = True
        if not self._last_count or len(self._last) < self._last_count:
            return  # the server no longer knows the batch: nothing is left to compare with
        before = self._last[0][1]
        rows = [row for row, _ in self._last]
        if self._link.receipt(self._topic, self._id_of(rows[0], before), partition=self._partition) is None:
            raise self._changed(f"rows before {rows[0].number:,} are not those that were stored")
        self._post(rows, before)
        self._last.clear()

    def _post(self, rows: list[Row], before: str) -> Answer:
        time_ms = now_ms()
        body = codec.encode([(number, time_ms, row.key, row.value, row.headers) for number, row in enumerate(rows)])
        headers: dict[str, str | int] = {
            "Content-Type": BATCHES,
            "Producer-Id": self._producer,
            "Producer-Epoch": EPOCH,
            "Producer-Mode": "rising",
            "Producer-Seq": rows[-1].number,
            "Stream-Message-Id": self._id_of(rows[0], before),
        }
        try:
            path = f"/v1/stream/{topic_path(self._topic)}"
            return confirmed(self._link.call("POST", path, {"partition": self._partition}, headers=headers, body=body))
        except Conflict as error:
            if error.code in ("id_conflict", "sequence_conflict"):
                raise self._changed(str(error)) from error
            raise

    def _id_of(self, first: Row, before: str) -> str:
        # With the partition, since an id zone may span several streams.
        return f"{self._producer}/{self._partition}/{first.number}/{before}"

    def _changed(self, why: str) -> FileChanged:
        return FileChanged(
            f"{self._file} was changed since it was stored in {self._topic!r}: {why}. Nothing more of it was stored. "
            "A file may grow at its end, and its older lines must stay as they are: bring the old lines back, and put "
            "new ones behind them or into a file of their own. It also looks changed if the schema, the key, the value "
            "or what is done with bad lines is not what it was in the first run"
        )
