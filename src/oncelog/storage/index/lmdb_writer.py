"""The index on disk, writing side. One process holds its lock; format and checks are in `lmdb_index.py`.

The order of a commit is its safety argument:

 1. The run of new ids is written and synced, under a number never used before. Nobody names it yet.
 2. One LMDB transaction: rows, places, and the meta value with the position and all runs. Synced.

A crash before 2 ends leaves the old index and a file that the next start removes. A merge of runs is the same with
other runs and the same position; commits may come between its steps, since what they bring is newer than all of it.
"""

import contextlib
import fcntl
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import lmdb

from oncelog.errors import DirectoryInUse, StorageError
from oncelog.storage.index.id_merge import merging, plan_merge, remove_unnamed, write_run
from oncelog.storage.index.id_run_file import RunInfo
from oncelog.storage.index.interface import WHOLE_EXTENT, Changes
from oncelog.storage.index.lmdb_index import (
    META_KEY,
    PLACES_PER_VALUE,
    LmdbIndex,
    Meta,
    encode_meta,
    extent_of,
    open_environment,
    place_key,
    read_meta,
    row_key,
    seal,
    seek_value,
    storage_error,
    unseal,
)
from oncelog.storage.index.places import PLACE_BYTES, first_of, links_in, next_of, put_row

LOCK_NAME: Final = "builder.lock"
_VALUE_BYTES: Final = PLACES_PER_VALUE * PLACE_BYTES


def take_lock(directory: Path, *, wait: bool) -> int:
    """The descriptor that holds the writer's lock. Without `wait`, `DirectoryInUse` if another process has it."""
    lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(lock)
        raise DirectoryInUse("another process builds this index", file=str(directory), hint="stop it first") from None
    except BaseException:
        os.close(lock)
        raise
    return lock


class _Merge(NamedTuple):
    """A merge under way."""

    number: int
    chosen: list[int]
    steps: Generator[None, None, RunInfo]


class LmdbWriter:
    """Implements `IndexWriter`. Reading in the same process goes through `index()`: LMDB may be opened only once."""

    def __init__(self, directory: Path, *, wait: bool = False, durable: bool = True) -> None:
        """`wait` for a writer that is about to end. An index that ends with its process need not be `durable`."""
        self._directory = directory
        self._merge: _Merge | None = None
        self._lock = take_lock(directory, wait=wait)
        try:
            self._environment = open_environment(directory, write=True, durable=durable)
        except BaseException:
            os.close(self._lock)
            raise
        try:
            # Slots of killed readers would keep old pages from being reused for ever.
            self._environment.reader_check()
            with self._transaction(write=False) as transaction:
                self._meta = read_meta(transaction, directory)
            remove_unnamed(directory, self._meta.runs)
        except BaseException:
            self.close()
            raise
        self._next_run = self._meta.next_run

    def index(self) -> LmdbIndex:
        """A reader over the same environment."""
        return LmdbIndex(self._directory, environment=self._environment)

    def close(self) -> None:
        if self._merge is not None:
            self._merge.steps.close()
        self._environment.close()
        os.close(self._lock)

    def commit(self, changes: Changes) -> None:
        if changes.before != self._meta.position:
            raise StorageError(
                f"the index stands at group {self._meta.position.group}, the changes begin at {changes.before.group}"
            )
        runs = self._meta.runs
        if changes.ids:
            runs = [*runs, write_run(self._directory, self._take_run_number(), changes.ids, runs)]
        meta = Meta(position=changes.position, runs=runs, next_run=self._next_run)
        try:
            with self._transaction(write=True) as transaction:
                _put_rows(transaction, changes)
                _Places(transaction, self._directory).put(changes)
                transaction.put(META_KEY, encode_meta(meta))
        except BaseException:
            self._remove_leftovers()
            raise
        self._meta = meta

    def maintain(self) -> bool:
        """A slice of a merge of runs of ids, if one is under way or the plan asks for one."""
        merge = self._merge = self._merge or self._planned()
        if merge is None:
            return False
        try:
            next(merge.steps)
            return True
        except StopIteration as done:
            merged: RunInfo = done.value
        except BaseException:
            self._merge = None
            raise
        self._merge = None
        runs = [info for info in self._meta.runs if info.number not in merge.chosen]
        meta = Meta(position=self._meta.position, runs=[*runs, merged], next_run=self._next_run)
        try:
            with self._transaction(write=True) as transaction:
                transaction.put(META_KEY, encode_meta(meta))
            self._meta = meta
        finally:
            # The merged ones if it went well, the new one if not.
            self._remove_leftovers()
        return True

    def _planned(self) -> _Merge | None:
        live = self._meta.runs
        chosen = plan_merge(live)
        if chosen is None:
            return None
        by_number = {info.number: info for info in live}
        number = self._take_run_number()
        runs = [by_number[chosen_number] for chosen_number in chosen]
        return _Merge(number, chosen, merging(self._directory, runs, number, live=live))

    def _take_run_number(self) -> int:
        """Also after a failure the next attempt gets another one: a file is never written over."""
        number = self._next_run
        self._next_run += 1
        return number

    def _remove_leftovers(self) -> None:
        # What cannot be removed now is removed at the next start.
        with contextlib.suppress(StorageError):
            unfinished = None if self._merge is None else self._merge.number
            remove_unnamed(self._directory, self._meta.runs, unfinished)

    @contextlib.contextmanager
    def _transaction(self, *, write: bool) -> Iterator[Any]:
        """Committed if the block ends well."""
        try:
            with self._environment.begin(write=write) as transaction:
                yield transaction
        except lmdb.Error as error:
            raise storage_error(error, self._directory) from error


