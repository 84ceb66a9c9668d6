"""A folder of Parquet files, with a list of those that count.

    <table>/part-….parquet, <table>/<column>=<value>/part-….parquet
    <table>/_oncelog/commits/00000000000000000000.json, …1.json, …

A commit is one file of JSON: the data files that it adds, and how far each partition of each topic is in the table with
it. It is written under a name of its own, synced, and then linked to its number, which fails if the number is taken: of
two landers one gets it. The last commit tells the place, all commits together tell the files.

Why not Spark's own file sink: its list (`_spark_metadata`) goes by the number of the batch, so it doubles or drops rows
after a lost checkpoint, it takes two writers at once, and only Spark reads it. A hard link needs a file system of the
machine or one that is mounted; object stores are for Delta.
"""

import contextlib
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from oncelog.pipelines.lake import Ends, Held, LostRace
from oncelog.pipelines.lake_files import DataFile
from oncelog.pipelines.lake_place import TablePlace, place_of, sync_folder, sync_folders
from oncelog.pipelines.running import PipelineRefused

NUMBER_DIGITS: Final = 20
_NUMBERED: Final = re.compile(r"(\d{20})\.json")


class Commit(msgspec.Struct, omit_defaults=True):
    """One file of the list."""

    schema: str
    """The table's, as Spark spells it in JSON."""
    partition_by: list[str]
    ends: dict[str, dict[str, int]]
    """Of every topic in the table, also of those that this commit did not touch."""
    created: dict[str, int] = {}
    """When each topic in the table was made, in milliseconds."""
    files: list[DataFile] = []
    note: dict[str, str] = {}


class ParquetLake:
    """See `lake.LakeTable`."""

    def __init__(self, place: TablePlace | str) -> None:
        self.place = place_of(place) if isinstance(place, str) else place
        folder = self.place.folder
        if folder is None:
            raise PipelineRefused(
                f"{self.place.address}: a Parquet table is a folder of a file system; for an object store use delta"
            )
        self._folder = folder
        self._commits = self._folder / "_oncelog" / "commits"

    def is_there(self) -> bool:
        """Whether it has a commit."""
        return self._last() is not None

    def schema(self) -> Any | None:
        """From the last commit."""
        from pyspark.sql.types import StructType

        last = self._last()
        return None if last is None else StructType.fromJson(msgspec.json.decode(last[1].schema))

    def partition_by(self) -> list[str]:
        """From the last commit."""
        last = self._last()
        return [] if last is None else last[1].partition_by

    def create(self, schema: Any, partition_by: Sequence[str]) -> None:
        """A table that is there is left as it is."""
        self._commits.mkdir(parents=True, exist_ok=True)
        sync_folders(self._commits, self._folder)
        if self._last() is None:
            with contextlib.suppress(LostRace):
                self._write(0, Commit(schema.json(), list(partition_by), {}))

    def add_columns(self, columns: Any, note: Mapping[str, str]) -> None:
        """The next number, without a file."""
        from pyspark.sql.types import StructType

        while True:
            last = self._last()
            assert last is not None, "the table was created before"
            number, before = last
            schema = StructType.fromJson(msgspec.json.decode(before.schema))
            missing = [field for field in columns.fields if field.name not in schema.names]
            if not missing:
                return None
            whole = StructType([*schema.fields, *missing])
            try:
                commit = Commit(whole.json(), before.partition_by, before.ends, before.created, [], dict(note))
                return self._write(number + 1, commit)
            except LostRace:
                continue

    def held(self, topic: str, partitions: Sequence[int]) -> Held:
        """From the last commit."""
        last = self._last()
        assert last is not None, "the table was created before"
        number, commit = last
        ends = {int(partition): end for partition, end in commit.ends.get(topic, {}).items()}
        ends = {partition: end for partition, end in ends.items() if partition in partitions}
        return Held(ends, commit.created.get(topic), number)

    def commit(self, held: Held, topic: str, files: Sequence[DataFile], ends: Ends, note: Mapping[str, str]) -> None:
        """The next number, if it is still free; if another topic took it, the one behind that."""
        number: int = held.snapshot
        while True:
            try:
                return self._commit_behind(number, held, topic, files, ends, note)
            except LostRace:
                now = self.held(topic, list(ends))
                if now.ends != {part: end for part, end in held.ends.items() if part in ends}:
                    raise
                number = now.snapshot

    def _commit_behind(
        self, number: int, held: Held, topic: str, files: Sequence[DataFile], ends: Ends, note: Mapping[str, str]
    ) -> None:
        before = self._read(self._commits / _name(number))
        moved = {topic: before.ends.get(topic, {}) | {str(partition): end for partition, end in ends.items()}}
        created = before.created if held.created_ms is None else before.created | {topic: held.created_ms}
        commit = Commit(before.schema, before.partition_by, before.ends | moved, created, list(files), dict(note))
        self._write(number + 1, commit)

    def files(self) -> list[str]:
        """Of all commits."""
        return [str(self._folder / file.path) for path in self._numbered() for file in self._read(path).files]

    def _numbered(self) -> list[Path]:
        if not self._commits.is_dir():
            return []
        return sorted(path for path in self._commits.iterdir() if _NUMBERED.fullmatch(path.name))

    def _last(self) -> tuple[int, Commit] | None:
        numbered = self._numbered()
        return (int(numbered[-1].stem), self._read(numbered[-1])) if numbered else None

    def _read(self, path: Path) -> Commit:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Commit)
        except msgspec.DecodeError as error:
            raise PipelineRefused(f"{path} is not what was written: {error}") from error

    def _write(self, number: int, commit: Commit) -> None:
        draft = self._commits / f".{uuid.uuid4().hex}"
        with draft.open("xb") as file:
            file.write(msgspec.json.encode(commit))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, self._commits / _name(number))
            sync_folder(self._commits)
        except FileExistsError:
            raise LostRace(f"commit {number} of {self._folder} was written meanwhile") from None
        finally:
            draft.unlink()


def _name(number: int) -> str:
    return f"{number:0{NUMBER_DIGITS}d}.json"
