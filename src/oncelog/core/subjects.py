"""Subjects: how often each key of a stream was written, and where last; only for streams that somebody asked it of.

The subject of a record, without the prefix of its stream, is its key, if that is a literal subject; else `$raw`. A
stream whose subjects are indexed has a row per subject: count, first and last offset. The index covers [0,
`Stream.subjects_next`): an append whose keys are at hand moves it along in the same entry, and whatever else is written
(stages, transactions) leaves it behind, until somebody who has read those records brings their subjects
(`IndexSubjects`). An expectation on a subject can only be judged while the index reaches the tail.

A row whose last record lies below the floor stands for no record. Deleting single records leaves rows as they are,
unless the command says what they are then.
"""

from collections.abc import Iterable, Sized
from functools import lru_cache
from typing import Final

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import BeginSubjects, DeleteRecords, GetSubject, IndexSubjects
from oncelog.core.entry import Compound, Entry, SubjectsSet, SubjectsWritten
from oncelog.core.flat import Stream
from oncelog.core.outcome import (
    ClaimInvalid,
    NotFound,
    OffsetAhead,
    Outcome,
    Refusal,
    StreamDone,
    SubjectFound,
    SubjectMismatch,
    SubjectsBehind,
    TailMismatch,
    TooLarge,
    TopicMissing,
)
from oncelog.core.rows import Subject
from oncelog.core.state import State

Decision = tuple[Entry | None, Outcome]
SubjectRows = list[tuple[str, int, int, int]]
"""(subject, count, first offset, last offset), each subject once."""

RAW_SUBJECT: Final = "$raw"
"""Of every record whose key is no literal subject."""

NONE: Final = -1
"""As an expected last offset: the subject has no record."""

BATCHES_KEPT: Final = 16
"""Ready batches whose keys are kept: those of the command at hand."""

_KEY_BYTES_MAX: Final = limits.SUBJECT_BYTES_MAX
_FORBIDDEN: Final = frozenset(" \t\r\n\f\0*>")


def subject_of(key: bytes | None) -> str:
    """The subject of a record, without its stream's prefix."""
    if not key or len(key) > _KEY_BYTES_MAX:
        return RAW_SUBJECT
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return RAW_SUBJECT
    if any(mark in _FORBIDDEN for mark in text) or "" in text.split("."):
        return RAW_SUBJECT
    return text


def is_current(stream: Stream) -> bool:
    """Whether the index of subjects reaches the tail, so that an append moves it along."""
    return 0 <= stream.subjects_next == stream.tail


def rows_of(keys: Iterable[bytes | None], first: int) -> SubjectRows:
    """What records from `first` on add to the rows."""
    rows: dict[str, list[int]] = {}
    for offset, key in enumerate(keys, start=first):
        subject = subject_of(key)
        row = rows.get(subject)
        if row is None:
            rows[subject] = [1, offset, offset]
        else:
            row[0] += 1
            row[2] = offset
    return [(subject, count, low, high) for subject, (count, low, high) in rows.items()]


def joined(parts: Iterable[SubjectRows]) -> SubjectRows:
    """Rows of stretches that follow each other, as one."""
    rows: dict[str, tuple[int, int, int]] = {}
    for part in parts:
        for subject, count, first, last in part:
            known = rows.get(subject)
            rows[subject] = (count, first, last) if known is None else (known[0] + count, known[1], last)
    return [(subject, *row) for subject, row in rows.items()]


def too_many(rows: Sized) -> Refusal | None:
    """One entry tells of so many subjects at most."""
    if len(rows) > limits.SUBJECTS_PER_ENTRY_MAX:
        return TooLarge("subjects in one write", limits.SUBJECTS_PER_ENTRY_MAX, len(rows))
    return None


@lru_cache(maxsize=BATCHES_KEPT)
def keys_in(batch: bytes) -> tuple[bytes | None, ...]:
    """The keys of a ready batch, which `needs` and `decide` both ask for. Raises BatchInvalid."""
    return tuple(codec.decode_columns(batch)[2])


