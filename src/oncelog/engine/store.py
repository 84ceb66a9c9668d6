"""Opening a log: recover the journal, bring the index up, replay what is newer. Nothing is revealed before the end.

    1. the index says how far it got (its position), or that there is none
    2. the journal is recovered from there: torn tail cut, damage refused, last group written again, proof appended
    3. if the tail is too long to hold in memory, the index builder works it off first
    4. the rest is replayed into the writer's state with the builder's own code

Every step may be cut short by a crash and is simply done again (P10).
"""

from collections.abc import Callable
from contextlib import suppress

import msgspec

from oncelog import limits
from oncelog.core.rows import Table
from oncelog.core.state import State
from oncelog.engine.read_view import ReadView, take_changes
from oncelog.engine.timers import Timers
from oncelog.errors import DiskFault, DiskFull
from oncelog.storage.disk import Disk
from oncelog.storage.index.interface import Index
from oncelog.storage.index.places import Places
from oncelog.storage.journal import Journal
from oncelog.storage.replay import replay_group, state_at

_ROWS_PER_SCAN = 1_000


class Store(msgspec.Struct):
    """An opened log, before anybody writes to it."""

    journal: Journal
    index: Index
    state: State
    places: Places
    timers: Timers
    view: ReadView
    indexed_group: int
    replayed_entries: int


def open_store(disk: Disk, index: Index, catch_up: Callable[[int], None], *, segment_bytes: int, salt: int) -> Store:
    """Recover. `catch_up` builds the index up to a durable group and returns when it is done. No other builder may be
    at work: a row that it changes under us would get later entries twice.

    Raises Corruption, DiskFault, DiskFull; nothing was changed by then but the tail.
    """
    position = index.refresh()
    journal = Journal.open(disk, segment_bytes=segment_bytes, salt=salt, from_group=position.after)
    if journal.bytes_between(max(position.group, 0), journal.durable_group) > limits.INDEX_LAG_BYTES_MAX:
        # An index that has no room must not keep anybody from reading: the tail is then held in memory, however long.
        with suppress(DiskFull):
            catch_up(journal.durable_group)
        position = index.refresh()
    state = state_at(index)
    places = Places()
    first_entry = state.entry_number
    try:
        for group, payload in journal.groups(position.after):
            replay_group(state, index, places, group, payload)
    except OSError as error:
        raise DiskFault(f"cannot replay the journal: {error.strerror}", hint="check the device") from error
    timers = Timers(journal.payload_bytes_max, state.txns)
    for table in (Table.TXN, Table.STAGE):
        _watch(table, index, state, timers)
    view = ReadView(index, first_entry)
    view.reveal(take_changes(state, view), state.entry_number)
    replayed = state.entry_number - first_entry
    return Store(journal, index, state, places, timers, view, position.group, replayed)


def _watch(table: Table, index: Index, state: State, timers: Timers) -> None:
    """Set timers for every txn and stage, newer rows first."""
    for row in state.tables[table].values():
        if row is not None:
            timers.add_row(table, row)
    after = None
    while rows := index.scan(table, after, _ROWS_PER_SCAN):
        for key, row in rows:
            if key not in state.tables[table]:
                timers.add_row(table, row)
        after = rows[-1][0]
