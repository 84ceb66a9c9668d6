"""The two indexes keep the same promises; the one on disk also finds damage and survives crashes of its writer."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import lmdb
import pytest

from oncelog.core.flat import Stream
from oncelog.core.message_id import pack
from oncelog.core.row_codec import encode_row
from oncelog.core.rows import Cursor, Key, Table, Topic, TopicConfig
from oncelog.errors import Corruption, DirectoryInUse, DiskFull, StorageError
from oncelog.storage.index import id_merge, lmdb_writer
from oncelog.storage.index.id_merge import plan_merge
from oncelog.storage.index.id_run_file import NAME
from oncelog.storage.index.interface import WHOLE_EXTENT, Changes, Index, IndexWriter, Position, index_key
from oncelog.storage.index.lmdb_index import MAP_BYTES, PLACES_PER_VALUE, LmdbIndex, place_key
from oncelog.storage.index.lmdb_writer import LmdbWriter
from oncelog.storage.index.memory_index import MemoryIndex
from oncelog.storage.index.places import LINK, PLACE, PLACE_BYTES, Place


class Both:
    """A writer, a reader of it, and the position in between."""

    def __init__(self, writer: IndexWriter, index: Index) -> None:
        self.writer = writer
        self.index = index
        self.position = Position()

    def commit(
        self,
        rows: list[tuple[Table, Key, object]] | None = None,
        places: dict[int, list[bytes]] | None = None,
        moved: dict[int, list[bytes]] | None = None,
        cuts: dict[int, int] | None = None,
        ids: dict[bytes, bytes] | None = None,
    ) -> None:
        after = Position(self.position.group + 2, self.position.entry_number + 1, 7, 8, 9)
        encoded = [(table, index_key(table, key) or b"", _encoded(row)) for table, key, row in rows or ()]
        packed = {extent: bytearray(b"".join(added)) for extent, added in (places or {}).items()}
        self.writer.commit(Changes(self.position, after, encoded, packed, moved or {}, cuts or {}, ids or {}))
        self.position = after
        assert self.index.refresh() == after


def _encoded(row: object) -> bytes | None:
    return None if row is None else encode_row(row)  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "lmdb"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    if request.param == "memory":
        memory = MemoryIndex()
        yield Both(memory, memory)
        return
    writer = LmdbWriter(tmp_path, durable=False)
    index = writer.index()
    yield Both(writer, index)
    index.close()
    writer.close()


def row(first: int, count: int = 1, *, group: int = 5, link: int | None = None) -> bytes:
    if link is not None:
        return PLACE.pack(first, group, link, 1, count, 0, LINK, 0)
    return PLACE.pack(first, group, 100 + first, 1, count, 10, 0, 0)


def firsts(rows: list[bytes]) -> list[int]:
    return [Place.unpack(place).first for place in rows]


def stream(stream_id: int, tail: int = 0) -> Stream:
    return Stream(stream_id, 1, 0, TopicConfig(), tail)


# --- rows ------------------------------------------------------------------------------------------------------------


def test_empty_index_stands_nowhere(both: Both) -> None:
    assert both.index.refresh() == Position()
    assert both.index.refresh().after is None
    assert both.index.get(Table.STREAM, 1) is None
    assert both.index.places_from(1, 0, 5) == []
    assert both.index.find_ids([b"x" * 16]) == {}
    assert both.index.scan(Table.TOPIC, None, 5) == []


def test_rows_are_replaced_removed_and_decoded_anew(both: Both) -> None:
    both.commit([(Table.STREAM, 2, stream(2)), (Table.CURSOR, ("c", 2), Cursor(1, [3, 4]))])
    both.commit([(Table.STREAM, 2, stream(2, 9)), (Table.CURSOR, ("c", 2), None), (Table.TXN, "never", None)])
    found = both.index.get(Table.STREAM, 2)
    assert found == stream(2, 9)
    assert isinstance(found, Stream)
    found.tail = 1
    assert both.index.get(Table.STREAM, 2) == stream(2, 9), "changing what was handed out changes nothing"
    assert both.index.get(Table.CURSOR, ("c", 2)) is None


@pytest.mark.parametrize("name", ["x" * 600, "nul\0inside", "\ud800", ""])
def test_key_that_no_row_can_have_is_absent(both: Both, name: str) -> None:
    assert both.index.get(Table.TOPIC, name) is None
    assert both.index.get(Table.PRODUCER, (1, name)) is None
    assert both.index.get(Table.STREAM, -1) is None
    assert both.index.get(Table.STREAM, 1 << 64) is None


def test_scan_goes_in_order_of_key_page_by_page(both: Both) -> None:
    names = ["a", "aa", "ab", "b", "é", "z"]
    rows: list[tuple[Table, Key, object]] = [
        (Table.TOPIC, name, Topic(1, name, [], TopicConfig(), 1)) for name in random.Random(3).sample(names, 6)
    ]
    both.commit([*rows, (Table.STREAM, 3, stream(3))])
    seen: list[Key] = []
    after: Key | None = None
    while page := both.index.scan(Table.TOPIC, after, 2):
        seen += [key for key, _ in page]
        after = page[-1][0]
    assert seen == sorted(names, key=str.encode)
    assert [key for key, _ in both.index.scan(Table.TOPIC, None, 9, prefix="a")] == ["a", "aa", "ab"]
    assert [key for key, _ in both.index.scan(Table.TOPIC, "aa", 9, prefix="a")] == ["ab"]
    assert both.index.scan(Table.TOPIC, "é", 9) == []
    assert [key for key, _ in both.index.scan(Table.STREAM, None, 9)] == [3]


# --- places ----------------------------------------------------------------------------------------------------------


def test_place_is_the_nearest_row_at_or_before(both: Both) -> None:
    count = 3 * PLACES_PER_VALUE + 5
    for begin in range(0, count, 50):
        both.commit(places={1: [row(3 * n, 3) for n in range(begin, min(count, begin + 50))], 2: [row(begin)]})
    for offset in (0, 1, 3 * PLACES_PER_VALUE, 3 * PLACES_PER_VALUE - 1, 3 * count - 1):
        assert firsts(both.index.places_from(1, offset, 1)) == [offset // 3 * 3]
    assert firsts(both.index.places_from(1, 7, 3)) == [6, 9, 12]
    assert firsts(both.index.places_from(1, 0, 1000)) == [3 * n for n in range(count)]
    assert both.index.places_from(3, 5, 9) == []
    assert firsts(both.index.places_from(1, 2**64 - 1, 9)) == [3 * (count - 1)]


def test_moved_rows_replace_or_stand_beside(both: Both) -> None:
    both.commit(places={1: [row(n) for n in range(2 * PLACES_PER_VALUE)]})
    both.commit(moved={1: [row(7, group=50), row(PLACES_PER_VALUE, group=51)], 4: [row(3), row(1)]})
    assert [Place.unpack(place).group for place in both.index.places_from(1, 6, 3)] == [5, 50, 5]
    assert len(both.index.places_from(1, 0, 1000)) == 2 * PLACES_PER_VALUE
    assert firsts(both.index.places_from(4, 1, 9)) == [1, 3]
    assert firsts(both.index.places_from(4, 0, 9)) == [1, 3], "none begins so early: from the first on"


def test_many_rows_between_others_split_their_value(both: Both) -> None:
    both.commit(places={1: [row(1000 * n) for n in range(PLACES_PER_VALUE)]})
    added = random.Random(4).sample(range(1, 1000), 200)
    both.commit(moved={1: [row(first) for first in added]})
    assert firsts(both.index.places_from(1, 0, 999)) == sorted([*added, *range(0, 1000 * PLACES_PER_VALUE, 1000)])


def test_cut_removes_rows_below_the_floor_and_linked_stages(both: Both) -> None:
    count = 2 * PLACES_PER_VALUE
    both.commit(places={1: [row(2 * n, 2) for n in range(count)], 5: [row(0)], 6: [row(0)], 2: [row(0)]})
    both.commit(places={1: [row(2 * count, 1, link=5), row(2 * count + 1, 1, link=6), row(2 * count + 2)]})
    both.commit(cuts={1: 7})
    assert firsts(both.index.places_from(1, 0, 1)) == [6], "a row that the floor lies in stays"
    both.commit(cuts={1: 2 * count + 1})
    assert firsts(both.index.places_from(1, 0, 99)) == [2 * count + 1, 2 * count + 2]
    assert both.index.places_from(5, 0, 9) == []
    assert firsts(both.index.places_from(6, 0, 9)) == [0]
    both.commit(cuts={1: WHOLE_EXTENT, 77: 3})
    assert both.index.places_from(1, 0, 9) == both.index.places_from(6, 0, 9) == []
    assert firsts(both.index.places_from(2, 0, 9)) == [0]


# --- ids -------------------------------------------------------------------------------------------------------------


def id_of(number: int) -> bytes:
    return random.Random(number).randbytes(16)


def id_value(number: int) -> bytes:
    return pack(b"d" * 16, 1, number, 10**9, 1)


def test_ids_are_found_newest_first_through_merges(both: Both) -> None:
    model: dict[bytes, bytes] = {}
    for commit in range(12):
        added = {id_of(20 * commit + n): id_value(n) for n in range(40)}
        both.commit(ids=added)
        model |= added
        while both.writer.maintain():
            both.index.refresh()
        assert both.index.find_ids([*model, b"unknown unknown!"]) == model


def in_the_middle_of_a_merge(directory: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Both, dict[bytes, bytes]]:
    """Runs of some thousand ids, and a merge of them that has made its first step of many."""
    monkeypatch.setattr(id_merge, "SLICE_ROWS", 1_000)
    writer = LmdbWriter(directory, durable=False)
    both = Both(writer, writer.index())
    model: dict[bytes, bytes] = {}
    while plan_merge(writer._meta.runs) is None:
        added = {id_of(500 * len(model) + n): id_value(n) for n in range(1_000)}
        both.commit(ids=added)
        model |= added
    assert writer.maintain()
    assert writer._merge is not None
    return both, model


def test_commits_between_the_steps_of_a_merge_are_newer_than_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, model = in_the_middle_of_a_merge(tmp_path, monkeypatch)
    writer = both.writer
    assert isinstance(writer, LmdbWriter)
    known = list(model)
    steps = 0
    while writer._merge is not None:
        changed = {known[7 * steps + n]: id_value(10**6 + steps) for n in range(3)} | {
            id_of(-1 - steps): id_value(steps)
        }
        both.commit(ids=changed)
        model |= changed
        assert both.index.find_ids([*model, b"unknown unknown!"]) == model
        writer.maintain()
        both.index.refresh()
        steps += 1
    assert steps > 3
    assert both.index.find_ids([*model, b"unknown unknown!"]) == model
    while writer.maintain():
        both.index.refresh()
    assert both.index.find_ids([*model, b"unknown unknown!"]) == model
    named = {info.number for info in writer._meta.runs}
    assert {int(match[1]) for name in os.listdir(tmp_path) if (match := NAME.fullmatch(name))} == named
    writer.close()


def test_failed_commit_leaves_the_merge_under_way_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both, model = in_the_middle_of_a_merge(tmp_path, monkeypatch)
    with monkeypatch.context() as broken:
        broken.setattr(lmdb_writer, "_put_rows", mock.Mock(side_effect=DiskFull("no room")))
        with pytest.raises(DiskFull):
            both.commit(ids={id_of(-1): id_value(1)})
    while both.writer.maintain():
        both.index.refresh()
    assert both.index.find_ids([*model, id_of(-1)]) == model
    both.writer.close()


def test_writer_that_ends_in_the_middle_of_a_merge_leaves_the_runs_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, model = in_the_middle_of_a_merge(tmp_path, monkeypatch)
    both.writer.close()
    writer = LmdbWriter(tmp_path, durable=False)
    index = writer.index()
    index.refresh()
    assert index.find_ids(list(model)) == model
    named = {info.number for info in writer._meta.runs}
    assert {int(match[1]) for name in os.listdir(tmp_path) if (match := NAME.fullmatch(name))} == named
    writer.close()


# --- on disk ---------------------------------------------------------------------------------------------------------


def test_second_writer_is_refused(tmp_path: Path) -> None:
    writer = LmdbWriter(tmp_path)
    with pytest.raises(DirectoryInUse):
        LmdbWriter(tmp_path)
    writer.close()
    LmdbWriter(tmp_path).close()


def test_changes_for_another_position_are_refused(tmp_path: Path) -> None:
    both = Both(writer := LmdbWriter(tmp_path, durable=False), writer.index())
    both.commit()
    both.position = Position()
    with pytest.raises(StorageError, match="stands at group 1"):
        both.commit()
    writer.close()


def test_reader_opens_before_the_first_commit_and_sees_later_ones(tmp_path: Path) -> None:
    begin_read, begin_write = os.pipe()
    pid = os.fork()
    if pid == 0:  # LMDB may be opened once per process
        os.read(begin_read, 1)
        writer = LmdbWriter(tmp_path)
        Both(writer, writer.index()).commit([(Table.STREAM, 2, stream(2))], ids={id_of(1): id_value(1)})
        os._exit(0)
    index = LmdbIndex(tmp_path)
    assert index.refresh() == Position()
    os.write(begin_write, b".")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(begin_read)
    os.close(begin_write)
    assert index.refresh().group == 1
    assert index.get(Table.STREAM, 2) == stream(2)
    assert index.find_ids([id_of(1)]) == {id_of(1): id_value(1)}
    index.close()


def test_equal_settings_are_one_object(tmp_path: Path) -> None:
    both = Both(writer := LmdbWriter(tmp_path, durable=False), writer.index())
    both.commit([(Table.STREAM, n, stream(n)) for n in (2, 3)])
    two, three = both.index.get(Table.STREAM, 2), both.index.get(Table.STREAM, 3)
    assert isinstance(two, Stream)
    assert isinstance(three, Stream)
    assert two.config is three.config
    writer.close()


def test_failed_commit_leaves_the_old_index_and_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = Both(writer := LmdbWriter(tmp_path, durable=False), writer.index())
    both.commit([(Table.STREAM, 2, stream(2))], ids={id_of(1): id_value(1)})
    names = sorted(os.listdir(tmp_path))

    def full(*_: object) -> bytes:
        raise lmdb.MapFullError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(lmdb_writer, "encode_meta", full)
        with pytest.raises(DiskFull):
            both.commit([(Table.STREAM, 2, stream(2, 99))], ids={id_of(2): id_value(2)})
    assert sorted(os.listdir(tmp_path)) == names
    assert both.index.refresh() == both.position
    both.commit([(Table.STREAM, 2, stream(2, 3))], ids={id_of(2): id_value(3)})
    assert both.index.get(Table.STREAM, 2) == stream(2, 3)
    assert both.index.find_ids([id_of(1), id_of(2)]) == {id_of(1): id_value(1), id_of(2): id_value(3)}
    writer.close()


@pytest.mark.parametrize("what", ["row", "place", "meta"])
def test_changed_value_is_named_not_served(tmp_path: Path, what: str) -> None:
    writer = LmdbWriter(tmp_path, durable=False)
    Both(writer, writer.index()).commit([(Table.STREAM, 2, stream(2))], {3: [row(0)]})
    writer.close()
    environment = lmdb.open(os.fspath(tmp_path), map_size=MAP_BYTES)
    with environment.begin(write=True) as transaction, transaction.cursor() as cursor:
        found = {"row": cursor.set_range(b"\x01"), "place": cursor.set_range(b"\x80"), "meta": cursor.last()}
        assert found[what]
        cursor.set_range({"row": b"\x01", "place": b"\x80", "meta": b"\xff"}[what])
        key, value = cursor.item()
        transaction.put(key, value[:3] + bytes([value[3] ^ 1]) + value[4:])
    environment.close()
    if what == "meta":
        with pytest.raises(Corruption, match="the meta value"):
            LmdbIndex(tmp_path).refresh()
        return
    index = LmdbIndex(tmp_path)
    index.refresh()
    if what == "row":
        with pytest.raises(Corruption, match="table STREAM, key 2"):
            index.get(Table.STREAM, 2)
    else:
        with pytest.raises(Corruption, match="places of extent 3 from offset 0"):
            index.places_from(3, 0, 1)
    index.close()


def test_value_of_places_fills_one_page() -> None:
    assert PLACES_PER_VALUE * PLACE_BYTES + 4 <= 4096 - 16


def test_places_before_a_damaged_value_are_given_and_those_in_it_are_told(tmp_path: Path) -> None:
    writer = LmdbWriter(tmp_path, durable=False)
    both = Both(writer, writer.index())
    both.commit(places={7: [row(first) for first in range(3 * PLACES_PER_VALUE)]})
    with writer._transaction(write=True) as transaction:
        key = place_key(7, PLACES_PER_VALUE)
        value = transaction.get(key)
        transaction.put(key, value[:5] + bytes([value[5] ^ 1]) + value[6:])
    assert firsts(both.index.places_from(7, 3, 1_000)) == list(range(3, PLACES_PER_VALUE))
    with pytest.raises(Corruption, match="places of extent 7 from offset 84"):
        both.index.places_from(7, PLACES_PER_VALUE, 1_000)
    behind = 2 * PLACES_PER_VALUE
    assert firsts(both.index.places_from(7, behind, 5)) == list(range(behind, behind + 5))
    both.index.close()
    writer.close()
