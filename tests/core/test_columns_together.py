"""Appends that come together share a batch, and nobody can tell from the answers."""

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import CloseStream, Columns, GetProducer, GetReceipt, Trim, one_value
from oncelog.core.entry import MANY_CLAIMS, Appended
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    Confirmed,
    ContentTypeMismatch,
    IdConflict,
    Outcome,
    ProducerFound,
    ReceiptFound,
    Refusal,
    SequenceConflict,
    SequenceGap,
    StreamClosedRefusal,
    TooLarge,
    TopicMissing,
)
from oncelog.core.rows import TopicConfig
from oncelog.core.state import State
from oncelog.errors import Corruption
from oncelog.storage.entry_check import EntryCheck
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.testing.core_harness import CoreHarness, requests


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    harness.create("t")
    return harness


def value(number: int, *, id_: bytes = b"", claim: ProducerClaim | None = None) -> Columns:
    content = b"value %d" % number
    return one_value("t", 0, content, content_digest(content), claim, id_)


def claimed(name: str, sequence: int, number: int = 0) -> Columns:
    content = b"value %d" % number
    return value(number, claim=requests(name, sequence, content=content))


def together(log: CoreHarness, *commands: Columns) -> tuple[list[Outcome], int]:
    """The answers, and how many entries it took."""
    before = log.state.entry_number
    return log.run_columns(list(commands)), log.state.entry_number - before


def offsets(outcomes: list[Outcome]) -> list[int]:
    return [outcome.first if isinstance(outcome, Confirmed) and not outcome.duplicate else -1 for outcome in outcomes]


def test_plain_records_are_one_entry_with_one_batch(log: CoreHarness) -> None:
    outcomes, entries = together(log, *map(value, range(5)))
    assert offsets(outcomes) == [0, 1, 2, 3, 4]
    assert entries == 1
    entry = log.last_entry
    assert isinstance(entry, Appended)
    assert (entry.first, entry.count, entry.flags, entry.claims, entry.ids) == (0, 5, 0, (), b"")
    assert codec.decode_values(entry.batch) == [b"value %d" % number for number in range(5)]
    assert codec.skim(entry.batch).base_timestamp == log.now_ns // 1_000_000
    log.replay_all()


