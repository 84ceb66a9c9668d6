"""Records whose values are JSON, as columns: the fields, and beside them the record's place in the log.

    fields of the schema …, _key, _topic, _partition, _offset, _timestamp, _unparsed

The underscore keeps the record's own columns apart from fields of the same names. Views of `transform` and tables of
`land` have the same columns.

No record is lost for its form. `_unparsed` holds the bytes of every value that is not exactly one JSON object of the
schema: no JSON at all, another document or anything else behind the object, a field named twice, bytes that are not
UTF-8, a value of the wrong type, a field at the top that the schema does not know. Fields that could be read are filled
all the same. Within nested objects Spark drops fields that the schema does not name. A column of text takes any value,
as the text that JSON has for it.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BooleanType, MapType, StringType, StructField, StructType

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
    """The schema cannot be read, or it has names of the record's own columns."""


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
    """A column's name as SQL takes it. Without the quotes a dot would be a way into a struct."""
    return "`" + name.replace("`", "``") + "`"


STRICT: Final = {"mode": "PERMISSIVE", "allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
"""JSON as its standard has it. By itself Spark also takes 'single quotes' and NaN."""


class Document(NamedTuple):
    """How a text is read as exactly one document of a schema.

    Spark reads the first document of a text and ignores the rest. So the text is read as a field of an
    object of ours, with a second field behind it that is only there if the document ended where the text ended. Its
    name is new for each query: no text can contain it by accident or on purpose.
    """

    whole: Any
    """The schema of our object."""
    mark: str
    options: dict[str, str]
    """Of Spark, for reading JSON."""

    def read(self, text: Any) -> Any:
        """Our object. It should become a column of its own: whatever uses it twice would read the text twice."""
        framed = F.concat(F.lit('{"value":'), text, F.lit(f',"{self.mark}":true}}'))
        return F.from_json(framed, self.whole, self.options)

    def ended(self, row: Any) -> Any:
        """Whether the text is one document, of whatever kind."""
        return row[self.mark].isNotNull()

    def fits(self, row: Any) -> Any:
        """Whether it is one document of the schema; without a schema, one document."""
        fits = self.ended(row) & row[_CORRUPT].isNull()
        return fits & row["value"].isNotNull() if "value" in self.whole.names else fits


def document_of(schema: Any | None, options: Mapping[str, str] | None = None) -> Document:
    """For texts of this schema; None: for documents of any kind."""
    mark = uuid.uuid4().hex
    fields = [StructField(mark, BooleanType()), StructField(_CORRUPT, StringType())]
    if schema is not None:
        fields.append(StructField("value", schema))
    read = STRICT | dict(options or {}) | {"columnNameOfCorruptRecord": _CORRUPT}
    return Document(StructType(fields), mark, read)


def parsed(records: Any, schema: Any, kept: Sequence[str] = ()) -> Any:
    """Records of the connector as rows of the schema. `kept` are columns of theirs that go along."""
    text = F.col("value").cast("string")
    # Of a schema without fields the array would have no type.
    known = F.array(*(F.lit(name) for name in schema.names)).cast("array<string>")
    # Columns of their own: what is asked for twice in one expression, Spark would read twice from the text.
    document = document_of(schema)
    rows = records.withColumns({"_oncelog_row": document.read(text), "_oncelog_keys": F.json_object_keys(text)})
    row, keys = F.col("_oncelog_row"), F.col("_oncelog_keys")
    # A field that is unknown, or there twice, is in the keys and not in the intersection, which has each once.
    known_once = F.coalesce(F.size(F.array_intersect(keys, known)) == F.size(keys), F.lit(False))
    sound = document.fits(row) & known_once & F.is_valid_utf8(text)
    if any(_is_nested(field.dataType) for field in schema.fields):
        # Variants have each field once, at every depth.
        sound = sound & F.try_parse_json(text).isNotNull()
    unparsed = F.when(~F.coalesce(sound, F.lit(False)), F.col("value"))
    return rows.select(
        *(F.when(document.ended(row), row["value"][name]).alias(name) for name in schema.names),
        F.col("key").alias("_key"),
        F.col("topic").alias("_topic"),
        F.col("partition").alias("_partition"),
        F.col("offset").alias("_offset"),
        F.col("timestamp").alias("_timestamp"),
        unparsed.alias(UNPARSED),
        *kept,
    )


def _is_nested(kind: Any) -> bool:
    return isinstance(kind, StructType | ArrayType | MapType)


def inferred(spark: Any, records: Any) -> Any:
    """The fields of a sample of records. SchemaUnusable if they make no table that can be read."""
    found = fields_in(spark, records)
    if not found.fields:
        raise SchemaUnusable(
            f"no value of the first {SAMPLE_RECORDS:,} records is a JSON object with a field, so there is no schema to "
            "infer. Name at least one field (--schema 'id STRING'); other values are kept whole in _unparsed"
        )
    once = each_name_once(found)
    if once != found:
        raise SchemaUnusable(
            "the first records have fields whose names differ only in case, and no table with both can be read. Land "
            f"them with a schema that has one of them (--schema {ddl_of(once)!r}); records that have the other one are "
            "kept whole in _unparsed"
        )
    return found


def fields_in(spark: Any, records: Any) -> Any:
    """Every field of a sample of records, nullable; none if no value is a JSON object."""
    values = records.select(F.col("value").cast("string").alias("text")).limit(SAMPLE_RECORDS)
    # The sample is read by a schema that is being looked for, so what is no object has no say in it.
    objects = values.where(F.json_object_keys("text").isNotNull())
    schema = spark.read.json(objects.rdd.map(lambda row: row.text)).schema
    fields = [field for field in schema.fields if field.name not in RECORD_COLUMNS and field.name != "_corrupt_record"]
    return nullable(StructType(fields))


def each_name_once(kind: Any) -> Any:
    """The type without fields whose name is that of an earlier one but for case, at any depth."""
    if isinstance(kind, ArrayType):
        return ArrayType(each_name_once(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        return MapType(kind.keyType, each_name_once(kind.valueType), kind.valueContainsNull)
    if not isinstance(kind, StructType):
        return kind
    first: dict[str, Any] = {}
    for field in kind.fields:
        first.setdefault(field.name.lower(), StructField(field.name, each_name_once(field.dataType), field.nullable))
    return StructType(list(first.values()))
