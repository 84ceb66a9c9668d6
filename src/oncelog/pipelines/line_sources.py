"""What `ingest` reads, as rows of `file_rows.INPUT`, and of `message_id` where rows have one.

    text, json      a record is the line, byte for byte; JSON is checked and not rewritten
    csv             a record is the row as JSON; a line that is no row of the schema is bad
    other formats   a record is the row as JSON, and no row is bad

A field of a JSON line can be named in an expression. Without a schema every field is text, so that what one line gives
never depends on the lines of others, also not on those by which the file grows later.
"""

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from oncelog.pipelines.bad_lines import BLANK
from oncelog.pipelines.json_values import document_of, each_name_once, quoted
from oncelog.pipelines.running import PipelineRefused
from oncelog.pipelines.source_path import FILE_FORMATS

_FILE: Final = "_oncelog_file"
_LINE: Final = "_oncelog_line"
_BAD: Final = "_oncelog_bad"
_DOCUMENT: Final = "_oncelog_document"
_OWN: Final = (_FILE, _LINE, _BAD)


class Source:
    """A path, a folder or a pattern, and how it is read."""

    def __init__(
        self,
        spark: Any,
        path: str,
        format: str,  # noqa: A002  (as Spark calls it)
        options: Mapping[str, str],
        schema: str | None,
        *,
        streams: bool,
        named: bool,
    ) -> None:
        """`named`: an expression names columns of the rows."""
        self._spark = spark
        self._path = path
        self._format = format.lower() if format.lower() in FILE_FORMATS else format
        self._options = dict(options)
        self._schema = schema
        self._streams = streams
        self._named = named
        self.has_bad_lines = self._format in ("json", "csv")
        """Whether a line of it can be bad."""
        _check_options(self._format, options, schema)

    def rows(self) -> Any:
        """Columns of the rows, and those of `_OWN`."""
        if self._format == "text" and "wholetext" not in {name.lower() for name in self._options}:
            return self._text_lines().withColumn(_BAD, F.lit(None).cast("string"))
        if self._format == "json" and not _is_reread(self._options):
            return self._json_lines()
        if self.has_bad_lines:
            return self._rows_with_bad()
        rows = self._loaded(self._format, self._options, self._schema or self._stream_schema())
        return _with_own(rows, F.to_json(F.struct("*")).cast("binary"), F.lit(None).cast("string"))

    def _loaded(self, format: str, options: Mapping[str, str], schema: Any) -> Any:  # noqa: A002
        reader = (self._spark.readStream if self._streams else self._spark.read).format(format).options(**options)
        return (reader.schema(schema) if schema is not None else reader).load(self._path)

    def _inferred(self, **options: str) -> Any:
        return self._spark.read.format(self._format).options(**self._options, **options).load(self._path).schema

    def _stream_schema(self) -> Any | None:
        """A stream is not looked into before it starts."""
        return self._inferred() if self._streams else None

    def _text_lines(self) -> Any:
        kept = {name: value for name, value in self._options.items() if name.lower() in _LINE_OPTIONS}
        lines = self._loaded("text", kept, "value string" if self._streams else None)
        return lines.select("*", F.col("_metadata.file_path").alias(_FILE), F.col("value").cast("binary").alias(_LINE))

    def _json_lines(self) -> Any:
        fields = self._json_fields()
        # The column of lines steps aside: a field may have its name.
        lines = self._text_lines().drop("value")
        text = F.col(_LINE).cast("string")
        options = {name: value for name, value in self._options.items() if name.lower() not in _LINE_OPTIONS}
        document = document_of(fields, options)
        rows = lines.withColumn(_DOCUMENT, document.read(text))
        row = F.col(_DOCUMENT)
        kind = (
            F.when(F.octet_length(text) == 0, BLANK)
            .when(~F.is_valid_utf8(text), "not_utf8")
            .when(~document.ended(row), F.when(F.try_parse_json(text).isNull(), "not_json").otherwise("trailing"))
            .when(~document.fits(row), "not_schema")
        )
        names = fields.names if fields is not None else []
        columns = [row["value"][name].alias(name) for name in names]
        others = [F.col(quoted(name)) for name in lines.columns if name not in {*names, *_OWN}]
        return rows.select(*columns, *others, _FILE, _LINE, kind.alias(_BAD))

    def _json_fields(self) -> Any | None:
        """The fields that are read from each line; None if nobody asks for one."""
        if self._schema is not None:
            return StructType.fromDDL(self._schema)
        if not self._named:
            return None
        names = each_name_once(self._inferred(primitivesAsString="true")).names
        return StructType([StructField(name, StringType()) for name in names if name != "_corrupt_record"])

    def _rows_with_bad(self) -> Any:
        schema = StructType.fromDDL(self._schema) if self._schema is not None else self._inferred()
        whole = StructType([*schema.fields, StructField(_BAD, StringType())])
        # Spark also checks columns that no expression names: a line that is cut off is always bad.
        reading = {"columnNameOfCorruptRecord": _BAD, "mode": "PERMISSIVE", "columnPruning": "false"}
        rows = self._loaded(self._format, self._options | reading, whole)
        is_bad = F.col(_BAD).isNotNull()
        value = F.to_json(F.struct(*(F.col(quoted(name)) for name in rows.columns if name != _BAD)))
        line = F.when(is_bad, F.col(_BAD)).otherwise(value).cast("binary")
        return _with_own(rows, line, F.when(is_bad, "malformed"))


