"""A streaming query that is watched: what it tells while it runs, what it has done at the end, how its failure reads.

Spark reports a batch after it is done. What is shown here comes from those reports alone; nothing is counted twice to
show it.
"""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from oncelog.pipelines.known_causes import known_cause
from oncelog.pipelines.lag import LagClock, behind

POLL_S: Final = 0.25
"""How often a running query is asked for news. A batch takes longer than this, and a person sees no less delay."""

ROWS_METRIC: Final = "number of output rows"
"""What Spark calls the rows that a part of a plan has handed on."""

EXECUTIONS_LOOKED_AT: Final = 4
"""Of the newest ones: a batch is one, and what its function does is another one or two."""

OUTPUT: Final = "oncelog_output"
"""The name under which a pipeline counts the rows that it hands to its sink."""

REASON_CHARACTERS_MAX: Final = 2_000
"""Of Spark's account of a failure: the cause is in the first lines, the rest is the stack of the virtual machine."""


_TRIGGER: Final = re.compile(r"(interval\s+)?(\d+\s+(micro|milli)?(second|minute|hour|day|week)s?\s*)+", re.IGNORECASE)
"""A time as Spark spells it."""

_REFUSALS: Final = (
    "oncelog.pipelines.file_rows.FileChanged: ",
    "oncelog.pipelines.file_rows.LineBad: ",
    "oncelog.client.errors.IdConflict: ",
)
"""Exceptions of tasks that say no: another run says it again. Of them Spark keeps name and text."""

_OWN_EXCEPTION: Final = re.compile(r"^oncelog\.[\w.]+: ")


class PipelineRefused(Exception):
    """The pipeline would lose or double data, or was asked for something that cannot be; nothing was done."""


class PipelineFailed(Exception):
    """A query ended with a failure. Starting it again is safe: what was done is not done twice."""


Spark = Any
"""A session, or a function that starts one. A pipeline calls the function after every check that needs no
session, so a wrong name ends it before Spark takes its seconds to start."""


def started(spark: Spark) -> Any:
    """The session."""
    return spark() if callable(spark) else spark


def no_topic_to_write(topic: str) -> str:
    """The message if a pipeline should write a topic that does not exist."""
    return f"there is no topic {topic!r}: say with how many partitions it is to be made (--partitions N)"


class Progress(msgspec.Struct, frozen=True):
    """What a pipeline tells while it runs."""

    pipeline: str
    """transform, land or ingest."""
    batch: int
    input_rows: int
    """Of this batch."""
    output_rows: int
    total_input_rows: int
    """Since this run began."""
    total_output_rows: int
    rows_per_s: float
    """Input rows, over this run."""
    lag: int
    """Offsets that were there when the batch was planned and are not processed yet; -1: not known."""
    duration_s: float
    """Of this batch."""
    elapsed_s: float
    """Since this run began."""
    stage: str = "done"
    """`done`; within a batch `reading`, and of a landing batch also `written` (files are there, nothing refers to them)
    and `committed`."""
    total_rows: int = -1
    """Input rows that this run has to do, as far as it is known; -1: not known."""
    lag_s: float = -1.0
    """Age of the oldest record that is not processed yet; 0: there is none, -1: not known."""
    late_rows: int = 0
    """Rows that came behind a watermark and were dropped, since this run began."""


class BatchDone(msgspec.Struct, frozen=True):
    """One batch, for the report."""

    batch: int
    input_rows: int
    output_rows: int
    duration_s: float
    ended_ms: int


class PipelineResult(msgspec.Struct):
    """What a run did."""

    pipeline: str
    application: str
    batches: int = 0
    """That had rows or changed something; empty looks at the source do not count."""
    input_rows: int = 0
    output_rows: int = 0
    duration_s: float = 0.0
    lag: int = 0
    """Offsets left at the end; 0 after a run to the end, -1 if it is not known."""
    lag_s: float = -1.0
    """Age of the oldest record that was left; 0 if none was, -1 if it is not known."""
    late_rows: int = 0
    """Rows that came behind a watermark and were dropped by Spark."""
    unparsed: int = 0
    """Landed rows whose value was not JSON of the table's schema: their bytes are in `_unparsed`."""
    stopped: bool = False
    """Somebody stopped it before it was at its end."""
    history: list[BatchDone] = []


