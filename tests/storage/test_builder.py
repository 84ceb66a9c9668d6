"""The builder: whatever the steps, the index is the same; a rebuild equals it; memory stays bounded."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog.core.entry import PACKED_ID, Appended, Claimed, Compound, HolesAdded, Operation, TopicCreated
from oncelog.core.flat import ProducerClaim, Stream
from oncelog.core.row_codec import encode_row
from oncelog.core.rows import Table, TopicConfig
from oncelog.errors import Corruption, DiskFull
from oncelog.storage.disk import MemoryDisk
from oncelog.storage.entry_codec import GROUP_HEADER, encode_entry
from oncelog.storage.index import builder as builder_module
from oncelog.storage.index.builder import Builder, InlineBuilder
from oncelog.storage.index.compare import WholeIndex, differences, whole_items
from oncelog.storage.index.interface import Changes, Done, Full, index_key
from oncelog.storage.index.lmdb_writer import LmdbWriter
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.index.places import Place, Places
from oncelog.storage.journal_reader import JournalReader
from oncelog.storage.replay import replay_group, state_at
from tests.storage.log_writer import LogWriter, append, batch_of, write_appends, write_everything


@pytest.fixture
def log() -> LogWriter:
    log = LogWriter(MemoryDisk())
    write_everything(log)
    return log


def reader_of(log: LogWriter) -> JournalReader:
    return JournalReader(log.journal._disk)


def groups_of(log: LogWriter) -> list[int]:
    return [group for group, _ in log.journal.groups(None)]


def built(log: LogWriter, steps: list[int]) -> MemoryIndex:
    index = MemoryIndex()
    builder = Builder(reader_of(log), index, index)
    for group in steps:
        builder.advance(group)
    return index


def content(index: WholeIndex) -> list[object]:
    return [index.refresh(), *whole_items(index)]


def test_index_does_not_depend_on_the_steps(log: LogWriter) -> None:
    groups = groups_of(log)
    at_once = built(log, groups[-1:])
    assert at_once.refresh().entry_number == log.state.entry_number
    assert content(built(log, groups)) == content(at_once)
    assert content(built(log, groups[3::5] + groups[-1:])) == content(at_once)


def test_rows_in_the_index_equal_the_writers(log: LogWriter) -> None:
    index = built(log, [log.journal.durable_group])
    expected = {
        (int(table), index_key(table, key)): encode_row(row)
        for table in Table
        for key, row in log.state.tables[table].items()
        if row is not None
    }
    assert {(table, key): row for table, key, row in index.all_rows()} == expected
    assert dict(index.all_ids()) == log.state.ids


def test_places_in_the_index_lead_to_the_batches(log: LogWriter) -> None:
    index = built(log, [log.journal.durable_group])
    assert list(index.all_places())
    for extent, row in index.all_places():
        place = Place.unpack(row)
        if place.length:
            assert log.journal.read(place.group, place.at, place.length)[16] == 2, f"no batch at {extent}, {place}"
    (moved,) = index.places_from(2, 0, 1)
    assert Place.unpack(moved).group == log.journal.durable_group


def test_index_on_disk_equals_the_one_in_memory(log: LogWriter, tmp_path: Path) -> None:
    writer = LmdbWriter(tmp_path, durable=False)
    index = writer.index()
    builder = Builder(reader_of(log), index, writer)
    for group in groups_of(log):
        builder.advance(group)
    index.refresh()
    assert content(index) == content(built(log, [log.journal.durable_group]))
    writer.close()


def test_another_builder_goes_on_where_one_ended(log: LogWriter) -> None:
    groups = groups_of(log)
    index = MemoryIndex()
    for group in groups:
        Builder(reader_of(log), index, index).advance(group)
    assert content(index) == content(built(log, groups[-1:]))


@pytest.mark.from_source
def test_long_journal_is_committed_in_parts_and_rows_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    log = LogWriter(MemoryDisk())
    write_appends(log, "abc", rounds=30)
    expected = content(built(log, [log.journal.durable_group]))
    for name, value in (("INDEX_COMMIT_ENTRIES", 50), ("INDEX_ROWS_CACHED_MAX", 2)):
        monkeypatch.setattr(builder_module, name, value)
    index = MemoryIndex()
    builder = Builder(reader_of(log), index, index)
    done: list[Done] = []
    builder.advance(log.journal.durable_group, done.append)
    assert len(done) == 5
    assert [reply.group for reply in done] == sorted({reply.group for reply in done})
    assert done[-1].entry_number == log.state.entry_number
    assert sum(map(len, builder.state.tables)) == 0
    assert content(index) == expected


@pytest.mark.from_source
@pytest.mark.parametrize("name", ["INDEX_COMMIT_JOURNAL_BYTES", "INDEX_COMMIT_IDS"])
def test_commit_is_due_by_bytes_and_by_ids(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder_module, name, 20)
    log = LogWriter(MemoryDisk())
    write_appends(log, "abc", rounds=20)
    index = MemoryIndex()
    done: list[Done] = []
    Builder(reader_of(log), index, index).advance(log.journal.durable_group, done.append)
    assert len(done) > 1


def test_every_request_is_answered(log: LogWriter) -> None:
    index = MemoryIndex()
    inline = InlineBuilder(Builder(reader_of(log), index, index))
    last = log.journal.durable_group
    for group in (last, last, groups_of(log)[2]):
        inline.request(group)
        assert [reply.group for reply in inline.replies() if isinstance(reply, Done)] == [last]
    assert inline.replies() == []
    assert inline.fileno() == -1


class FullOnce(MemoryIndex):
    """The disk is full at the first commit."""

    def __init__(self) -> None:
        super().__init__()
        self.full = True

    def commit(self, changes: Changes) -> None:
        full, self.full = self.full, False
        if full:
            raise DiskFull("no room")
        super().commit(changes)


def test_full_disk_is_reported_and_the_work_repeated(log: LogWriter) -> None:
    index = FullOnce()
    inline = InlineBuilder(Builder(reader_of(log), index, index))
    inline.request(log.journal.durable_group)
    assert isinstance(inline.replies()[0], Full)
    inline.request(log.journal.durable_group)
    assert isinstance(inline.replies()[0], Done)
    assert content(index) == content(built(log, [log.journal.durable_group]))


# --- replay ----------------------------------------------------------------------------------------------------------


def payload(number: int, *entries: Appended | Compound) -> bytes:
    parts = [GROUP_HEADER.pack(number, len(entries))]
    for entry in entries:
        parts += encode_entry(entry)
    return b"".join(parts)


CREATED = Compound(1, [TopicCreated(1, "t", [2], TopicConfig())])


def test_recovery_over_an_index_reaches_the_writers_state(log: LogWriter) -> None:
    groups = groups_of(log)
    index = built(log, groups[:7])
    state, places = state_at(index), Places()
    for group, data in log.journal.groups(groups[6]):
        replay_group(state, index, places, group, data)
    assert state.entry_number == log.state.entry_number
    assert (state.next_id, state.next_producer_id) == (log.state.next_id, log.state.next_producer_id)
    for table in Table:
        for key, row in state.tables[table].items():
            assert row == log.state.tables[table][key]
    assert places.rows_from(2, 0, 1) == log.places.rows_from(2, 0, 1)


@pytest.mark.parametrize("number", [1, 3])
def test_entry_out_of_turn_is_damage(number: int) -> None:
    index = MemoryIndex()
    state = state_at(index)
    replay_group(state, index, Places(), 1, payload(1, CREATED))
    with pytest.raises(Corruption, match=f"holds entry {number}, expected 2"):
        replay_group(state, index, Places(), 2, payload(number, Appended(2, 0, 1, batch_of(b"x"), 5)))


COUNTLESS = PACKED_ID.pack(b"h" * 16, b"d" * 16, 0, 2**32 - 1)
"""An id of more records than its value has room for."""


@pytest.mark.parametrize(
    "entry",
    [
        Appended(2, 5, 1, b"b" * 70, 5),
        Appended(9, 0, 1, b"b" * 70, 5),
        Appended(2, 0, 1, b"b" * 70, 0),
        Appended(2, 0, 1, b"b" * 70, 5, ids=COUNTLESS),
    ],
)
def test_entry_that_does_not_follow_is_damage(entry: Appended) -> None:
    index = MemoryIndex()
    state = state_at(index)
    with pytest.raises(Corruption, match="entry 2 in group 1 does not follow"):
        replay_group(state, index, Places(), 1, payload(1, CREATED, entry))


def test_first_entry_behind_a_trimmed_front_may_have_any_number() -> None:
    index = MemoryIndex()
    builder = Builder(_Groups([(33, payload(500, CREATED)), (40, payload(501, CREATED))]), index, index)
    builder.advance(40)
    assert index.refresh().entry_number == 501


@pytest.mark.parametrize("groups", [[(1, payload(500, CREATED))], [(1, b""), (2, payload(500, CREATED))]])
def test_first_entry_of_a_whole_journal_is_number_one(groups: list[tuple[int, bytes]]) -> None:
    index = MemoryIndex()
    with pytest.raises(Corruption, match="holds entry 500, expected 1"):
        Builder(_Groups(groups), index, index).advance(2)


class _Groups:
    def __init__(self, groups: list[tuple[int, bytes]]) -> None:
        self._groups = groups

    def groups(self, after: int | None, until: int) -> Iterator[tuple[int, bytes]]:
        return (pair for pair in self._groups if (after or 0) < pair[0] <= until)


# --- comparing -------------------------------------------------------------------------------------------------------


def test_difference_of_every_kind_is_named(log: LogWriter) -> None:
    index = built(log, [log.journal.durable_group])
    items = list(whole_items(index))
    assert list(differences(index, iter(items))) == []
    for number, item in enumerate(items):
        without = items[:number] + items[number + 1 :]
        changed = [*items[:number], (item[0], item[1], item[2][:-1] + b"\xee"), *items[number + 1 :]]
        assert [what.partition(":")[0] for what in differences(index, iter(without))] == ["missing"]
        assert [what.partition(":")[0] for what in differences(index, iter(changed))] == ["other than the journal says"]
    other = LogWriter(MemoryDisk())
    write_everything(other)
    other.write(append("a", b"one more"))
    newer = built(other, [other.journal.durable_group])
    found = list(differences(index, whole_items(newer)))
    assert any(what.startswith("not in the journal: the place of offset") for what in found)
    stream = newer.get(Table.STREAM, 2)
    assert isinstance(stream, Stream)
    assert "other than the journal says: table STREAM, key 2" in found


def test_merging_gives_way_when_the_index_is_pressed_but_for_a_step_per_commit(log: LogWriter) -> None:
    class Merging(MemoryIndex):
        steps = 0

        def maintain(self) -> bool:
            self.steps += 1
            return self.steps % 10 != 0

    index = Merging()
    groups = groups_of(log)
    pressed = [True]
    builder = Builder(reader_of(log), index, index, is_pressed=lambda group: pressed[0] and group >= 0)
    for number, group in enumerate(groups[:3]):
        builder.advance(group)
        assert index.steps == number + 1
    assert builder.maintain(), "something is left"
    pressed[0] = False
    assert not builder.maintain()
    assert index.steps == 10


@pytest.mark.parametrize(
    "torn", [Claimed(2, ProducerClaim("http:p", 0, 0, 0, 1), 0, []), HolesAdded(2, [0], 1)], ids=["claim", "holes"]
)
def test_entry_with_a_list_that_is_too_short_is_damage(torn: Operation) -> None:
    entries = [Compound(5, [TopicCreated(1, "t", [2], TopicConfig())]), Compound(6, [torn])]
    payload = GROUP_HEADER.pack(1, 2) + b"".join(b"".join(encode_entry(entry)) for entry in entries)
    index = MemoryIndex()
    with pytest.raises(Corruption, match="does not follow"):
        replay_group(state_at(index), index, Places(), 1, payload)
