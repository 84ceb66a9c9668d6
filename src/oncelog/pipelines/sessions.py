"""A Spark session that is ready for the pipelines: Java found, quiet, in UTC, with a state store that holds much state.

On a cluster the settings of the cluster win: what is set here is what a single machine needs. The interpreter of the
workers is chosen where users of Spark choose it (`oncelog.spark.interpreter`).
"""

import logging
import os
import re
import shlex
import socket
import tempfile
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError

from oncelog.pipelines.running import PipelineRefused, reason_of
from oncelog.spark import interpreter, java

DRIVER_MEMORY: Final = "1g"
"""The pipelines keep no rows at the driver. Locally the driver is the executor as well."""

STATE_STORE: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""State on disk instead of in the heap. A checkpoint keeps the setting of its first batch, so every session has it."""

COMPLAINT_CHARACTERS_MAX: Final = 2_000
"""Of what a Java that did not start has written: its reason stands at the end."""

MASTER_TIMEOUT_S: Final = 5.0
"""To connect to a master. Spark itself tries for a minute, and then says it with its stack."""

_MASTER: Final = re.compile(r"([^,:/]+):(\d+)")

_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": STATE_STORE,
    # A topic may be quiet for long; looking for news every 10 ms would keep a core busy.
    "spark.sql.streaming.pollingDelay": "50ms",
    # How often executors say how far their tasks are. It is what a line on a screen shows of a large batch.
    "spark.executor.heartbeatInterval": "2s",
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
    check_master(master)
    settings = dict(_SETTINGS)
    if master.startswith("local"):
        # Else the launcher warns about a machine whose name leads to itself.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # One task for each core: with Spark's 200, a small aggregate spends its time on starting tasks.
        settings["spark.sql.shuffle.partitions"] = str(_local_cores(master))
        settings["spark.driver.memory"] = DRIVER_MEMORY
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
    settings |= {name.replace("__", "."): value for name, value in conf.items()}
    python = interpreter.chosen(settings)
    if python.is_absent:
        raise PipelineRefused(
            f"this machine has no interpreter {python.name}, which {python.chosen_by} names. Spark runs it here too, "
            "to plan and to commit. Name one that every worker and this machine have, or send an environment along "
            "(--archives)"
        )
    os.environ[interpreter.VARIABLE] = python.name
    java.prepare()
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from pyspark_oncelog import DefaultSource

    if log_level == "OFF":
        _silence_python()
    try:
        _launch(settings, python, silently=log_level == "OFF")
        builder = SparkSession.builder.master(master).appName(app_name)
        for name, value in settings.items():
            builder = builder.config(name, value)
        made = builder.getOrCreate()
        made.sparkContext.setLogLevel(log_level)
        # Spark would find it by itself, and then run it with PYSPARK_DRIVER_PYTHON, on the workers too.
        made.dataSource.register(DefaultSource)
    except (Py4JError, PySparkException) as error:
        raise PipelineRefused(f"Spark does not start on {master}: {reason_of(error)}") from error
    return made


def check_master(master: str) -> None:
    """PipelineRefused if it is a standalone master and nobody answers there."""
    if not master.startswith("spark://"):
        return
    places = _MASTER.findall(master.removeprefix("spark://"))
    failures = []
    for host, port in places:
        try:
            socket.create_connection((host, int(port)), MASTER_TIMEOUT_S).close()
        except (OSError, OverflowError) as error:
            failures.append(f"{host}:{port}: {error}")
        else:
            return
    raise PipelineRefused(f"no Spark master answers at {master} ({'; '.join(failures) or 'write spark://HOST:PORT'})")


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != _PY4J


def _local_cores(master: str) -> int:
    """Of `local`, `local[4]`, `local[4,2]`, `local[*]`."""
    inside = master.partition("[")[2].rstrip("]").split(",")[0]
    if inside.isdigit():
        return int(inside)
    return (os.cpu_count() or 1) if inside == "*" else 1


def _silence_python() -> None:
    """What PySpark and its bridge would write beside the exception that says the same."""
    from pyspark.logger import PySparkLogger

    for name in _PYTHON_LOGGERS:
        # Made by PySpark's own class: it hands them arguments that a plain logger does not take.
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.getLogger(_PY4J).setLevel(logging.CRITICAL + 1)
    # An interrupted call is written to the root logger, where only its file tells whose it is.
    logging.getLogger().addFilter(_not_of_py4j)


def _launch(settings: dict[str, str], python: interpreter.Interpreter, *, silently: bool) -> None:
    """Starts Java, unless it runs: with its own place for complaints, as it greets with warnings that help nobody, and
    in a folder of its own if the workers' interpreter is sent along. What it wrote is told if it does not come up.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or not (silently or python.is_sent_along):
        return
    started: dict[str, Any] = {}
    if python.is_sent_along:
        folder = tempfile.TemporaryDirectory(prefix="oncelog-driver-")
        # Removed when this process ends, as long as somebody holds it.
        _folders.append(folder)
        interpreter.stand_in(python, Path(folder.name))
        started["cwd"] = folder.name
        own = settings.get("spark.driver.extraJavaOptions", "")
        settings["spark.driver.extraJavaOptions"] = f"{own} -Duser.dir={shlex.quote(os.getcwd())}".strip()
    conf = SparkConf().setAll(list(settings.items()))
    with tempfile.TemporaryFile() as complaints:
        if silently:
            started["stderr"] = complaints
        try:
            gateway = launch_gateway(conf, started)
        except PySparkException as error:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace")[-COMPLAINT_CHARACTERS_MAX:]
            raise PipelineRefused(f"Spark does not start: {error}\n{said}") from error
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


_folders: Final[list[Any]] = []
"""Folders that the driver's Java stands in."""
