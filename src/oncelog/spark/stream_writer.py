"""`df.writeStream.format("oncelog")`: every batch of the query published once, whatever dies when.

Which process holds the fence. A fence must be taken when a driver starts a query, be the same for all its batches, and
be lost for ever once another driver starts. Spark offers no process that lives as long as that and may hold it: a
planner is started for every batch (it calls `streamWriter` and pickles the writer for the tasks), a committer for
every commit or abort (it calls `streamWriter` as well, and gets the tasks' messages). Only tasks are told the query's
run, and they are many. So the fence lives in a file of the driver (see `driver_notes`), and

  1. the planner of the driver's first batch finds no file, opens the application and writes the fence down;
  2. planners of later batches find it. They never open: a driver that hung for an hour finds its old fence in its own
     file, and its tasks are refused with the first stage they open;
  3. tasks get the fence with the pickled writer, and put it into their message; the committer publishes with the fence
     of the messages, so a batch is staged and published under one fence or not at all;
  4. an abort ends the run, so it forgets the file: who starts the query again in the same driver asks for a new fence
     and takes over, as any other start does.

What if we crash: before the file is written, the next planner opens again, and the fence in between belonged to
nobody. After it, the SparkContext is gone and its directory with it; a new driver has a new directory. If the file is
lost while the query runs, the driver fences itself and goes on; so a driver that hung long enough for somebody to clean
its directory comes back as a new one. The same holds for one that hung before its first batch: it never had a fence,
and its start is a start. Then the second guard, below, decides. Only the planner opens: it alone pickles the writer,
hence `__getstate__`. A query that was stopped cleanly and is started again in one SparkContext goes on under its fence;
the stopped run cannot write any more, and if its last publish is still on its way, the server takes batch N of the
query once.

The fence is one of two guards. The other is the server's rule for (query, batch): a batch that was published is not
published again, and none is left out. A new query (a lost checkpoint) must show that it begins where the old one ended:
see `_source_start`.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from oncelog.spark import checkpoint, direct, driver_notes, publishing, source_end
from oncelog.spark.driver_notes import Grant
from oncelog.spark.encoding import check_schema
from oncelog.spark.link import Link
from oncelog.spark.options import OptionError, WriteOptions
from oncelog.spark.staging import Staged, stage_rows

QUERY_PROPERTY: Final = "sql.streaming.queryId"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
RUN_PROPERTY: Final = "spark.jobGroup.id"
"""Names that are internal to Spark; tested with each version of it."""


class Running(NamedTuple):
    """What a task knows of the query it belongs to."""

    query: str
    run: str
    batch: int
    task: int


def running() -> Running:
    """OptionError if this is no task of a streaming query, or Spark no longer tells."""
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    query, batch = context.getLocalProperty(QUERY_PROPERTY), context.getLocalProperty(BATCH_PROPERTY)
    if not query or batch is None:
        raise OptionError(f"this Spark tells its tasks neither {QUERY_PROPERTY} nor {BATCH_PROPERTY}")
    return Running(query, context.getLocalProperty(RUN_PROPERTY) or "", int(batch), context.partitionId())


def stream_writer(options: WriteOptions, schema: StructType) -> DataSourceStreamWriter:
    """The writer for these options. OptionError, before anything is written, if they cannot be met.

    In output mode complete every batch appends the whole result again, as in Spark's Kafka sink.
    """
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    is_direct = options.delivery == "direct"
    check_schema(fields, topic_given=bool(options.topic))
    if is_direct:
        return DirectStreamWriter(options)
    if not options.checkpoint and (options.source_tracking or not options.application):
        raise OptionError(
            "checkpointLocation: give it as an option of the writer, not only of the session: the sink reads from it "
            "what the query had read, and keeps that with the batch (sourceTracking=none and application do without)"
        )
    application = options.application or f"checkpoint:{checkpoint.query_id(options.checkpoint)}"
    return StreamWriter(options, application)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """Made by a planner or by a committer; see the module for which of them does what."""

    def __init__(self, options: WriteOptions, application: str) -> None:
        self._options = options
        self._application = application
        self._grant: Grant | None = None

    def __getstate__(self) -> dict[str, Any]:
        # In the planner, on the way to the tasks: now the batch needs its fence.
        if self._grant is None:
            self._grant = self._granted()
        return dict(self.__dict__)

    def _granted(self) -> Grant:
        noted = driver_notes.noted_grant(self._application, self._options.checkpoint)
        if noted is not None:
            return noted
        with Link(self._options.url, self._options.request_timeout_ms) as link:
            grant = Grant(self._application, link.open_application(self._application).fence)
        driver_notes.note_grant(self._options.checkpoint, grant)
        return grant

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In an executor."""
        assert self._grant is not None, "the planner pickles the writer, and takes a fence before"
        now = running()
        parts = stage_rows(iterator, self._options, self._grant, now.task)
        return Staged(self._grant, now.query, now.run, now.batch, now.task, parts)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Beside the driver. Until it returns Spark does not count the batch as done, and runs it again if need be."""
        staged = publishing.staged_of(messages)
        first = staged[0]
        if first.batch != batchId:
            raise publishing.PublishRefused(
                f"the tasks staged batch {first.batch}, and batch {batchId} is to be published"
            )
        start = end = b""
        if self._options.source_tracking:
            sources = checkpoint.sources_at(self._options.checkpoint, batchId)
            end = source_end.told(sources)
            start = self._source_start(batchId, sources)
        publishing.publish(
            self._options,
            first.grant,
            first.query,
            batchId,
            staged,
            source_start=start,
            source_end=end,
            accept_new_query=self._options.accept_new_query,
        )

    def _source_start(self, batch: int, sources: dict[str, object]) -> bytes:
        """Where the batch begins. The server asks only when the query is new to the application.

        Spark journals where batches end. So the first batch of a query begins where its source was told to: if that was
        `group:<this application>`, the source of this driver has left the server's own words for us. If it began
        anywhere else, there is no proof, and an application with a history refuses the query.
        """
        if batch > 0:
            return source_end.told(checkpoint.sources_at(self._options.checkpoint, batch - 1))
        held, topics = driver_notes.noted_start(self._application)
        return held if held and source_end.continues(held, topics, sources) else b""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803, ARG002
        """Beside the driver, also after a commit that raised although it had happened. Never undoes a commit."""
        driver_notes.forget_grant(self._application, self._options.checkpoint)
        publishing.abort(self._options, messages)


class DirectStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc, unused-ignore]
    """Rows under message ids, see `direct`."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In an executor."""
        now = running()
        return direct.write_rows(iterator, self._options, f"{now.query}:{now.batch}:{now.task}")

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """What was written stays; the next attempt finds it by its ids."""