Told = Callable[[Progress], None]


class Watch:
    """Follows one query to its end."""

    def __init__(self, pipeline: str, application: str, progress: Told | None, url: str = "", total: int = -1) -> None:
        """`url`: of the log, to ask how old the rest is. `total`: input rows of the whole run, where it is known."""
        self.result = PipelineResult(pipeline, application)
        self.failure: BaseException | None = None
        """What a batch function raised. Spark only keeps its text, and the caller wants the exception."""
        self.outputs: dict[int, int] = {}
        """Rows of each batch, from a batch function that knows; else the query counts them itself."""
        self._progress = progress
        self._total = total
        self._clock = LagClock(url)
        self._within_rows = 0
        """Input rows of the batch that is under way, as far as its tasks have told."""
        self._seen: set[tuple[int, str]] = set()
        self._began_s = time.monotonic()

    def follow(self, query: Any, stop: threading.Event | None = None) -> PipelineResult:
        """Waits for the end of the query. An interrupt, or `stop`, ends it at once, also within a batch.

        A batch that is cut off is as one of a killed run: the next run does it, or finds that it was done.
        """
        try:
            while not query.awaitTermination(POLL_S):
                self._look(query)
                if stop is not None and stop.is_set():
                    self.result.stopped = True
                    break
        except KeyboardInterrupt:
            self.result.stopped = True
        except (PySparkException, Py4JError) as error:
            if isinstance(self.failure, PipelineRefused | PipelineFailed):
                raise self.failure from None
            cause = self.failure if self.failure is not None else error
            raise failure_of(cause) from cause
        finally:
            query.stop()
        self._look(query)
        self.result.duration_s = time.monotonic() - self._began_s
        return self.result

    def tell(self, batch: int, stage: str, input_rows: int, output_rows: int, duration_s: float) -> None:
        """Something happened within a batch."""
        self._tell(batch, input_rows, output_rows, duration_s, stage)

    def _look(self, query: Any) -> None:
        self._look_within(query)
        for told in query.recentProgress:
            report = json.loads(told.json)
            mark = (report["batchId"], report["timestamp"])
            if mark in self._seen:
                continue
            self._seen.add(mark)
            self._take(report)

    def _look_within(self, query: Any) -> None:
        """Tells how far the batch under way is. Tasks say it with every heartbeat."""
        if self._progress is None:
            return
        rows = 0
        # It is for display: a query that ends in this moment has nothing to show.
        with contextlib.suppress(Py4JError):
            rows = _rows_read(query._jsq.sparkSession().sharedState().statusStore())
        if rows > self._within_rows:
            self._within_rows = rows
            last = self.result.history[-1].batch if self.result.history else -1
            self._tell(last + 1, rows, 0, 0.0, "reading")

    def _take(self, report: dict[str, Any]) -> None:
        self._within_rows = 0
        input_rows = report.get("numInputRows", 0)
        observed = (report.get("observedMetrics") or {}).get(OUTPUT) or {}
        output_rows = self.outputs.pop(report["batchId"], int(observed.get("rows", 0)))
        duration_s = report.get("batchDuration", 0) / 1000
        result = self.result
        self._take_lag(report)
        result.late_rows += sum(
            state.get("numRowsDroppedByWatermark", 0) for state in report.get("stateOperators") or ()
        )
        if "addBatch" not in report.get("durationMs", {}):
            return  # a look at the source that found nothing
        result.batches += 1
        result.input_rows += input_rows
        result.output_rows += output_rows
        ended_ms = time.time_ns() // 1_000_000
        result.history.append(BatchDone(report["batchId"], input_rows, output_rows, duration_s, ended_ms))
        self._tell(report["batchId"], input_rows, output_rows, duration_s, "done")

    def _take_lag(self, report: dict[str, Any]) -> None:
        places = _behind(report)
        self.result.lag = -1 if places is None else sum(count for *_, count in places)
        self.result.lag_s = -1.0 if places is None else self._clock.seconds(places)

    def _total_rows(self) -> int:
        if self._total >= 0 or self.result.lag < 0 or not self.result.history:
            return self._total
        return self.result.input_rows + self.result.lag

    def _tell(self, batch: int, input_rows: int, output_rows: int, duration_s: float, stage: str) -> None:
        if self._progress is None:
            return
        elapsed_s = time.monotonic() - self._began_s
        result = self.result
        rate = (result.input_rows + self._within_rows) / elapsed_s if elapsed_s > 0 else 0.0
        self._progress(
            Progress(
                result.pipeline,
                batch,
                input_rows,
                output_rows,
                result.input_rows + self._within_rows,
                result.output_rows,
                rate,
                result.lag,
                duration_s,
                elapsed_s,
                stage,
                self._total_rows(),
                result.lag_s,
                result.late_rows,
            )
        )


