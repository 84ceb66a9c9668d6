"""Message ids: the packed value, zones, and how long an id is remembered, to the millisecond."""

import pytest

from oncelog import limits
from oncelog.core import message_id
from oncelog.core.command import ConfigureTopic, DeleteRecords, DeleteTopic, GetReceipt, Trim
from oncelog.core.entry import Appended, Compound, IdsUsed, StreamClosed
from oncelog.core.flat import Stream
from oncelog.core.memory import only_prolongs
from oncelog.core.outcome import Confirmed, IdConflict, NotFound, ReceiptFound, TopicDone
from oncelog.core.rows import FOREVER, TopicConfig
from oncelog.testing.core_harness import MS, CoreHarness

FLOOR_MS = 10_000


@pytest.fixture
def log() -> CoreHarness:
    harness = CoreHarness()
    harness.create("t", config=TopicConfig(dedupe_floor_ms=FLOOR_MS))
    return harness


def is_duplicate(log: CoreHarness, topic: str = "t") -> bool:
    """Asked without using the id: a use would prolong it."""
    return isinstance(log.run(GetReceipt(topic, 0, b"m")), ReceiptFound)


def test_value_packs_to_forty_bytes_and_back() -> None:
    digest = bytes(range(16))
    value = message_id.pack(digest, 2**63, 2**62, 1_700_000_000_123 * MS + 999, message_id.COUNT_MAX)
    assert len(value) == message_id.VALUE_BYTES
    assert message_id.unpack(value) == (digest, 2**63, 2**62, 1_700_000_000_123, message_id.COUNT_MAX)
    again = message_id.unpack(message_id.used_again(value, 1_800_000_000_000 * MS))
    assert again == (digest, 2**63, 2**62, 1_800_000_000_000, message_id.COUNT_MAX)
    assert limits.BATCH_RECORDS_MAX <= message_id.COUNT_MAX


def test_one_record_has_the_digest_of_its_value_and_many_are_framed() -> None:
    assert message_id.values_digest([b"a"]) == message_id.content_digest(b"a")
    lists: tuple[list[bytes | None], ...] = (
        [b"a", b"b"],
        [b"ab", b""],
        [b"", b"ab"],
        [b"ab", None],
        [b"1:a1:b"],
        [b""],
        [None],
        [b"-"],
    )
    assert len({message_id.values_digest(values) for values in lists}) == len(lists)


def test_hash_tells_streams_and_zones_apart() -> None:
    def stream(stream_id: int, zone: str = "") -> Stream:
        return Stream(stream_id, 1, 0, TopicConfig(id_zone=zone))

    hashes = {
        message_id.id_hash(stream(1), b"m"),
        message_id.id_hash(stream(2), b"m"),
        message_id.id_hash(stream(1, "z"), b"m"),
        message_id.id_hash(stream(1, "zm"), b""),
        message_id.id_hash(stream(1, "1:"), b"m"),
    }
    assert len(hashes) == 5
    assert message_id.id_hash(stream(1, "z"), b"m") == message_id.id_hash(stream(2, "z"), b"m")


# --- how long ----------------------------------------------------------------------------------------------------