def written(state: State, stream: Stream, rows: SubjectRows, next_: int) -> SubjectsWritten:
    """The operation that moves the index along with an append. KeyError if a row is not loaded."""
    stream_id = stream.stream_id
    for row in rows:
        state.subjects[stream_id, row[0]]
    return SubjectsWritten(stream_id, stream.tail, next_, rows)


def last_of(stream: Stream, row: Subject | None) -> int:
    """The last offset of a subject; NONE if it has no record any more."""
    return NONE if row is None or row.last < stream.floor or not row.count else row.last


def mismatch(state: State, stream: Stream, subject: str, expected: int, seen: dict[str, int]) -> Refusal | None:
    """Whether an expectation fails. `seen` has the last offsets that the same command wrote."""
    if stream.subjects_next < stream.tail:
        return SubjectsBehind(stream.stream_id, max(stream.subjects_next, 0), stream.tail)
    last = seen[subject] if subject in seen else last_of(stream, state.subjects[stream.stream_id, subject])
    return None if last == expected else SubjectMismatch(subject, expected, last)


# --- commands ------------------------------------------------------------------------------------------------------


def _stands(stream: Stream, subjects_next: int) -> StreamDone:
    return StreamDone(
        stream.stream_id, stream.floor, stream.stable, stream.tail, stream.closed, subjects_next=subjects_next
    )


def decide_begin(state: State, command: BeginSubjects, now_ns: int) -> Decision:
    """Index the subjects of a stream from now on. What it holds already is brought by `IndexSubjects`."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    if stream.subjects_next >= 0:
        return None, _stands(stream, stream.subjects_next)
    return Compound(now_ns, [SubjectsWritten(stream.stream_id, stream.floor, stream.floor, [])]), _stands(
        stream, stream.floor
    )


def decide_index(state: State, command: IndexSubjects, now_ns: int) -> Decision:
    """The subjects of records that were written without telling them, from where the index ends."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    if stream.subjects_next < 0:
        return None, ClaimInvalid("the subjects of the stream are not indexed; begin that first")
    if command.first != stream.subjects_next:
        return None, TailMismatch(stream.stream_id, command.first, stream.subjects_next)
    if not command.first <= command.next <= stream.stable:
        return None, OffsetAhead(stream.stream_id, command.next, stream.stable)
    if (refusal := _rows_refused(command.subjects, command.first, command.next)) is not None:
        return None, refusal
    if command.first == command.next:
        return None, _stands(stream, stream.subjects_next)
    operation = SubjectsWritten(stream.stream_id, command.first, command.next, list(command.subjects))
    return Compound(now_ns, [operation]), _stands(stream, command.next)


def _rows_refused(rows: SubjectRows, first: int, next_: int) -> Refusal | None:
    if (refusal := too_many(rows)) is not None:
        return refusal
    if len({row[0] for row in rows}) < len(rows):
        return ClaimInvalid("one subject stands twice")
    for subject, count, low, high in rows:
        if subject_of(subject.encode("utf-8", "surrogatepass")) != subject:
            return ClaimInvalid(f"{ascii(subject)[:80]} is not a literal subject")
        if count < 0 or (count and not first <= low <= high < next_):
            return ClaimInvalid(f"the numbers of subject {subject[:80]!r} do not lie between {first} and {next_}")
    return None


def deleted(stream: Stream, command: DeleteRecords) -> tuple[SubjectsSet | None, Refusal | None]:
    """The rows as they are once the records are deleted, as the command says it."""
    if not command.subjects:
        return None, None
    if stream.subjects_next < 0:
        return None, ClaimInvalid("the subjects of the stream are not indexed")
    refusal = _rows_refused(command.subjects, 0, stream.stable)
    return (None if refusal is not None else SubjectsSet(stream.stream_id, list(command.subjects))), refusal


def decide_subject(state: State, command: GetSubject, _now_ns: int) -> Decision:
    """A subject's row."""
    stream = state.stream(command.topic, command.partition)
    if stream is None:
        return None, TopicMissing(command.topic, command.partition)
    if stream.subjects_next < 0:
        return None, NotFound("index of subjects")
    row = state.subjects[stream.stream_id, command.subject]
    if last_of(stream, row) == NONE or row is None:
        return None, NotFound("subject")
    return None, SubjectFound(row.count, row.first, row.last, stream.subjects_next)
