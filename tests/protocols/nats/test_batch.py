"""Atomic batches before they are stored: every way in which a batch goes on, ends, or never begins (seed 000)."""

import pytest

from oncelog.protocols.nats import batch as batches
from oncelog.protocols.nats import errors
from oncelog.protocols.nats.batch import Accepted, Batches, Limits, Lost, Member, OpenBatches, Ready, Refused


def member(sequence: object, commit: str | None = None, batch_id: str = "b", **more: str) -> Member:
    headers = [("nats-batch-id", batch_id), ("NATS-Batch-Sequence", str(sequence))]
    if commit is not None:
        headers.append(("Nats-Batch-Commit", commit))
    return Member(f"s.{sequence}", [*headers, *more.items()], b"x")


def fresh(limits: Limits | None = None) -> Batches:
    return Batches(OpenBatches(limits or Limits()))


def test_three_members_become_one_batch() -> None:
    found = fresh()
    assert found.take(member(1), 0) == Accepted()
    assert found.take(member(2), 0) == Accepted()
    ready = found.take(member(3, "1"), 0)
    assert isinstance(ready, Ready)
    assert [each.subject for each in ready.members] == ["s.1", "s.2", "s.3"]
    assert len(found) == 0


def test_end_of_batch_stores_no_message_of_its_own_and_marks_the_last() -> None:
    found = fresh()
    found.take(member(1), 0)
    found.take(member(2), 0)
    ready = found.take(member(3, "eob"), 0)
    assert isinstance(ready, Ready)
    assert [each.subject for each in ready.members] == ["s.1", "s.2"]
    assert ready.members[-1].headers[-1] == ("Nats-Batch-Commit", "1")


def test_batch_of_one() -> None:
    ready = fresh().take(member(1, "1"), 0)
    assert isinstance(ready, Ready)
    assert len(ready.members) == 1


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (member(1), member(3), Refused(errors.BATCH_INCOMPLETE, "incomplete")),
        (member(1), member(1), Refused(errors.BATCH_INCOMPLETE, "incomplete")),
        (member(1), member(2, ""), Refused(errors.BATCH_COMMIT_INVALID)),
        (member(1), member(2, "yes"), Refused(errors.BATCH_COMMIT_INVALID)),
        (None, member(1, "eob"), Refused(errors.BATCH_INCOMPLETE, "incomplete")),
        (None, member(2), Refused(errors.BATCH_INCOMPLETE)),
        (None, member(1001), Refused(errors.batch_too_large(1000))),
        (None, member(1001, "eob"), Lost("b", 1000, None)),
        (None, member("x"), Refused(errors.BATCH_SEQUENCE_MISSING)),
        (None, member(1, batch_id=""), Refused(errors.BATCH_ID_INVALID)),
        (None, member(1, batch_id="ü" * 65), Refused(errors.BATCH_ID_INVALID)),
        (None, member(1, batch_id="😀" * 64), Accepted()),
        (member(1), member(2, None, **{"Nats-Required-Api-Level": "4"}), Refused(errors.API_LEVEL, "unsupported")),
        (member(1), member(2, None, **{"Nats-Required-Api-Level": "3"}), Accepted()),
    ],
)
def test_what_a_member_brings_about(first: Member | None, second: Member, expected: object) -> None:
    found = fresh()
    if first is not None:
        found.take(first, 0)
    assert found.take(second, 0) == expected
    if isinstance(expected, Refused):
        assert len(found) == 0


def test_commit_of_a_batch_that_is_not_open_may_be_a_retry() -> None:
    last = member(3, "1")
    assert fresh().take(last, 0) == Lost("b", 3, last)


def test_limit_of_messages_does_not_count_the_end_marker() -> None:
    found = fresh(Limits(messages=2))
    found.take(member(1), 0)
    found.take(member(2), 0)
    assert isinstance(found.take(member(3, "eob"), 0), Ready)
    found.take(member(1), 0)
    found.take(member(2), 0)
    refused = found.take(member(3), 0)
    assert isinstance(refused, Refused)
    assert (refused.error.number, refused.reason) == (10199, "large")
    assert "here 2" in refused.error.description
    assert errors.batch_too_large(1000).description == "Batch publish sequence exceeds server limit (default 1000)"


def test_limits_of_open_batches_per_stream_and_per_server() -> None:
    shared = OpenBatches(Limits(per_stream=2, total=3))
    one, other = Batches(shared), Batches(shared)
    assert one.take(member(1, batch_id="a"), 0) == Accepted()
    assert one.take(member(1, batch_id="b"), 0) == Accepted()
    assert one.take(member(1, batch_id="c"), 0) == Refused(errors.BATCH_TOO_MANY)
    assert other.take(member(1, batch_id="a"), 0) == Accepted()
    assert other.take(member(1, batch_id="b"), 0) == Refused(errors.BATCH_TOO_MANY)
    one.drop_all()
    assert other.take(member(1, batch_id="b"), 0) == Accepted()
    assert shared.count == 2


def test_bytes_of_open_batches_are_bounded_and_given_back() -> None:
    shared = OpenBatches(Limits(bytes=1000))
    found = Batches(shared)
    found.take(member(1)._replace(payload=b"x" * 500), 0)
    refused = found.take(member(2)._replace(payload=b"x" * 500), 0)
    assert refused == Refused(errors.MESSAGE_TOO_LARGE, batches.LARGE)
    assert (shared.bytes, shared.count) == (0, 0)


def test_silent_batch_expires_and_one_that_goes_on_does_not() -> None:
    found = fresh()
    second = 10**9
    found.take(member(1, batch_id="a"), 0)
    found.take(member(1, batch_id="b"), 0)
    found.take(member(2, batch_id="b"), 9 * second)
    assert found.expired(10 * second) == ["a"]
    assert found.expired(19 * second) == ["b"]
    assert isinstance(found.take(member(3, "1", batch_id="b"), 19 * second), Lost)
