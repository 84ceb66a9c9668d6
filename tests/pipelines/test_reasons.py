"""How the failure of a query is told."""

import pytest
from pyspark.errors import PySparkException

from oncelog.client.errors import IdConflict
from oncelog.pipelines.file_rows import FileChanged
from oncelog.pipelines.running import PipelineFailed, PipelineRefused, failure_of, reason_of

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


@pytest.mark.parametrize("kind", [FileChanged, IdConflict])
def test_no_of_a_task_is_a_refusal_and_everything_else_a_failure(kind: type[Exception]) -> None:
    name = f"{kind.__module__}.{kind.__qualname__}"
    refused = failure_of(PySparkException(f"Traceback:\n{name}: it was rewritten\nJVM stacktrace:\n{TRACEBACK}"))
    assert (type(refused), str(refused)) == (PipelineRefused, "it was rewritten")
    for other in (PySparkException(TRACEBACK), PySparkException(f"x\nJVM stacktrace:\n{name}: y"), OSError("z")):
        assert type(failure_of(other)) is PipelineFailed
