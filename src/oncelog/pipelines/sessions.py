"""A Spark session that is ready for the pipelines: Java found, quiet, in UTC, with a state store that holds much state.

On a cluster the settings of the cluster win: what is set here is what a single machine needs.
"""

import logging
import os
import tempfile
from pathlib import Path
from typing import Any, Final

from oncelog.pipelines.running import PipelineRefused
from oncelog.spark import java

DRIVER_MEMORY: Final = "1g"
"""The pipelines keep no rows at the driver. Locally the driver is the executor as well."""

STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""State on disk instead of in the heap. It is frozen into a checkpoint with its first batch, so it is set always."""

COMPLAINT_CHARACTERS_MAX: Final = 2_000
"""Of what a Java that did not start has written: its reason stands at the end."""

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    # A topic may be quiet for long; looking for news every 10 ms would keep a core busy.
    "spark.sql.streaming.pollingDelay": "50ms",
}

_PYTHON_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""PySpark writes the text of a failed query there, as JSON, beside the exception that says the same."""

_PY4J: Final = "py4j"
"""The bridge to Java. It writes a traceback of a call that was interrupted, or of a batch that was cut off."""


def session(master: str = "local[*]", app_name: str = "oncelog", *, log_level: str = "ERROR", **conf: str) -> Any:
    """A session on `master`. `conf` are settings of Spark, with dots or with two underscores for each dot.
    `log_level` OFF leaves it to the pipelines to say what went wrong: Spark and its Java then write nothing at all.

    If a session is running in this process, it is that one, as Spark has it.
    """
    java.prepare()
    if master.startswith("local"):
        # Else the launcher warns about a machine whose name leads to itself.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    settings = dict(_SETTINGS)
    if master.startswith("local"):
        # One task for each core: with Spark's 200, a small aggregate spends its time on starting tasks.
        settings["spark.sql.shuffle.partitions"] = str(_local_cores(master))
        settings["spark.driver.memory"] = DRIVER_MEMORY
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    settings |= {name.replace("__", "."): value for name, value in conf.items()}
    builder = SparkSession.builder.master(master).appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    if log_level == "OFF":
        _launch_silently(settings)
        for name in _PYTHON_LOGGERS:
            # Made by PySpark's own class: it hands them arguments that a plain logger does not take.
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
        logging.getLogger(_PY4J).setLevel(logging.CRITICAL + 1)
        # An interrupted call is written to the root logger, where only its file tells whose it is.
        logging.getLogger().addFilter(_not_of_py4j)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel(log_level)
    return made


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != _PY4J


def _local_cores(master: str) -> int:
    """Of `local`, `local[4]`, `local[4,2]`, `local[*]`."""
    inside = master.partition("[")[2].rstrip("]").split(",")[0]
    if inside.isdigit():
        return int(inside)
    return (os.cpu_count() or 1) if inside == "*" else 1


def _launch_silently(settings: dict[str, str]) -> None:
    """Starts Java with its own place for complaints, unless it runs: it greets with warnings that help nobody.

    What it wrote is told if it does not come up.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:
        return
    conf = SparkConf().setAll(list(settings.items()))
    with tempfile.TemporaryFile() as complaints:
        try:
            gateway = launch_gateway(conf, {"stderr": complaints})
        except PySparkException as error:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace")[-COMPLAINT_CHARACTERS_MAX:]
            raise PipelineRefused(f"Spark does not start: {error}\n{said}") from error
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)
