"""Subjects: rows that tell how often each key was written and where last, and expectations on them inside `decide`."""

import random
from typing import Any

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    AddToTxn,
    Append,
    BeginSubjects,
    Columns,
    Commit,
    CommitAppend,
    DeleteRecords,
    GetSubject,
    IndexSubjects,
    InitProducer,
    Trim,
)
from oncelog.core.outcome import (
    ClaimInvalid,
    CommitConfirmed,
    Confirmed,
    NotFound,
    OffsetAhead,
    Outcome,
    StreamDone,
    SubjectFound,
    SubjectMismatch,
    SubjectsBehind,
    TailMismatch,
    TooLarge,
    TopicMissing,
)
from oncelog.core.row_codec import decode_key, decode_row
from oncelog.core.rows import Subject, Table
from oncelog.core.subjects import NONE, RAW_SUBJECT, joined, rows_of, subject_of
from oncelog.testing.core_harness import CoreHarness, records, requests


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    harness.create("s")  # stream 2
    harness.create("t")  # stream 4
    begun = harness.run(BeginSubjects("s"))
    assert isinstance(begun, StreamDone)
    assert begun.subjects_next == 0
    return harness


def columns(log: CoreHarness, *keys: str, expected: list[tuple[str, int] | None] | None = None, **more: Any) -> Outcome:
    command = Columns("s", 0, [b"v"] * len(keys), keys=[key.encode() for key in keys], **more)
    command.expected_subjects = expected
    return log.run(command)


def batch_of(*keys: str | None) -> bytes:
    return codec.encode([(n, 1, None if key is None else key.encode(), b"v", ()) for n, key in enumerate(keys)])


def found(log: CoreHarness, subject: str) -> tuple[int, int, int] | None:
    outcome = log.run(GetSubject("s", 0, subject))
    if outcome == NotFound("subject"):
        return None
    assert isinstance(outcome, SubjectFound), outcome
    return outcome.count, outcome.first, outcome.last


def rows(log: CoreHarness) -> dict[str, tuple[int, int, int]]:
    found: dict[str, tuple[int, int, int]] = {}
    for key, data in log.rows.tables[Table.SUBJECT].items():
        row, name = decode_row(Table.SUBJECT, data), decode_key(Table.SUBJECT, key)
        assert isinstance(row, Subject)
        assert isinstance(name, tuple)
        found[str(name[1])] = (row.count, row.first, row.last)
    return found


# --- what a subject is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a", "a.b", "größe", "$KV.b.k", "x" * limits.SUBJECT_BYTES_MAX])
def test_key_that_is_a_literal_subject(key: str) -> None:
    assert subject_of(key.encode()) == key


@pytest.mark.parametrize("key", [None, b"", b"a b", b"a.*", b"a.>", b".a", b"a.", b"a..b", b"\xff", b"a\0", b"x" * 401])
def test_key_that_is_none(key: bytes | None) -> None:
    assert subject_of(key) == RAW_SUBJECT


# --- rows ----------------------------------------------------------------------------------------------------------


def test_every_road_moves_the_index_along(log: CoreHarness) -> None:
    columns(log, "a", "b", "a")
    log.run(Append("s", 0, batch_of("b", None), 2))
    columns(log, "c", "c", together=True)
    parts = [CommitAppend("s", 0, batch_of("a", "d"), 2, b"d" * 16), CommitAppend("s", 0, batch_of("d"), 1, b"e" * 16)]
    assert isinstance(log.run(Commit(parts)), CommitConfirmed)
    log.run(Columns("s", 0, [b"bare"]))
    assert rows(log) == {"a": (3, 0, 7), "b": (2, 1, 3), "c": (2, 5, 6), "d": (2, 8, 9), RAW_SUBJECT: (2, 4, 10)}
    assert found(log, "a") == (3, 0, 7)
    assert found(log, "nobody") is None
    log.replay_all()


def test_streams_that_nobody_asked_about_have_no_rows(log: CoreHarness) -> None:
    log.run(Columns("t", 0, [b"v"], keys=[b"a"]))
    assert rows(log) == {}
    assert log.run(GetSubject("t", 0, "a")) == NotFound("index of subjects")
    assert log.run(GetSubject("no", 0, "a")) == TopicMissing("no")


def test_duplicates_and_refused_values_are_not_counted(log: CoreHarness) -> None:
    claim = requests("http:p", 0)
    command = Columns("s", 0, [b"v", b"w"], None, [claim, requests("http:p", 7)], keys=[b"a", b"b"])
    log.run(command)
    log.run(command)
    assert rows(log) == {"a": (1, 0, 0)}


