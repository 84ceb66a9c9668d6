"""Replay: fold groups of the journal into a state. Recovery, the index builder and `verify` all use this and no other.

A state may be replayed further only over an index that stands where the state began: a row loaded from an index that
has already seen later entries would get them twice. The server therefore recovers before it starts its builder.
"""

import struct
from collections.abc import Callable
from typing import Protocol

import msgspec

from oncelog.core.apply import apply
from oncelog.core.entry import Appended, Entry
from oncelog.core.needs import touched_by
from oncelog.core.rows import Key, Table
from oncelog.core.state import Row, State
from oncelog.core.touches import is_loaded
from oncelog.errors import Corruption
from oncelog.storage.entry_codec import decode_group

Check = Callable[[State, int, int, Entry], None]
"""Called as (state, entry number, byte in the group, entry), when its rows are loaded and before it is applied."""


class Counters(Protocol):
    """Where an index stands, and what no row of it holds."""

    entry_number: int
    time_ns: int
    next_id: int
    next_producer_id: int


class Rows(Protocol):
    """The part of an index that replay needs."""

    def refresh(self) -> Counters: ...

    def get(self, table: Table, key: Key) -> Row | None: ...


class NotesPlaces(Protocol):
    """Who wants to know where batches lie."""

    def add_entry(self, entry: Entry, group: int, entry_at: int) -> None: ...


def state_at(index: Rows) -> State:
    """An empty state whose counters stand where the index does."""
    position = index.refresh()
    state = State()
    state.entry_number = position.entry_number
    state.time_ns = position.time_ns
    state.next_id = position.next_id
    state.next_producer_id = position.next_producer_id
    return state


def replay_group(
    state: State,
    index: Rows,
    places: NotesPlaces,
    group: int,
    payload: bytes,
    *,
    check: Check | None = None,
    front: bool = False,
) -> int:
    """Apply every entry of one group; returns how many. Raises `Corruption` if one does not follow from the state.

    `front` says that the journal was trimmed and this is the first group retained: its first entry may have any number.
    """
    count = 0
    for number, entry_at, entry in decode_group(payload):
        if number != state.entry_number + 1:
            if not front or count:
                raise Corruption(f"group {group} holds entry {number}, expected {state.entry_number + 1}")
            state.entry_number = number - 1
        try:
            if type(entry) is not Appended or not is_loaded(state, entry):
                load(state, index, entry)
            if check is not None:
                check(state, number, entry_at, entry)
            apply(state, entry)
        except (AssertionError, IndexError, KeyError, ValueError, struct.error, msgspec.DecodeError) as error:
            # The frame's checksum holds, so these bytes were written: by a bug, or by another hand. Name the entry.
            raise Corruption(
                f"entry {number} in group {group} does not follow from the ones before: {error}"
            ) from error
        places.add_entry(entry, group, entry_at)
        count += 1
    return count


def load(state: State, index: Rows, entry: Entry) -> None:
    """Load what `apply` will touch. Rows lead to further keys, so ask until nothing is missing."""
    while missing := touched_by(state, entry):
        for table, key in missing:
            if key not in state.tables[table]:
                state.tables[table][key] = index.get(table, key)
