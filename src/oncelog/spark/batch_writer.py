"""`df.write.format("oncelog")`: one job, one publish.

Everything that the job writes becomes visible at one instant, or none of it does. With `txnAppId` and `txnVersion` the
write is one of a numbered series and happens once: that is what `foreachBatch` needs, whose function may be called
again with a batch that it has written already.

The series has the fence for a lock. Opening the application fences every other writer of it, and answers with the
version that was published last. If ours is not above it, there is nothing to do. If it is, the publish is accepted only
while our fence is the newest, so no other version can have come in between. Versions may skip numbers. The version is
the query's name at the server (`txn:<version>`), since batches of one query may not skip any.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from oncelog.spark import direct, publishing
from oncelog.spark.driver_notes import Grant
from oncelog.spark.encoding import check_schema
from oncelog.spark.link import Link
from oncelog.spark.options import OptionError, WriteOptions
from oncelog.spark.staging import Staged, stage_rows

_TXN: Final = "txn:"


def batch_writer(options: WriteOptions, schema: StructType, *, overwrite: bool) -> DataSourceWriter:
    """The writer for these options. OptionError, before anything is written, if they cannot be met."""
    if overwrite:
        raise OptionError("mode('overwrite'): a log is only appended to; use mode('append')")
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    is_direct = options.delivery == "direct"
    check_schema(fields, topic_given=bool(options.topic))
    if is_direct:
        if "message_id" not in schema.names and options.txn_version < 0:
            raise OptionError("delivery=direct: a batch write needs a column message_id, or txnAppId and txnVersion")
        return DirectBatchWriter(options)
    return BatchWriter(options)


def _task() -> int:
    context = TaskContext.get()
    assert context is not None, "rows are written by tasks"
    number: int = context.partitionId()
    return number


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """Made by the planner, which opens the application; pickled to the tasks and to the committer."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        application = options.application or f"batch:{uuid.uuid4().hex}"
        with Link(options.url, options.request_timeout_ms) as link:
            opened = link.open_application(application)
        self._grant = Grant(application, opened.fence)
        version = options.txn_version
        self._query = f"{_TXN}{version}" if version >= 0 else f"batch:{uuid.uuid4().hex}"
        if version >= 0 and opened.query and not opened.query.startswith(_TXN) and not options.accept_new_query:
            raise OptionError(
                f"txnAppId: application {application!r} belongs to query {opened.query}; take another name"
            )
        last = int(opened.query.removeprefix(_TXN)) if opened.query.startswith(_TXN) else -1
        self._already = 0 <= version <= last

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In an executor."""
        task = _task()
        parts = [] if self._already else stage_rows(iterator, self._options, self._grant, task)
        return Staged(self._grant, self._query, "", 0, task, parts)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Beside the driver."""
        if self._already:
            return
        staged = publishing.staged_of(messages)
        # The order of versions is kept by the fence, see above; that of other batch writes is nobody's.
        publishing.publish(self._options, self._grant, self._query, 0, staged, accept_new_query=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Beside the driver. Never undoes a commit."""
        publishing.abort(self._options, messages)


class DirectBatchWriter(DataSourceArrowWriter):  # type: ignore[misc, unused-ignore]
    """Rows under message ids, see `direct`."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In an executor."""
        task = _task()
        prefix = f"{self._options.application}:{self._options.txn_version}:{task}"
        return direct.write_rows(iterator, self._options, prefix)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing is left to do."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """What was written stays; the next attempt finds it by its ids."""