def test_large_values_count_too(log: CoreHarness) -> None:
    log.run(Columns("s", 0, [b"v", b"x" * 100_000, b"w"], keys=[b"a", b"b", b"a"]))
    assert rows(log) == {"a": (2, 0, 2), "b": (1, 1, 1)}
    log.replay_all()


def test_index_that_is_left_behind_is_caught_up_with(log: CoreHarness) -> None:
    """By a transaction, whose keys only count once it is committed."""
    columns(log, "a")
    assert log.run(InitProducer("x")).producer_id == 1  # type: ignore[union-attr]
    log.run(AddToTxn("x", 1, 0, [("s", 0)]))
    log.run(Append("s", 0, batch_of("b"), 1, claim=records(1, 0), txn_id="x"))
    columns(log, "c")
    assert rows(log) == {"a": (1, 0, 0)}
    assert columns(log, "d", expected=[("d", NONE)]) == SubjectsBehind(2, 1, 3)
    assert log.run(IndexSubjects("s", 0, 1, 3, [("b", 1, 1, 1)])) == OffsetAhead(2, 3, 1)
    log.run(Append("t", 0, batch_of("b"), 1))
    from oncelog.core.command import EndTxn

    log.run(EndTxn("x", 1, 0, True))
    assert log.run(IndexSubjects("s", 0, 0, 4, [])) == TailMismatch(2, 0, 1)
    caught = log.run(IndexSubjects("s", 0, 1, 4, [("b", 1, 1, 1), ("c", 1, 2, 2)]))
    assert isinstance(caught, StreamDone)
    assert caught.subjects_next == 4
    assert isinstance(columns(log, "d", expected=[("d", NONE)]), Confirmed)
    assert rows(log) == {"a": (1, 0, 0), "b": (1, 1, 1), "c": (1, 2, 2), "d": (1, 4, 4)}
    log.replay_all()


def test_stream_with_records_is_indexed_in_slices(log: CoreHarness) -> None:
    log.run(Append("t", 0, batch_of("a", "b", "a"), 3))
    assert isinstance(log.run(IndexSubjects("t", 0, 0, 1, [])), ClaimInvalid)
    log.run(BeginSubjects("t"))
    log.run(BeginSubjects("t"))
    assert not log.wrote()
    log.run(IndexSubjects("t", 0, 0, 2, [("a", 1, 0, 0), ("b", 1, 1, 1)]))
    log.run(IndexSubjects("t", 0, 2, 3, [("a", 1, 2, 2)]))
    log.run(Columns("t", 0, [b"v"], keys=[b"b"]))
    assert rows(log) == {"a": (2, 0, 2), "b": (2, 1, 3)}
    for bad in ([("a", 1, 0, 0)] * 2, [("a b", 1, 3, 3)], [("a", 1, 4, 4)], [("a", -1, 0, 0)]):
        assert isinstance(log.run(IndexSubjects("t", 0, 4, 4, bad)), ClaimInvalid)


def test_deleted_and_trimmed_records(log: CoreHarness) -> None:
    columns(log, "a", "b", "a", "c")
    log.run(DeleteRecords("s", 0, [2, 3], [("a", 1, 0, 0)]))
    assert found(log, "a") == (1, 0, 0)
    log.run(DeleteRecords("s", 0, [3, 4], [("c", 0, 0, 0)]))
    assert found(log, "c") is None
    log.run(Trim("s", 0, 1))
    assert found(log, "a") is None, "its last record lies below the floor"
    assert found(log, "b") == (1, 1, 1)
    assert isinstance(columns(log, "a", expected=[("a", NONE)]), Confirmed)
    assert isinstance(log.run(DeleteRecords("t", 0, [0, 0], [("a", 1, 0, 0)])), ClaimInvalid)
    log.replay_all()


# --- expectations --------------------------------------------------------------------------------------------------


def test_expectation_holds_or_names_the_last_offset(log: CoreHarness) -> None:
    columns(log, "a", "b", "a")
    assert columns(log, "a", expected=[("a", 1)]) == SubjectMismatch("a", 1, 2)
    assert columns(log, "c", expected=[("c", 0)]) == SubjectMismatch("c", 0, NONE)
    assert not log.wrote()
    assert isinstance(columns(log, "a", expected=[("a", 2)]), Confirmed)
    assert isinstance(columns(log, "x", expected=[("a", 3)]), Confirmed), "also of another subject"


