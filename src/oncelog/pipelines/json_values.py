"""Records whose values are JSON, as columns: the fields, and beside them where the record stands in the log.

    fields of the schema …, _key, _topic, _partition, _offset, _timestamp, _unparsed

The underscore keeps the record's own columns apart from fields of the same names. Views of `transform` and tables of
`land` have the same columns.

No record is lost for its form. Where a value is not JSON, does not fit the schema, or has fields that the schema does
not know, `_unparsed` holds its bytes; fields that could be read are filled all the same. Unknown fields are looked for
at the top only: Spark reads nested objects by the schema and drops what it does not name.
"""

from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from oncelog.pipelines.running import PipelineRefused

UNPARSED: Final = "_unparsed"

RECORD_COLUMNS: Final = {
    "_key": "binary",
    "_topic": "string",
    "_partition": "int",
    "_offset": "bigint",
    "_timestamp": "timestamp",
    UNPARSED: "binary",
}
"""What every row has beside its fields, as Spark spells the types."""

SAMPLE_RECORDS: Final = 10_000
"""Records that a schema is inferred from. A field that first comes later is kept in `_unparsed`."""

_CORRUPT: Final = "_oncelog_corrupt"


class SchemaUnusable(PipelineRefused):
    """The schema cannot be read, or its names cannot be told from the record's own columns."""


def schema_of(ddl: str) -> Any:
    """The fields, every one nullable: a field that is absent is null. SchemaUnusable says what is wrong."""
    from pyspark.errors import PySparkException

    try:
        schema = StructType.fromDDL(ddl)
    except PySparkException as error:
        raise SchemaUnusable(f"the schema {ddl!r} is not like 'id BIGINT, name STRING': {error}") from None
    taken = sorted(set(schema.names) & {*RECORD_COLUMNS, _CORRUPT})
    if taken or len({name.lower() for name in schema.names}) != len(schema.names) or not schema.names:
        raise SchemaUnusable(f"the schema {ddl!r} is empty, names a field twice, or has a reserved name: {taken}")
    return nullable(schema)


def nullable(kind: Any) -> Any:
    """The type with everything in it nullable, as everything that comes from JSON is."""
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, nullable(field.dataType), True) for field in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, nullable(kind.valueType), True)
    return kind


def ddl_of(schema: Any) -> str:
    """A schema as text that `schema_of` reads."""
    return ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in schema.fields)


def quoted(name: str) -> str:
    """A column's name as SQL takes it, whatever is in it: a dot alone would be a way into a struct."""
    return "`" + name.replace("`", "``") + "`"


def parsed(records: Any, schema: Any) -> Any:
    """Records of the connector as rows of the schema."""
    with_corrupt = StructType(
        [*schema.fields, StructField(_CORRUPT, StructType.fromDDL("x string").fields[0].dataType)]
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    text = F.col("value").cast("string")
    # Of a schema without fields the array would have no type.
    known = F.array(*(F.lit(name) for name in schema.names)).cast("array<string>")
    # Columns of their own: what is asked for twice in one expression, Spark would read twice from the text.
    read = {"_oncelog_row": F.from_json(text, with_corrupt, options), "_oncelog_keys": F.json_object_keys(text)}
    rows = records.withColumns(read)
    keys = F.col("_oncelog_keys")
    corrupt = F.col(f"_oncelog_row.{_CORRUPT}").isNotNull()
    unknown = F.coalesce(F.size(F.array_except(keys, known)) > 0, F.lit(False))
    # A value such as 17 or "text" is JSON and no object: Spark gives a row of nulls and calls nothing corrupt.
    no_object = F.col("value").isNotNull() & keys.isNull()
    unparsed = F.when(corrupt | unknown | no_object, F.col("value"))
    return rows.select(
        *(F.col(f"_oncelog_row.{quoted(name)}").alias(name) for name in schema.names),
        F.col("key").alias("_key"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        unparsed.alias(UNPARSED),
    )


def inferred(spark: Any, records: Any) -> Any:
    """The fields of a sample of records; none if no value of it is a JSON object with fields."""
    values = records.select(F.col("value").cast("string").alias("text")).limit(SAMPLE_RECORDS)
    # The sample is read by a schema that is being looked for, so what is no object has no say in it.
    objects = values.where(F.json_object_keys("text").isNotNull())
    schema = spark.read.json(objects.rdd.map(lambda row: row.text)).schema
    fields = [field for field in schema.fields if field.name not in RECORD_COLUMNS and field.name != "_corrupt_record"]
    return nullable(StructType(fields))