def _put_rows(transaction: Any, changes: Changes) -> None:
    stored: list[tuple[bytes, bytes]] = []
    for table, data, row in changes.rows:
        key = row_key(table, data)
        if row is None:
            transaction.delete(key)
        else:
            stored.append((key, seal(key, row)))
    with transaction.cursor() as cursor:
        # One call for all: every single put would give up the interpreter lock and take it back.
        cursor.putmulti(stored)


class _Places:
    """The places of one commit, on their way into packed values.

    Invariant: the values of an extent cover disjoint, ascending stretches, and each is keyed by its first row's offset.
    """

    def __init__(self, transaction: Any, directory: Path) -> None:
        self._transaction = transaction
        self._directory = directory
        self._cursor = transaction.cursor()

    def put(self, changes: Changes) -> None:
        stored: list[tuple[bytes, bytes]] = []
        for extent in sorted(changes.places):
            self._append(extent, changes.places[extent], stored)
        self._cursor.putmulti(stored)
        for extent, rows in changes.moved.items():
            for row in rows:
                self._put_row(extent, row)
        for extent, floor in changes.cuts.items():
            self._cut(extent, floor)

    def _append(self, extent: int, rows: bytearray, stored: list[tuple[bytes, bytes]]) -> None:
        """Fill the last value up, then begin new ones."""
        begin = 0
        if seek_value(self._cursor, extent, WHOLE_EXTENT):
            key, last = self._item()
            begin = min(_VALUE_BYTES - len(last), len(rows))
            if begin > 0:
                stored.append((key, seal(key, last + rows[:begin])))
            begin = max(0, begin)
        for at in range(begin, len(rows), _VALUE_BYTES):
            value = rows[at : at + _VALUE_BYTES]
            key = place_key(extent, first_of(value))
            stored.append((key, seal(key, value)))

    def _put_row(self, extent: int, row: bytes) -> None:
        rows = bytearray()
        if seek_value(self._cursor, extent, first_of(row)):
            rows += self._item()[1]
        put_row(rows, row)
        half = len(rows) // 2 // PLACE_BYTES * PLACE_BYTES
        for part in (rows,) if len(rows) <= _VALUE_BYTES else (rows[:half], rows[half:]):
            self._store(extent, part)

    def _cut(self, extent: int, floor: int) -> None:
        """Remove rows that end at or below the floor, and the extents that removed links stand for."""
        while self._cursor.set_range(place_key(extent, 0)) and extent_of(self._cursor.key()) == extent:
            key, rows = self._item()
            end = 0
            while end < len(rows) and next_of(rows, end) <= floor:
                end += PLACE_BYTES
            if end:
                self._transaction.delete(key)
                for linked in links_in(rows[:end]):
                    self._cut(linked, WHOLE_EXTENT)
            if end < len(rows):
                if end:
                    self._store(extent, rows[end:])
                return

    def _item(self) -> tuple[bytes, bytes]:
        key, value = self._cursor.item()
        return key, unseal(key, value, self._directory)

    def _store(self, extent: int, rows: bytes | bytearray) -> None:
        key = place_key(extent, first_of(rows))
        self._transaction.put(key, seal(key, rows))
