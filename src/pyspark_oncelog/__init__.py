"""The name under which Spark finds the connector: it registers `DefaultSource` of every module called `pyspark_…`."""

from oncelog.spark.datasource import DefaultSource

__all__ = ["DefaultSource"]
