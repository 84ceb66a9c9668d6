"""Columns: what one command of values means; that it means the same as its values one by one is tested in
`properties/test_columns.py`."""

from typing import Any

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import CloseStream, Columns, GetProducer, GetReceipt, Trim
from oncelog.core.entry import Appended, Compound
from oncelog.core.flat import ProducerClaim
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    BatchRefused,
    ClaimInvalid,
    Confirmed,
    IdConflict,
    Outcome,
    PartlyDuplicate,
    ProducerFound,
    ReceiptFound,
    Refusal,
    StreamClosedRefusal,
    TailMismatch,
    TooLarge,
    TopicMissing,
    each_outcome,
)
from oncelog.core.rows import TopicConfig
from oncelog.testing.core_harness import MS, CoreHarness, requests


@pytest.fixture
def log() -> CoreHarness:
    harness = CoreHarness()
    harness.create("t")
    return harness


def confirmed(outcome: Outcome) -> Confirmed:
    assert isinstance(outcome, Confirmed), outcome
    return outcome


def batches(log: CoreHarness) -> list[bytes]:
    entry = log.last_entry
    operations: list[Any] = entry.operations if isinstance(entry, Compound) else [entry]
    return [operation.batch for operation in operations if isinstance(operation, Appended)]


def test_values_keys_and_headers_are_one_batch(log: CoreHarness) -> None:
    command = Columns(
        "t",
        0,
        [b"v0", None, b"v2"],
        keys=[b"k0", b"k1", None],
        headers=[(), (("h", b"1"), ("h", None)), ()],
        timestamps_ms=[7, 0, 9],
    )
    outcome = confirmed(log.run(command))
    assert (outcome.first, outcome.next, outcome.exceptions) == (0, 3, None)
    (batch,) = batches(log)
    now_ms = log.now_ns // MS
    assert [(key, value, time, list(headers)) for _, time, key, value, headers in codec.decode(batch)] == [
        (b"k0", b"v0", 7, []),
        (b"k1", None, now_ms, [("h", b"1"), ("h", None)]),
        (None, b"v2", 9, []),
    ]
    log.replay_all()


def test_only_what_is_no_new_record_is_an_exception(log: CoreHarness) -> None:
    log.run(Columns("t", 0, [b"a"], message_ids=[b"a"]))
    command = Columns("t", 0, [b"b", b"a", b"x", b"c"], message_ids=[b"b", b"a", b"a", b""])
    outcome = confirmed(log.run(command))
    assert (outcome.first, outcome.next, list(outcome.exceptions or ())) == (1, 3, [1, 2])
    told = each_outcome(outcome, command)
    assert [(one.first, one.duplicate) for one in told if isinstance(one, Confirmed)] == [
        (1, False),
        (0, True),
        (2, False),
    ]
    assert isinstance(told[2], IdConflict)
    found = log.run(GetReceipt("t", 0, b"b"))
    assert isinstance(found, ReceiptFound)
    assert found.first == 1


def test_one_producer_may_write_many_values_of_a_command(log: CoreHarness) -> None:
    claims = [requests("http:p", sequence, content=b"%d" % sequence) for sequence in range(8)]
    values = [b"%d" % sequence for sequence in range(8)]
    outcome = confirmed(log.run(Columns("t", 0, values, claims=claims)))
    assert (outcome.first, outcome.next, outcome.exceptions) == (0, 8, None)
    assert len(batches(log)) == 1
    log.restart()
    for sequence in (3, 7):
        again = confirmed(log.run(Columns("t", 0, values[sequence : sequence + 1], claims=[claims[sequence]])))
        assert (again.first, again.duplicate) == (sequence, True)
    found = log.run(GetProducer("t", 0, "http:p"))
    assert isinstance(found, ProducerFound)
    assert found.last_sequence == 7
    log.replay_all()


def test_an_epoch_that_the_server_chose_is_told_for_its_value(log: CoreHarness) -> None:
    claims = [ProducerClaim("x:p", -1, number, number, 1, content_digest(b"x"), True, "s") for number in range(2)]
    outcome = confirmed(log.run(Columns("t", 0, [b"x", b"x"], claims=claims)))
    assert {number: one.epoch for number, one in (outcome.exceptions or {}).items()} == {0: 1, 1: 1}
    assert (outcome.first, outcome.next) == (0, 2)


def test_expected_tails_count_the_values_before(log: CoreHarness) -> None:
    command = Columns("t", 0, [b"0", b"1", b"2", b"3"], expected_tails=[0, 1, 5, 2])
    outcome = confirmed(log.run(command))
    assert outcome.exceptions == {2: TailMismatch(outcome.stream_id, 5, 2)}
    assert (outcome.first, outcome.next) == (0, 3)


def test_nothing_follows_a_value_that_closes(log: CoreHarness) -> None:
    first, second = log.run_columns([Columns("t", 0, [b"0", b"1"], close=True), Columns("t", 0, [b"2"])])
    assert (confirmed(first).next, confirmed(first).closed) == (2, True)
    assert isinstance(second, StreamClosedRefusal)
    assert second.tail == 2