_LINE_OPTIONS: Final = (
    "linesep",
    "compression",
    "pathglobfilter",
    "recursivefilelookup",
    "modifiedbefore",
    "modifiedafter",
    "ignorecorruptfiles",
    "ignoremissingfiles",
    "basepath",
    "maxfilespertrigger",
    "maxbytespertrigger",
    "latestfirst",
    "filenameonly",
    "maxfileage",
    "cleansource",
    "sourcearchivedir",
)
"""Options of formats that say which files there are and where a line ends. Others say how a line is read."""


def _with_own(rows: Any, line: Any, bad: Any) -> Any:
    kept = [F.col(quoted(name)) for name in rows.columns if name != _BAD]
    file = F.col("_metadata.file_path").alias(_FILE)
    return rows.select(*kept, file, line.alias(_LINE), bad.alias(_BAD))


def _is_reread(options: Mapping[str, str]) -> bool:
    """Whether a document is not a line of UTF-8: Spark then reads it, and a record is the row as JSON."""
    given = {name.lower(): value.lower() for name, value in options.items()}
    encoding = given.get("encoding", given.get("charset", "utf-8"))
    return given.get("multiline") == "true" or encoding not in ("utf-8", "utf8")


def _check_options(format: str, options: Mapping[str, str], schema: str | None) -> None:  # noqa: A002
    names = {name.lower(): value.lower() for name, value in options.items()}
    if format in ("json", "csv") and "mode" in names:
        raise PipelineRefused("the option mode has no meaning here: --bad says what becomes of lines that do not fit")
    if format == "csv" and names.get("inferschema") == "true" and schema is None:
        raise PipelineRefused(
            "inferSchema: types that are inferred change when the file grows, and with them rows that are stored. "
            "Name them (--schema 'id BIGINT, name STRING'); without either every column is text"
        )


def as_records(rows: Any, key: str | None, value: str | None, message_id: str | None) -> Any:
    """Rows of a source as `file_rows.INPUT`, with `message_id` if there is an expression for it."""
    own = set(_OWN)
    fields = rows.select(*(quoted(name) for name in rows.columns if name not in own))
    line = F.col(_LINE)
    chosen = line if value is None else F.when(F.col(_BAD).isNull(), bytes_of(fields, value)).otherwise(line)
    columns = [
        F.col(_FILE).alias("file"),
        (bytes_of(fields, key) if key is not None else F.lit(None).cast("binary")).alias("key"),
        chosen.alias("value"),
        F.col(_BAD).alias("bad"),
    ]
    if message_id is not None:
        columns.append(expression_of(fields, message_id).cast("string").alias("message_id"))
    return rows.select(*columns)


def expression_of(rows: Any, text: str) -> Any:
    """A column by its name, or an SQL expression."""
    return F.col(quoted(text)) if text in rows.columns else F.expr(text)


def bytes_of(rows: Any, text: str) -> Any:
    """A column or an expression as bytes: text and bytes as they are, numbers by their text, the rest as JSON."""
    column = expression_of(rows, text)
    kind = rows.select(column.alias("it")).schema["it"].dataType.simpleString()
    if kind.startswith(("struct", "array", "map")):
        return F.to_json(column).cast("binary")
    return column if kind == "binary" else column.cast("string").cast("binary")