def test_values_that_stand_alone_see_those_before_them(log: CoreHarness) -> None:
    outcome = columns(log, "a", "a", "a", "b", expected=[("a", NONE), ("a", NONE), ("a", 0), None])
    assert isinstance(outcome, Confirmed)
    assert outcome.exceptions == {1: SubjectMismatch("a", NONE, 0)}
    assert rows(log) == {"a": (2, 0, 1), "b": (1, 2, 2)}


def test_values_that_come_together_see_the_stream_before_them(log: CoreHarness) -> None:
    columns(log, "a")
    expected: list[tuple[str, int] | None] = [("a", 0), None, ("b", NONE)]
    assert isinstance(columns(log, "a", "a", "b", expected=expected, together=True), Confirmed)
    assert columns(log, "a", "a", "b", expected=expected, together=True) == SubjectMismatch("a", 0, 2)
    assert rows(log) == {"a": (3, 0, 2), "b": (1, 3, 3)}


def test_retry_of_a_success_is_a_success_whatever_its_expectation_says_now(log: CoreHarness) -> None:
    first = columns(log, "a", expected=[("a", NONE)], message_ids=[b"m"])
    again = columns(log, "a", expected=[("a", NONE)], message_ids=[b"m"])
    assert isinstance(first, Confirmed)
    assert isinstance(again, Confirmed)
    assert (again.duplicate, again.first) == (True, first.first)


def test_expectation_without_an_index_cannot_be_judged(log: CoreHarness) -> None:
    command = Columns("t", 0, [b"v"], keys=[b"a"], expected_subjects=[("a", NONE)])
    log.run(Columns("t", 0, [b"v"]))
    assert log.run(command) == SubjectsBehind(4, 0, 1)


@pytest.mark.from_source
def test_subjects_of_one_write_have_a_bound(log: CoreHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SUBJECTS_PER_ENTRY_MAX", 2)
    assert isinstance(columns(log, "a", "b", "a", "b"), Confirmed)
    for outcome in (
        columns(log, "a", "b", "c"),
        columns(log, "a", "b", "c", together=True),
        log.run(Append("s", 0, batch_of("a", "b", "c"), 3)),
        log.run(Commit([CommitAppend("s", 0, batch_of("a", "b"), 2), CommitAppend("s", 0, batch_of("c"), 1)])),
    ):
        assert outcome == TooLarge("subjects in one write", 2, 3)


def test_rows_of_stretches_join() -> None:
    keys = [b"a", b"b", b"a", None, b"b"]
    for cut in range(len(keys) + 1):
        parts = [rows_of(keys[:cut], 10), rows_of(keys[cut:], 10 + cut)]
        assert sorted(joined(parts)) == sorted(rows_of(keys, 10))


@pytest.mark.parametrize("seed", range(25))
def test_rows_are_what_a_look_at_every_record_finds(seed: int) -> None:
    chance = random.Random(seed)
    log = CoreHarness()
    log.keep_loaded = bool(seed % 2)
    log.create("s")
    log.run(BeginSubjects("s"))
    keys: list[str] = []

    def last(subject: str) -> int:
        return max((offset for offset, key in enumerate(keys) if key == subject), default=NONE)

    for _ in range(40):
        some = [chance.choice("abcd") for _ in range(chance.randint(1, 4))]
        road = chance.randrange(4)
        if road == 0:
            assert isinstance(log.run(Append("s", 0, batch_of(*some), len(some))), Confirmed)
            keys += some
        elif road == 1:
            assert isinstance(log.run(Commit([CommitAppend("s", 0, batch_of(*some), len(some))])), CommitConfirmed)
            keys += some
        else:
            expected: list[tuple[str, int] | None] = [
                None if chance.random() < 0.5 else (key, last(key) + (chance.random() < 0.3)) for key in some
            ]
            together = road == 3
            outcome = columns(log, *some, expected=expected, together=together)
            before = {key: last(key) for key in "abcd"}
            fails: list[int] = []
            for number, (key, one) in enumerate(zip(some, expected, strict=True)):
                now = before[key] if together else last(key)
                if one is not None and one[1] != now:
                    fails.append(number)
                elif not together:
                    keys.append(key)
            if together and not fails:
                keys += some
            if together or len(some) == 1:
                assert isinstance(outcome, SubjectMismatch if fails else Confirmed)
            else:
                assert isinstance(outcome, Confirmed)
                assert sorted(outcome.exceptions or {}) == fails
    expected_rows = {key: (keys.count(key), keys.index(key), last(key)) for key in "abcd" if key in keys}
    assert rows(log) == expected_rows
    log.replay_all()
