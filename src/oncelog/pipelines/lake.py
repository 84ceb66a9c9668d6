"""What `land` needs of a table: how far it holds each partition of a topic, and to take files and a new place as one.

The place is kept in the table itself, as the offset behind the last record of each partition that it holds. It is
neither a number of Spark's batches nor a name of a query, so it means the same after a checkpoint was lost, after the
size of batches was changed, and to another program. Two forms: `delta_lake` and `parquet_lake`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from oncelog.pipelines.lake_files import DataFile
from oncelog.pipelines.lake_place import TablePlace

Ends = dict[int, int]
"""Partition → offset behind the last record that the table holds. A partition that is not in it was never landed."""


class Held(msgspec.Struct):
    """A table at one moment. A commit is made against this moment, never against a later one."""

    ends: Ends
    created_ms: int | None
    """When the landed topic was made. Another one of the same name has another time. None: nothing of it was landed."""
    snapshot: Any
    """The table's own; what it is belongs to its form."""


class LakeTable(Protocol):
    """A table that rows are landed in."""

    place: TablePlace

    def is_there(self) -> bool:
        """Whether somebody has made it."""

    def schema(self) -> Any | None:
        """All columns, as Spark has them; None if there is no table yet."""

    def partition_by(self) -> list[str]:
        """The columns whose values are folders."""

    def create(self, schema: Any, partition_by: Sequence[str]) -> None:
        """Makes the table. Whoever made it a moment earlier did the same."""

    def add_columns(self, columns: Any, note: Mapping[str, str]) -> None:
        """Nullable columns, in a commit of its own. A column that is there already is left as it is."""

    def held(self, topic: str, partitions: Sequence[int]) -> Held:
        """How far it holds the topic now."""

    def commit(self, held: Held, topic: str, files: Sequence[DataFile], ends: Ends, note: Mapping[str, str]) -> None:
        """Files and place become true together, with `held.created_ms`. LostRace if another has moved the place."""

    def files(self) -> list[str]:
        """Whole paths of the files that count."""


class LostRace(Exception):
    """Another lander committed first. Nothing of this one is in the table."""
