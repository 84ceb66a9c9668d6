"""Which changes of a schema a landed table takes: new columns, which every row that is there has as null.

A column is added in a commit of its own, before the first row that fills it. A run that is repeated after a crash finds
the column in the table and adds nothing. Records that were landed before keep their bytes in `_unparsed`, where fields
that the table did not know have put them; an audit accepts them so.
"""

from typing import Any

from pyspark.sql.types import StructField, StructType

from oncelog.pipelines.json_values import RECORD_COLUMNS
from oncelog.pipelines.lake import LakeTable
from oncelog.pipelines.running import PipelineRefused


def check_evolve(evolve: str) -> None:
    """PipelineRefused for what is no way to evolve."""
    if evolve not in ("", "add"):
        raise PipelineRefused(f"evolve is add, or nothing, not {evolve!r}")


def evolved(lake: LakeTable, fields: Any, wanted: Any | None, is_given: bool, topic: str) -> Any:
    """The fields of the table with those that are wanted besides; the table has them afterwards.

    `is_given`: a user named the schema. PipelineRefused says what of it a table cannot take.
    """
    if wanted is None:
        return fields
    if is_given:
        _check_types(fields, wanted)
    known = {name.lower(): name for name in [*fields.names, *RECORD_COLUMNS]}
    added = []
    for field in wanted.fields:
        if field.name in fields.names:
            continue
        if field.name.lower() in known:
            if not is_given:
                continue  # records with it are kept in _unparsed
            raise PipelineRefused(
                f"the column {field.name!r} cannot be added: the table has {known[field.name.lower()]!r}, and no "
                "reader can tell names apart that differ only in case"
            )
        added.append(StructField(field.name, field.dataType, True))
    if not added:
        return fields
    lake.add_columns(StructType(added), {"oncelog.topic": topic, "oncelog.added": ", ".join(one.name for one in added)})
    whole = lake.schema()
    assert whole is not None, "the table is there"
    return StructType([field for field in whole.fields if field.name not in RECORD_COLUMNS])


def _check_types(fields: Any, wanted: Any) -> None:
    for field in wanted.fields:
        if field.name not in fields.names:
            continue
        has, asked = fields[field.name].dataType.simpleString(), field.dataType.simpleString()
        if has == asked:
            continue
        within = has.startswith(("struct", "array", "map")) and asked.startswith(("struct", "array", "map"))
        raise PipelineRefused(
            f"the column {field.name!r} is {has} in the table, and {asked} was given: a column keeps its type"
            + (", and nothing is added within it" if within else "")
            + ". Name it as the table has it (values that do not fit are kept in _unparsed), or land into another table"
        )
