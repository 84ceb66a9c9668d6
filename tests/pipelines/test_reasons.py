"""How the failure of a query is told."""

from pyspark.errors import PySparkException

from oncelog.pipelines.running import reason_of

TRACEBACK = """[STREAM_FAILED] Query a terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] failed:
Traceback (most recent call last):
  File "oncelog/spark/planning.py", line 54, in check
    raise OffsetLost(said)
oncelog.spark.planning.OffsetLost: topic 'a' begins at 7: records were trimmed
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.sql.streaming.StreamingQueryException
oncelog.not.This: one"""


def test_own_exception_is_told_by_its_text() -> None:
    assert reason_of(PySparkException(TRACEBACK)) == "topic 'a' begins at 7: records were trimmed"


def test_other_failure_of_spark_is_told_in_one_line() -> None:
    assert reason_of(PySparkException("[A] first\n  second\nJVM stacktrace:\nat org")) == "[A] first second"
