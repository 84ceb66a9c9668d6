"""A producer's own account of what it sent: what `audit` compares the log with.

One file per producer, one JSON object per line:

    {"state":"sent","writer":"shop-1","face":"http","topic":"orders","id":"o-17","time_ms":…,
     "hash":"<sha256 of the value>","partition":0,"order":42,"commit":"c-9"}
    {"state":"confirmed","writer":"shop-1","face":"http","topic":"orders","id":"o-17","time_ms":…,
     "partition":0,"offset":1203}
    {"state":"refused", …}

`id` is the record's identity, and the record must carry it: `audit` finds it in the log by an expression, by default
the field `id` of the JSON value. `order` rises with every record of a writer; records of one writer must stand in a
partition in that order. Records with one `commit` must be in the log together or not at all. `partition` is -1 where
the producer does not know it, `offset` -1 where the server did not tell.

The rule that makes a killed producer's ledger usable: `sent` is on disk before the record leaves, and `confirmed` is
written after the answer came. So a record that is `sent` and not settled may be in the log, at most once; one that
is in the log and in no ledger was written by nobody. A line that the kill cut off is the last one, and is left out.
"""

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Literal

import msgspec

State = Literal["sent", "confirmed", "refused"]

SCHEMA: Final = (
    "state string, writer string, face string, topic string, id string, time_ms bigint, hash string, partition int, "
    "`order` bigint, `commit` string, offset bigint"
)
"""A line as Spark reads it."""


class Line(msgspec.Struct, omit_defaults=True):
    """One line."""

    state: State
    writer: str
    face: str
    topic: str
    id: str
    time_ms: int
    hash: str = ""
    partition: int = -1
    order: int = -1
    commit: str = ""
    offset: int = -1


def hash_of(value: bytes) -> str:
    """As Spark's `sha2(value, 256)`."""
    return hashlib.sha256(value).hexdigest()


class Ledger:
    """Writes lines. Nothing counts before `sync`, which the producer calls before it sends and after it was answered.

    A producer that starts again opens the same file and goes on. Not for several threads.
    """

    def __init__(self, path: Path, *, writer: str, face: str = "http") -> None:
        self.path = path
        self.writer = writer
        self.face = face
        self._lines: list[bytes] = []
        self._encode = msgspec.json.Encoder().encode
        # Rises over restarts as well: an order that began anew would call every record of the second run misplaced.
        self._order = time.time_ns() // 1_000
        self._file = path.open("ab")
        if self._file.tell() and not _ends_with_newline(path):
            # The run before was killed while it wrote: its piece of a line must not swallow our first one.
            self._file.write(b"\n")

    def sent(
        self, topic: str, record_id: str, value: bytes, *, partition: int = -1, commit: str = "", ordered: bool = True
    ) -> None:
        """About to be sent, perhaps not for the first time. `ordered=False` for one whose place nobody promises."""
        self._order += 1
        line = Line("sent", self.writer, self.face, topic, record_id, _now_ms(), hash_of(value), partition)
        line.order = self._order if ordered else -1
        line.commit = commit
        self._lines.append(self._encode(line))

    def confirmed(self, topic: str, record_id: str, offset: int = -1, *, partition: int = -1) -> None:
        """The server said that it is on disk; also that it was there before."""
        line = Line(
            "confirmed", self.writer, self.face, topic, record_id, _now_ms(), partition=partition, offset=offset
        )
        self._lines.append(self._encode(line))

    def refused(self, topic: str, record_id: str, value: bytes) -> None:
        """The server said no, and no attempt before can have written this content."""
        self._lines.append(
            self._encode(Line("refused", self.writer, self.face, topic, record_id, _now_ms(), hash_of(value)))
        )

    def sync(self) -> None:
        """On disk, together."""
        if not self._lines:
            return
        self._file.write(b"".join(line + b"\n" for line in self._lines))
        self._lines.clear()
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Syncs first."""
        self.sync()
        self._file.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def lines_of(path: Path) -> Iterator[Line]:
    """Every line that is whole."""
    with path.open("rb") as file:
        for text in file:
            if text.endswith(b"\n") and text.strip():
                try:
                    yield msgspec.json.decode(text, type=Line)
                except msgspec.DecodeError:
                    continue  # cut off by a kill; what it was about had not left


def unsettled(path: Path) -> list[Line]:
    """Records that were sent and not settled, in their order: what a restarted producer sends again."""
    open_: dict[tuple[str, str], Line] = {}
    for line in lines_of(path):
        if line.state == "sent":
            open_.setdefault((line.topic, line.id), line)
        else:
            open_.pop((line.topic, line.id), None)
    return list(open_.values())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _ends_with_newline(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
