"""Places: packed rows found by offset, equal to a plain list; moved rows; dropping in slices."""

from hypothesis import given
from hypothesis import strategies as st

from oncelog.core import batch as codec
from oncelog.core.entry import CONTROL, Appended, Compound, Moved, Operation, StageAppended, StagePublished
from oncelog.storage.index.places import (
    LINK,
    PLACE,
    PLACE_BYTES,
    Place,
    Places,
    first_of,
    next_of,
    put_row,
    row_at_or_before,
)

MARKER = codec.encode_marker(5, 0, True, 0, 1_000)
BATCH = codec.encode_values([b"v"], 1_000)


def place_of(places: Places, extent: int, offset: int) -> Place | None:
    rows = places.rows_from(extent, offset, 1)
    return Place.unpack(rows[0]) if rows else None


def appended(extent: int, first: int, count: int = 1, flags: int = 0) -> Appended:
    return Appended(extent, first, count, BATCH, 7, flags, batch_at=40)


def drop(places: Places, group: int, extents_max: int = 100) -> int:
    """Drop everything; returns after how many slices."""
    return 1 + sum(1 for _ in places.drop_through(group, extents_max))


def test_place_of_an_append_names_group_byte_and_size() -> None:
    places = Places()
    places.add_entry(appended(1, 10, 5), group=3, entry_at=100)
    assert place_of(places, 1, 12) == Place(10, 3, 140, 7, 5, len(BATCH), 0)
    assert place_of(places, 1, 9) is None
    assert place_of(places, 1, 15) is None
    assert place_of(places, 2, 12) is None


def test_compound_notes_every_batch_and_links_a_published_stage() -> None:
    places = Places()
    operations: list[Operation] = [
        StageAppended(9, 0, 2, BATCH, b"", batch_at=50),
        Appended(1, 0, 1, MARKER, 0, CONTROL, batch_at=90),
        StagePublished(9, 1, 1, 2),
    ]
    places.add_entry(Compound(7, operations), group=4, entry_at=12)
    assert place_of(places, 9, 1) == Place(0, 4, 62, 7, 2, len(BATCH), 0)
    assert place_of(places, 1, 0) == Place(0, 4, 102, 7, 1, len(MARKER), CONTROL)
    assert place_of(places, 1, 2) == Place(1, 4, 9, 7, 2, 0, LINK)


def test_moved_batch_is_found_at_its_new_place_and_keeps_time_and_kind() -> None:
    places = Places()
    places.add_entry(appended(1, 100), group=3, entry_at=0)
    moved: list[Operation] = [Moved(1, 5, 2, BATCH, 3, batch_at=30), Moved(1, 7, 1, MARKER, 3, batch_at=60)]
    places.add_entry(Compound(9, moved), group=8, entry_at=0)
    assert place_of(places, 1, 6) == Place(5, 8, 30, 3, 2, len(BATCH), 0)
    assert place_of(places, 1, 7) == Place(7, 8, 60, 3, 1, len(MARKER), CONTROL)
    # Between the moved rows and the appended ones only the index knows.
    assert place_of(places, 1, 8) is None
    assert [Place.unpack(row).first for row in places.rows_from(1, 5, 10)] == [5, 7]
    places.add_entry(Compound(9, [Moved(1, 100, 1, BATCH, 7, batch_at=1)]), group=9, entry_at=0)
    found = place_of(places, 1, 100)
    assert found is not None
    assert found.group == 9


def test_rows_from_follow_without_a_gap_up_to_the_limit() -> None:
    places = Places()
    for first in range(0, 20, 2):
        places.add_entry(appended(1, first, 2), group=first + 1, entry_at=0)
    assert [Place.unpack(row).first for row in places.rows_from(1, 7, 3)] == [6, 8, 10]
    assert places.rows_from(1, 20, 3) == []
    assert len(places.rows_from(1, 0, 100)) == 10


def test_drop_through_keeps_newer_rows_and_works_in_slices() -> None:
    places = Places()
    for extent in range(10):
        places.add_entry(appended(extent, 0), group=1, entry_at=0)
        places.add_entry(appended(extent, 1), group=extent, entry_at=0)
    slices = places.drop_through(5, 3)
    next(slices)
    # In the middle of the work places are added and found.
    places.add_entry(appended(99, 0), group=6, entry_at=0)
    assert place_of(places, 9, 1) is not None
    assert sum(1 for _ in slices) == 2
    assert len(places) == 5
    assert [extent for extent in range(10) if place_of(places, extent, 1)] == [6, 7, 8, 9]
    assert all(place_of(places, extent, 0) is None for extent in range(10))
    drop(places, 100)
    assert len(places) == 0


def test_moved_rows_are_dropped_by_their_own_group() -> None:
    places = Places()
    for first, group in ((8, 3), (2, 4), (5, 2)):
        places.add_entry(Compound(9, [Moved(1, first, 1, BATCH, 7, batch_at=0)]), group=group, entry_at=0)
    drop(places, 3)
    assert [place_of(places, 1, first) is not None for first in (2, 5, 8)] == [True, False, False]
    drop(places, 4)
    assert len(places) == 0


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 5)), unique_by=lambda row: row[0]), st.integers(0, 70))
def test_packed_search_equals_a_plain_list(pairs: list[tuple[int, int]], offset: int) -> None:
    rows = bytearray()
    for first, count in pairs:
        put_row(rows, PLACE.pack(first, 1, 0, 0, count, 0, 0, 0))
    plain = sorted(pairs)
    assert [(first_of(rows, at)) for at in range(0, len(rows), PLACE_BYTES)] == [first for first, _ in plain]
    at = row_at_or_before(rows, offset)
    below = [pair for pair in plain if pair[0] <= offset]
    assert (at >= 0) == bool(below)
    if below:
        assert next_of(rows, at) == sum(below[-1])