def test_id_is_remembered_while_its_record_exists(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m")
    log.pass_ms(1000 * FLOOR_MS)
    assert is_duplicate(log)


def test_id_is_forgotten_exactly_at_trim_plus_floor(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m")
    log.pass_ms(3 * FLOOR_MS)
    log.run(Trim("t", 0, 1))
    log.pass_ms(FLOOR_MS - 1)
    assert is_duplicate(log)
    log.pass_ms(1)
    assert not is_duplicate(log)
    fresh = log.append("t", b"other content", message_id=b"m")
    assert isinstance(fresh, Confirmed)
    assert (fresh.first, fresh.duplicate) == (1, False)


def test_id_is_forgotten_exactly_at_last_use_plus_floor(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m")
    log.run(Trim("t", 0, 1))
    log.pass_ms(FLOOR_MS - 1)
    used = log.append("t", b"a", message_id=b"m")
    assert isinstance(used, Confirmed)
    assert (used.duplicate, used.gone) == (True, True)
    assert isinstance(log.last_entry, Compound)
    assert isinstance(log.last_entry.operations[0], IdsUsed)
    log.pass_ms(FLOOR_MS - 1)
    assert is_duplicate(log)
    log.pass_ms(1)
    assert not is_duplicate(log)
    log.replay_all()


def test_conflict_does_not_prolong_an_id(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m")
    log.run(Trim("t", 0, 1))
    log.pass_ms(FLOOR_MS - 1)
    assert isinstance(log.append("t", b"b", message_id=b"m"), IdConflict)
    log.pass_ms(1)
    assert not is_duplicate(log)


def test_forgotten_id_does_not_come_back_with_a_later_trim(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m")
    log.append("t", b"b")
    log.run(Trim("t", 0, 1))
    log.pass_ms(FLOOR_MS)
    assert not is_duplicate(log)
    log.run(Trim("t", 0, 2))
    assert not is_duplicate(log)


def test_each_trim_has_its_own_time(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"first")
    log.append("t", b"b", message_id=b"m")
    log.run(Trim("t", 0, 1))
    log.pass_ms(FLOOR_MS - 1)
    log.run(Trim("t", 0, 2))
    log.pass_ms(1)
    assert log.run(GetReceipt("t", 0, b"first")) == NotFound("message id")
    log.pass_ms(FLOOR_MS - 2)
    assert is_duplicate(log)
    log.pass_ms(1)
    assert not is_duplicate(log)


def test_more_trims_than_marks_only_remember_longer_and_bring_nothing_back(log: CoreHarness) -> None:
    trims = limits.TRIM_MARKS_MAX + 8
    log.append("t", b"x", message_id=b"expired")
    for number in range(trims):
        log.append("t", b"x", message_id=b"m%d" % number)
    log.run(Trim("t", 0, 1))
    log.pass_ms(FLOOR_MS)
    for number in range(trims):
        log.run(Trim("t", 0, number + 2))
        assert log.run(GetReceipt("t", 0, b"expired")) == NotFound("message id")
        log.pass_ms(10)
    for number in range(trims):
        assert isinstance(log.run(GetReceipt("t", 0, b"m%d" % number)), ReceiptFound)
    log.pass_ms(FLOOR_MS)
    for number in range(trims):
        assert log.run(GetReceipt("t", 0, b"m%d" % number)) == NotFound("message id")


def test_id_of_a_batch_outlives_its_last_record(log: CoreHarness) -> None:
    log.append("t", b"a", b"b", b"c", message_id=b"m")
    log.run(Trim("t", 0, 1))
    log.pass_ms(2 * FLOOR_MS)
    again = log.append("t", b"a", b"b", b"c", message_id=b"m")
    assert isinstance(again, Confirmed)
    assert (again.first, again.next, again.duplicate, again.gone) == (0, 3, True, True)


def test_id_of_a_deleted_record_is_remembered_until_the_floor_passes_it(log: CoreHarness) -> None:
    log.append("t", b"a", message_id=b"m")
    log.append("t", b"b")
    log.run(DeleteRecords("t", 0, [0, 1]))
    log.pass_ms(5 * FLOOR_MS)
    assert is_duplicate(log)
    log.run(Trim("t", 0, 1))
    log.pass_ms(FLOOR_MS)
    assert not is_duplicate(log)


def test_window_is_exact_whatever_happens_to_the_record_and_however_often_it_is_used() -> None:
    log = CoreHarness()
    log.create("w", config=TopicConfig(duplicate_window_ms=500))
    log.append("w", b"a", message_id=b"m")
    log.run(Trim("w", 0, 1))
    log.pass_ms(499)
    again = log.append("w", b"a", message_id=b"m")
    assert isinstance(again, Confirmed)
    assert (again.duplicate, again.gone) == (True, True)
    assert log.last_entry is None
    log.pass_ms(1)
    assert not is_duplicate(log, "w")
    fresh = log.append("w", b"a", message_id=b"m")
    assert isinstance(fresh, Confirmed)
    assert (fresh.first, fresh.duplicate) == (1, False)
    log.pass_ms(500)
    assert not is_duplicate(log, "w")


def test_fact_stream_never_forgets() -> None:
    log = CoreHarness()
    log.create("f", config=TopicConfig(dedupe_floor_ms=FOREVER))
    log.append("f", b"a", message_id=b"m")
    log.run(Trim("f", 0, 1))
    log.pass_ms(100 * 365 * 24 * 3600 * 1000)
    again = log.append("f", b"a", message_id=b"m")
    assert isinstance(again, Confirmed)
    assert (again.duplicate, again.gone) == (True, True)
    assert log.last_entry is None


# --- zones -------------------------------------------------------------------------------------------------------


def test_zone_makes_an_id_unique_over_topics() -> None:
    log = CoreHarness()
    config = TopicConfig(id_zone="plant", dedupe_floor_ms=FLOOR_MS)
    (stream_id,) = log.create("a", config=config)
    log.create("b", config=config)
    log.create("c", config=TopicConfig(id_zone="other"))
    log.append("a", b"x", message_id=b"m")
    again = log.append("b", b"x", message_id=b"m")
    assert isinstance(again, Confirmed)
    assert (again.stream_id, again.first, again.duplicate) == (stream_id, 0, True)
    assert isinstance(log.append("b", b"y", message_id=b"m"), IdConflict)
    other = log.append("c", b"y", message_id=b"m")
    assert isinstance(other, Confirmed)
    assert not other.duplicate


def test_zone_remembers_an_id_after_its_topic_is_deleted_for_the_floor() -> None:
    log = CoreHarness()
    config = TopicConfig(id_zone="plant", dedupe_floor_ms=FLOOR_MS)
    log.create("a", config=config)
    log.create("b", config=config)
    log.append("a", b"x", message_id=b"m")
    log.pass_ms(5 * FLOOR_MS)
    log.run(DeleteTopic("a"))
    log.create("a", config=config)
    log.pass_ms(FLOOR_MS - 1)
    receipt = log.run(GetReceipt("a", 0, b"m"))
    assert isinstance(receipt, ReceiptFound)
    assert receipt.gone
    log.pass_ms(1)
    assert log.run(GetReceipt("b", 0, b"m")) == NotFound("message id")


def test_topic_cannot_move_to_another_zone(log: CoreHarness) -> None:
    outcome = log.run(ConfigureTopic("t", TopicConfig(id_zone="z")))
    assert not isinstance(outcome, TopicDone)
    assert log.last_entry is None


def test_only_ids_that_are_known_may_do_without_their_entry(log: CoreHarness) -> None:
    """What a full disk may leave out: that known ids were used again, and nothing else."""
    log.append("t", b"x", message_id=b"m")
    (known,) = log.rows.ids
    log.state.ids_loaded[known] = log.rows.ids[known]
    value = log.rows.ids[known]
    assert only_prolongs(log.state, Compound(1, [IdsUsed(known, value)]))
    assert not only_prolongs(log.state, Compound(1, [IdsUsed(known + bytes(16), value * 2)]))
    assert not only_prolongs(log.state, Compound(1, [IdsUsed(known, value), StreamClosed(1)]))
    assert not only_prolongs(log.state, Appended(1, 0, 1, b"batch", 1))
