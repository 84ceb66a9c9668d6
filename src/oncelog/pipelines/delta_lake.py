"""A Delta table without jars: delta-rs commits what the executors have written.

The place is kept in Delta's application transactions, one for each partition of a topic:

    txn  appId = "oncelog:<topic>:<partition>"   version = offset behind the last record
    txn  appId = "oncelog:<topic>:created"       version = when the topic was made, in milliseconds

They are carried through Delta's own checkpoints and log clean-up. A commit that was prepared against an older version
of the table is refused by delta-rs if another commit has moved one of the same transactions since; a commit prepared
against the newest one is taken whatever its version says, so the caller compares first (`land`).
"""

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from oncelog.pipelines.lake import Ends, Held, LostRace
from oncelog.pipelines.lake_files import DataFile
from oncelog.pipelines.lake_place import TablePlace, place_of

MARK: Final = "oncelog.commit"
"""What a commit is known by to the one that wrote it."""

ALTER_ATTEMPTS_MAX: Final = 20
"""Changes of a schema that other commits may be quicker than."""

COMMITS_LOOKED_AT: Final = 100
"""For one's own commit, when no answer came. Others write no more while one question is asked."""


def transaction_of(topic: str, about: int | Literal["created"]) -> str:
    """The application id under which the table keeps a partition's place, or when the topic was made."""
    return f"oncelog:{topic}:{about}"


class DeltaLake:
    """See `lake.LakeTable`."""

    def __init__(self, place: TablePlace | str) -> None:
        self.place = place_of(place) if isinstance(place, str) else place
        self._uri = self.place.address
        self._options = self.place.options or None

    def _table(self) -> DeltaTable | None:
        return self._opened() if self.is_there() else None

    def _opened(self) -> DeltaTable:
        return DeltaTable(self._uri, storage_options=self._options)

    def is_there(self) -> bool:
        """Whether it has a log."""
        return bool(DeltaTable.is_deltatable(self._uri, self._options))

    def schema(self) -> Any | None:
        """From the table's metadata."""
        from pyspark.sql.pandas.types import from_arrow_schema

        table = self._table()
        return None if table is None else from_arrow_schema(pa.schema(table.schema().to_arrow()))

    def partition_by(self) -> list[str]:
        """From the table's metadata."""
        table = self._table()
        return [] if table is None else list(table.metadata().partition_columns)

    def create(self, schema: Any, partition_by: Sequence[str]) -> None:
        """A table that is there is left as it is."""
        from pyspark.sql.pandas.types import to_arrow_schema

        DeltaTable.create(
            self._uri,
            to_arrow_schema(schema, timezone="UTC"),
            mode="ignore",
            partition_by=list(partition_by),
            storage_options=self._options,
        )

    def add_columns(self, columns: Any, note: Mapping[str, str]) -> None:
        """One version of the table, without a file."""
        from pyspark.sql.pandas.types import to_arrow_schema

        wanted = Schema.from_arrow(to_arrow_schema(columns, timezone="UTC")).fields
        for _ in range(ALTER_ATTEMPTS_MAX):
            table = self._opened()
            there = {field.name for field in table.schema().fields}
            missing = [field for field in wanted if field.name not in there]
            if not missing:
                return
            try:
                table.alter.add_columns(missing, commit_properties=CommitProperties(custom_metadata=dict(note)))
            except CommitFailedError:
                continue  # another commit was quicker: the columns may be there now
            return
        raise LostRace("the table is changed by others all the time")

    def held(self, topic: str, partitions: Sequence[int]) -> Held:
        """From the newest version."""
        table = self._opened()
        versions = {partition: table.transaction_version(transaction_of(topic, partition)) for partition in partitions}
        ends = {partition: version for partition, version in versions.items() if version is not None}
        return Held(ends, table.transaction_version(transaction_of(topic, "created")), table)

    def commit(self, held: Held, topic: str, files: Sequence[DataFile], ends: Ends, note: Mapping[str, str]) -> None:
        """One version of the table."""
        table: DeltaTable = held.snapshot
        now_ms = time.time_ns() // 1_000_000
        actions = [
            AddAction(file.path, file.size, file.partition_values, now_ms, True, json.dumps(file.stats))
            for file in files
        ]
        transactions = [
            Transaction(transaction_of(topic, partition), end, now_ms) for partition, end in sorted(ends.items())
        ]
        if held.created_ms is not None:
            transactions.append(Transaction(transaction_of(topic, "created"), held.created_ms, now_ms))
        mark = uuid.uuid4().hex
        properties = CommitProperties(custom_metadata={**note, MARK: mark}, app_transactions=transactions)
        try:
            table.create_write_transaction(
                list(actions), "append", table.schema(), self.partition_by() or None, commit_properties=properties
            )
        except DeltaError as error:
            if self._is_marked(mark):
                return  # it is done, and only the answer was lost
            newest = self.held(topic, list(ends)).ends
            if newest != {partition: end for partition, end in held.ends.items() if partition in ends}:
                raise LostRace(f"the table was moved to {newest} meanwhile: {error}") from error
            raise

    def _is_marked(self, mark: str) -> bool:
        """Whether one of the last commits has the mark. Others may have come behind it."""
        return any(commit.get(MARK) == mark for commit in self._opened().history(COMMITS_LOOKED_AT))

    def files(self) -> list[str]:
        """Of the newest version."""
        return list(self._opened().file_uris())