@pytest.mark.parametrize("flaw", ["timestamp", "header", "id"])
def test_a_value_with_a_flaw_is_refused_alone(log: CoreHarness, flaw: str) -> None:
    command = Columns("t", 0, [b"0", b"1", b"2"])
    match flaw:
        case "timestamp":
            command.timestamps_ms = [0, 2**62, 0]
        case "header":
            command.headers = [(), (("\ud800", b""),), ()]
        case "id":
            command.message_ids = [b"", b"m" * (limits.MESSAGE_ID_BYTES_MAX + 1), b""]
    outcome = confirmed(log.run(command))
    assert outcome.next == 2
    assert list(outcome.exceptions or ()) == [1]
    assert isinstance((outcome.exceptions or {})[1], Refusal)
    command.together = True
    refused = log.run(command)
    assert isinstance(refused, Refusal)
    assert not log.wrote()


def test_a_command_that_no_entry_can_hold_is_refused_whole(log: CoreHarness) -> None:
    many = [b""] * 44_000
    assert isinstance(log.run(Columns("t", 0, many, message_ids=[b"%d" % n for n in range(44_000)])), TooLarge)
    assert isinstance(log.run(Columns("t", 0, [b""] * (limits.BATCH_RECORDS_MAX + 1))), TooLarge)
    assert confirmed(log.run(Columns("t", 0, many))).next == 44_000
    assert log.run(Columns("nowhere", 0, [b"x", b"y"])) == TopicMissing("nowhere")
    empty = confirmed(log.run(Columns("t", 0, [])))
    assert (empty.first, empty.next, log.wrote()) == (44_000, 44_000, False)


def test_a_large_value_is_a_batch_of_its_own(log: CoreHarness) -> None:
    large = bytes(limits.RUN_VALUE_BYTES_MAX + 1)
    outcome = confirmed(log.run(Columns("t", 0, [b"0", large, b"2", b"3"])))
    assert (outcome.first, outcome.next) == (0, 4)
    assert [codec.skim(batch).record_count for batch in batches(log)] == [1, 1, 2]
    log.replay_all()


def test_one_entry_holds_the_longest_claims(log: CoreHarness) -> None:
    names = [f"http:{number:03d}".ljust(limits.PRODUCER_NAME_BYTES_MAX, "n") for number in range(200)]
    for sequence in range(2):
        claims = [requests(name, sequence) for name in names]
        outcome = confirmed(log.run(Columns("t", 0, [b"value"] * 200, claims=claims)))
        assert outcome.exceptions is None
    assert len(batches(log)) > 1, "the length of the claims of one batch has 16 bits"
    log.replay_all()


# --- all or nothing --------------------------------------------------------------------------------------------------


def whole(values: list[bytes], ids: list[bytes], **more: Any) -> Columns:
    return Columns("t", 0, values, message_ids=ids, together=True, **more)


def test_values_that_come_together_are_written_or_none(log: CoreHarness) -> None:
    outcome = confirmed(log.run(whole([b"0", b"1"], [b"a", b"b"])))
    assert (outcome.first, outcome.next, outcome.exceptions) == (0, 2, None)
    again = confirmed(log.run(whole([b"0", b"1"], [b"a", b"b"])))
    assert (again.first, again.next, again.duplicate) == (0, 2, True)
    some = log.run(whole([b"x", b"1"], [b"", b"b"]))
    assert isinstance(some, PartlyDuplicate)
    assert (some.append_number, log.wrote()) == (1, False)
    other = log.run(whole([b"0", b"changed"], [b"a", b"b"]))
    assert isinstance(other, IdConflict)
    assert isinstance(log.run(whole([b"2", b"2"], [b"c", b"c"])), ClaimInvalid)
    assert isinstance(log.run(whole([b"1", b"0"], [b"b", b"a"])), PartlyDuplicate), "not in this order"
    assert isinstance(log.run(Columns("t", 0, [], together=True)), BatchRefused)
    log.replay_all()


def test_one_id_may_name_all_values_that_come_together(log: CoreHarness) -> None:
    digest = content_digest(b"all of it")
    first = confirmed(log.run(whole([b"0", b"1", b"2"], [b"m"], digests=[digest])))
    again = confirmed(log.run(whole([b"0", b"1", b"2"], [b"m"], digests=[digest])))
    assert (again.first, again.next, again.duplicate) == (first.first, 3, True)
    log.create("j", config=TopicConfig("application/json"))
    refused = log.run(Columns("j", 0, [b"1", b"{"], together=True))
    assert isinstance(refused, BatchRefused)


def test_a_batch_id_is_known_again_with_the_same_content(log: CoreHarness) -> None:
    def sent(content: bytes) -> Columns:
        more: dict[str, Any] = {"batch_id": "b", "batch_scope": "nats:1", "batch_digest": content_digest(content)}
        return Columns("t", 0, [content, content], together=True, **more)

    assert confirmed(log.run(sent(b"x"))).next == 2
    log.run(CloseStream("t"))
    again = confirmed(log.run(sent(b"x")))
    assert (again.first, again.next, again.duplicate, log.wrote()) == (0, 2, True, False)
    assert isinstance(log.run(sent(b"y")), StreamClosedRefusal), "other content is another batch"


def test_a_batch_id_is_found_after_its_records_are_gone(log: CoreHarness) -> None:
    command = Columns("t", 0, [b"x"], together=True, batch_id="b", batch_scope="nats:1")
    log.run(command)
    log.run(Trim("t", 0, 1))
    again = confirmed(log.run(command))
    assert (again.duplicate, again.gone) == (True, True)
