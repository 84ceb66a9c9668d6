"""What Spark asks when somebody says `format("oncelog")`. The parts are imported when they are asked for."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType


class DefaultSource(DataSource):  # type: ignore[misc, unused-ignore]
    """The log as a source and a sink of Spark."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "oncelog"

    def schema(self) -> str:
        """Of the source; a sink takes what it is given."""
        from oncelog.spark.columns import sql_schema
        from oncelog.spark.options import columns_of

        return sql_schema(columns_of(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """For `spark.read`."""
        from oncelog.spark.options import read_options
        from oncelog.spark.reader import BatchReader

        return BatchReader(read_options(self.options, "batch read"))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """For `spark.readStream`."""
        from oncelog.spark.options import read_options
        from oncelog.spark.reader import StreamReader

        return StreamReader(read_options(self.options, "streaming read"))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """For `df.write`."""
        from oncelog.spark.batch_writer import batch_writer
        from oncelog.spark.options import write_options

        return batch_writer(write_options(self.options, "batch write"), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """For `df.writeStream`."""
        from oncelog.spark.options import write_options
        from oncelog.spark.stream_writer import stream_writer

        return stream_writer(write_options(self.options, "streaming write"), schema)