def test_one_record_is_an_ordinary_append(log: CoreHarness) -> None:
    outcomes, entries = together(log, value(7, id_=b"m"))
    assert (offsets(outcomes), entries) == ([0], 1)
    assert isinstance(log.last_entry, Appended)
    assert log.last_entry.batch == codec.encode_one(b"value 7", log.now_ns // 1_000_000)


def test_claims_of_several_producers_share_an_entry_and_each_is_remembered(log: CoreHarness) -> None:
    """Also after a restart: each gets its own offset again, and its next sequence follows."""
    names = [f"http:p{number}" for number in range(4)]
    first, entries = together(log, *(claimed(name, 0, number) for number, name in enumerate(names)))
    assert offsets(first) == [0, 1, 2, 3]
    assert entries == 1
    second, entries = together(log, *(claimed(name, 1, number) for number, name in enumerate(names)))
    assert offsets(second) == [4, 5, 6, 7]
    assert entries == 1
    assert isinstance(log.last_entry, Appended)
    assert log.last_entry.flags == MANY_CLAIMS
    assert [(number, claim.name) for number, _, claim in log.last_entry.claims] == list(enumerate(names))
    log.restart()
    for number, name in enumerate(names):
        again = log.run(claimed(name, 1, number))
        assert isinstance(again, Confirmed)
        assert (again.first, again.next, again.duplicate, again.sequence) == (4 + number, 5 + number, True, 1)
        found = log.run(GetProducer("t", 0, name))
        assert isinstance(found, ProducerFound)
        assert (found.last_sequence, found.first, found.next) == (1, 4 + number, 5 + number)
    log.replay_all()


def test_the_second_of_one_producer_shares_the_batch(log: CoreHarness) -> None:
    log.run(claimed("http:p", 0))
    outcomes, entries = together(log, claimed("http:p", 1, 1), claimed("http:p", 2, 2), value(3))
    assert offsets(outcomes) == [1, 2, 3]
    assert entries == 1


@pytest.mark.parametrize(
    ("sequence", "number", "expected"), [(0, 0, Confirmed), (0, 9, SequenceConflict), (5, 0, SequenceGap)]
)
def test_a_repeated_or_refused_claim_leaves_its_neighbours_alone(
    log: CoreHarness, sequence: int, number: int, expected: type[Outcome]
) -> None:
    log.run(claimed("http:p", 0))
    outcomes, _ = together(log, value(1), claimed("http:p", sequence, number), value(2))
    assert offsets(outcomes) == [1, -1, 2]
    assert isinstance(outcomes[1], expected)


def test_new_ids_share_an_entry_and_each_finds_its_own_record(log: CoreHarness) -> None:
    outcomes, entries = together(log, value(0, id_=b"a"), value(1), value(2, id_=b"c"))
    assert (offsets(outcomes), entries) == ([0, 1, 2], 1)
    log.restart()
    for id_, offset in ((b"a", 0), (b"c", 2)):
        found = log.run(GetReceipt("t", 0, id_))
        assert isinstance(found, ReceiptFound)
        assert (found.first, found.digest) == (offset, content_digest(b"value %d" % offset))


def test_an_id_that_comes_twice_is_a_duplicate_or_a_conflict(log: CoreHarness) -> None:
    outcomes, _ = together(log, value(0, id_=b"a"), value(0, id_=b"a"), value(1, id_=b"a"), value(2, id_=b"b"))
    assert offsets(outcomes) == [0, -1, -1, 1]
    assert isinstance(outcomes[1], Confirmed)
    assert (outcomes[1].first, outcomes[1].duplicate) == (0, True)
    assert isinstance(outcomes[2], IdConflict)


def test_a_refused_claim_takes_no_id_with_it(log: CoreHarness) -> None:
    """The id of a record that a gap refuses is free for the record that comes next."""
    gap = value(0, id_=b"a", claim=requests("http:p", 7, content=b"value 0"))
    outcomes, _ = together(log, value(5), gap, value(0, id_=b"a"))
    assert isinstance(outcomes[1], SequenceGap)
    assert offsets(outcomes) == [0, -1, 1]


def test_an_id_with_a_claim_keeps_both(log: CoreHarness) -> None:
    log.run(claimed("http:p", 0))
    both = value(1, id_=b"a", claim=requests("http:p", 1, content=b"value 1"))
    outcomes, entries = together(log, value(0), both)
    assert (offsets(outcomes), entries) == ([1, 2], 1)
    by_sequence = log.run(both.replaced(message_ids=None))
    by_id = log.run(both.replaced(claims=None))
    assert isinstance(by_sequence, Confirmed)
    assert isinstance(by_id, Confirmed)
    assert (by_sequence.first, by_id.first) == (2, 2)


def test_a_closed_or_missing_stream_refuses_each(log: CoreHarness) -> None:
    missing = [one_value("nowhere", 0, b"x"), one_value("nowhere", 0, b"y")]
    assert together(log, *missing) == ([TopicMissing("nowhere")] * 2, 0)
    assert together(log, one_value("t", 3, b"x")) == ([TopicMissing("t", 3)], 0)
    log.run(CloseStream("t"))
    outcomes, entries = together(log, value(0), value(1))
    assert entries == 0
    assert all(isinstance(outcome, StreamClosedRefusal) for outcome in outcomes)


def test_content_types_are_looked_at_one_by_one(log: CoreHarness) -> None:
    log.create("j", config=TopicConfig("application/json"))
    typed = [("application/json", b"1"), ("Application/JSON; charset=utf-8", b"2"), ("text/plain", b"3"), ("", b"{")]
    outcomes, _ = together(log, *(one_value("j", 0, content, content_type=name) for name, content in typed))
    assert offsets(outcomes) == [0, 1, -1, -1]
    assert isinstance(outcomes[2], ContentTypeMismatch)
    assert isinstance(outcomes[3], Refusal)


def test_a_value_too_large_for_a_batch_is_refused_alone(log: CoreHarness) -> None:
    outcomes, entries = together(log, value(0), one_value("t", 0, bytes(limits.BATCH_BYTES_MAX)), value(1))
    assert isinstance(outcomes[1], TooLarge)
    assert (offsets(outcomes)[::2], entries) == ([0, 1], 1)


def test_the_longest_claims_fit_their_entry(log: CoreHarness) -> None:
    names = [f"http:{number:03d}".ljust(limits.PRODUCER_NAME_BYTES_MAX, "n") for number in range(200)]
    for sequence in range(2):
        outcomes, entries = together(log, *(claimed(name, sequence) for name in names))
        assert all(isinstance(outcome, Confirmed) for outcome in outcomes)
    assert entries == 1


def test_a_producer_that_is_forgotten_is_a_gap_among_others(log: CoreHarness) -> None:
    log.run(claimed("http:p", 0))
    log.run(Trim("t", 0, 1))
    log.pass_ms(limits.DEDUPE_FLOOR_MS_DEFAULT + 1)
    outcomes, entries = together(log, value(0), claimed("http:p", 1), value(1))
    assert entries == 1
    assert isinstance(outcomes[1], SequenceGap), "it was forgotten, so a 1 is too early"
    assert offsets(outcomes) == [1, -1, 2]


@pytest.mark.parametrize("flaw", ["twice", "of no record", "none"])
def test_verify_finds_claims_that_are_not_one_per_record(flaw: str) -> None:
    log = CoreHarness()
    log.create("t")
    for name in ("http:p", "http:q"):
        log.run(claimed(name, 0))
    log.run_columns([claimed("http:p", 1), claimed("http:q", 1)])
    entry = log.last_entry
    assert isinstance(entry, Appended)
    one, two = entry.claims
    claims = {"twice": (one, (1, 0, one[2])), "of no record": (one, (2, 0, two[2])), "none": ()}[flaw]
    bad = entry.replaced(first=4, claims=claims)
    state = State()
    log.rows.everything(state)
    state.time_ns = log.state.time_ns
    with pytest.raises(Corruption, match="counts as Duplicate" if flaw == "twice" else "one per record"):
        EntryCheck(MemoryIndex(), lambda _: None)(state, 5, 0, bad)
    with pytest.raises(Corruption, match="counts as Duplicate"):
        EntryCheck(MemoryIndex(), lambda _: None)(state, 5, 0, entry.replaced(first=4))


# --- what only looks as if it could share a run ---------------------------------------------------------------------


def test_one_claim_twice_in_a_turn_is_one_write(log: CoreHarness) -> None:
    """Two connections of one producer send the same request: each of them is the next one of its row."""
    for name in ("http:p", "http:q"):
        log.run(claimed(name, 0))
    outcomes, _ = together(log, claimed("http:p", 1, 1), claimed("http:q", 1, 2), claimed("http:p", 1, 1), value(3))
    assert offsets(outcomes) == [2, 3, -1, 4]
    again = outcomes[2]
    assert isinstance(again, Confirmed)
    assert (again.first, again.duplicate) == (2, True)
    log.replay_all()


def test_an_epoch_begins_among_others(log: CoreHarness) -> None:
    log.run(claimed("http:p", 0))
    newer = value(1, claim=requests("http:p", 0, epoch=1, content=b"value 1"))
    outcomes, entries = together(log, value(0), newer, value(2))
    assert (offsets(outcomes), entries) == ([1, 2, 3], 1)
    found = log.run(GetProducer("t", 0, "http:p"))
    assert isinstance(found, ProducerFound)
    assert (found.epoch, found.last_sequence, found.first) == (1, 0, 2)
    late, _ = together(log, value(3), claimed("http:p", 1, 4))
    assert isinstance(late[1], Refusal), "the epoch before is fenced"
    log.replay_all()


def test_a_claim_with_a_text_that_is_too_long_is_refused_in_a_run_as_alone(log: CoreHarness) -> None:
    session = "s" * (limits.PRODUCER_SESSION_BYTES_MAX + 1)

    def with_session(name: str) -> Columns:
        digest = content_digest(b"value 1")
        return value(1, claim=ProducerClaim(name, -1, 1, 1, 1, digest, True, session))

    log.run(value(0, claim=ProducerClaim("x:p", -1, 0, 0, 1, content_digest(b"value 0"), True, "s")))
    alone = log.run(with_session("x:p"))
    outcomes, _ = together(log, value(0), with_session("x:p"), value(2))
    assert type(outcomes[1]) is type(alone)
    assert isinstance(outcomes[1], Refusal)
    assert offsets(outcomes) == [1, -1, 2]