def _rows_read(store: Any) -> int:
    """Rows that the running executions have read so far, by Spark's own metrics: of each plan the last scan in it."""
    most = 0
    count = store.executionsCount()
    executions = store.executionsList(max(0, count - EXECUTIONS_LOOKED_AT), EXECUTIONS_LOOKED_AT)
    for number in range(executions.size()):
        execution = executions.apply(number)
        if execution.completionTime().isDefined():
            continue
        values, metrics = store.executionMetrics(execution.executionId()), execution.metrics()
        for place in reversed(range(metrics.size())):
            metric = metrics.apply(place)
            if metric.name() == ROWS_METRIC:
                text = values.get(metric.accumulatorId())
                digits = text.get().replace(",", "") if text.isDefined() else ""
                most = max(most, int(digits) if digits.isdigit() else 0)
                break
    return most


def _behind(report: dict[str, Any]) -> list[tuple[str, int, int, int]] | None:
    """What is not processed yet; None if a source does not say."""
    places = []
    for source in report.get("sources", ()):
        latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if latest is None or end is None:
            return None
        places += behind(latest, end)
    return places


def _offsets(told: object) -> dict[str, dict[str, int]] | None:
    if isinstance(told, str):
        told = json.loads(told)
    return told if isinstance(told, dict) else None


def reason_of(error: BaseException) -> str:
    """The part of a failure that a person can act on."""
    if isinstance(error, Py4JError | PySparkException) and (known := known_cause(str(error))) is not None:
        return known
    if isinstance(error, Py4JJavaError):
        # Spark turns most of its exceptions into PySpark's own; of the others this is the line that says what it was.
        return str(error.java_exception.getMessage())[:REASON_CHARACTERS_MAX]
    if not isinstance(error, PySparkException):
        return f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
    text = _said(error)
    cause = _own_cause(text)
    # What it is called in this package helps nobody.
    lines = (line.strip() for line in text.splitlines())
    chosen = _OWN_EXCEPTION.sub("", cause) if cause else " ".join(line for line in lines if line)
    return chosen[:REASON_CHARACTERS_MAX]


def _said(error: PySparkException) -> str:
    return str(error).split("JVM stacktrace", 1)[0]


def _own_cause(text: str) -> str:
    """The line of an exception of ours that a source, a sink or a task raised: the end of the worker's traceback."""
    causes = [line.strip() for line in text.splitlines() if line.strip().startswith("oncelog.")]
    return causes[-1] if causes else ""


def failure_of(error: BaseException) -> PipelineRefused | PipelineFailed:
    """A failure of a job as pipelines promise to tell it."""
    refused = isinstance(error, PySparkException) and _own_cause(_said(error)).startswith(_REFUSALS)
    return PipelineRefused(reason_of(error)) if refused else PipelineFailed(reason_of(error))


def check_trigger(trigger: str) -> None:
    """PipelineRefused for what `triggered` cannot be told."""
    if trigger != "available_now" and not _TRIGGER.fullmatch(trigger.strip()):
        raise PipelineRefused(f"trigger is available_now, or a time such as '10 seconds', not {trigger!r}")


def triggered(writer: Any, trigger: str) -> Any:
    """`available_now`, or a time such as "10 seconds" between the beginnings of two batches."""
    if trigger == "available_now":
        return writer.trigger(availableNow=True)
    return writer.trigger(processingTime=trigger)
