"""What a task of a staged write does: one stage per target stream, under an attempt of its own.

A stage is durable and invisible, and is used once. Whatever happens to the task afterwards, its stages are either
named by the one commit message that Spark accepts for the partition, or by nobody and then die by their time to live.
So a retried or speculative attempt shares nothing with the one before.
"""

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import WriterCommitMessage

from oncelog.client import ClientError, Fenced, NotFound
from oncelog.client.models import Stage, TopicInfo
from oncelog.spark.driver_notes import Grant
from oncelog.spark.encoding import Queues, Rows, Target, encoded
from oncelog.spark.link import Link
from oncelog.spark.options import OptionError, WriteOptions

UPLOADS: Final = 2
"""Batches on their way at once, never two of one stage: a retry is recognised only for the newest batch of a stage."""


DROP_TIMEOUT_MS: Final = 5_000


class WriteFenced(Exception):
    """A newer driver writes for the application. This one must not go on."""


class StagedPart(NamedTuple):
    """One stage, and where its records go."""

    stage_id: int
    topic: str
    partition: int
    row_count: int
    named: bool
    """Records carry message ids."""


@dataclass
class Staged(WriterCommitMessage):  # type: ignore[misc, unused-ignore]
    """What a task tells the driver."""

    grant: Grant
    query: str
    run: str
    batch: int
    task: int
    """The number of the Spark partition: stages are published in this order."""
    parts: list[StagedPart]


def fenced(application: str, error: Fenced) -> WriteFenced:
    """What the user reads."""
    return WriteFenced(
        f"application {application!r} has a newer driver (fence {error.current}): this one was replaced, or hung and "
        f"woke up too late, and nothing of it was published. Stop it, or start it again to take over. ({error})"
    )


class Topics:
    """Partition counts and content types, each looked up once per task."""

    def __init__(self, link: Link, options: WriteOptions) -> None:
        self._link = link
        self._options = options
        self._known: dict[str, TopicInfo] = {}

    def __getitem__(self, topic: str) -> TopicInfo:
        if topic not in self._known:
            self._known[topic] = self._looked_up(topic)
        return self._known[topic]

    def _looked_up(self, topic: str) -> TopicInfo:
        try:
            return self._link.topic(topic)
        except NotFound:
            if not self._options.create_partitions:
                raise OptionError(
                    f"topic {topic!r} does not exist: create it, or set createPartitions to have it created"
                ) from None
        self._link.create_topic(
            topic, partitions=self._options.create_partitions, content_type=self._options.content_type
        )
        return self._link.topic(topic)

    def partitions_of(self, topic: str) -> int:
        return self[topic].partitions


class _Upload:
    """One stage being filled."""

    def __init__(self, stage_id: int) -> None:
        self.stage_id = stage_id
        self.count = 0
        self.named = False
        self.pending: Future[Stage] | None = None

    def settle(self) -> None:
        if self.pending is not None:
            self.pending.result()
            self.pending = None


class Stager:
    """Fills the stages of one attempt."""

    def __init__(
        self, link: Link, options: WriteOptions, grant: Grant, topics: Topics, pool: ThreadPoolExecutor
    ) -> None:
        self._link = link
        self._options = options
        self._grant = grant
        self._topics = topics
        self._pool = pool
        self._uploads: dict[Target, _Upload] = {}

    def send(self, target: Target, rows: Rows) -> None:
        """Appends rows to the target's stage, in the background; raises what those before met."""
        batch, count = encoded(rows), len(rows)
        upload = self._uploads.get(target)
        if upload is None:
            content_type = self._topics[target.topic].content_type
            grant = self._grant
            stage = self._link.open_stage(
                grant.application, grant.fence, ttl_ms=self._options.stage_ttl_ms, content_type=content_type
            )
            upload = self._uploads[target] = _Upload(stage.stage_id)
        upload.settle()
        upload.pending = self._pool.submit(self._link.append_stage, upload.stage_id, upload.count, batch)
        upload.count += count
        upload.named = rows.named

    def finish(self) -> list[StagedPart]:
        """Waits until everything is on disk."""
        for upload in self._uploads.values():
            upload.settle()
        return [
            StagedPart(upload.stage_id, target.topic, target.partition, upload.count, upload.named)
            for target, upload in sorted(self._uploads.items())
        ]

    def drop(self) -> None:
        """Frees what was staged, as far as the server can be reached."""
        drop_stages(self._options.url, [upload.stage_id for upload in self._uploads.values()])


def drop_stages(url: str, stage_ids: list[int]) -> None:
    """A courtesy, so nobody waits long for it: stages go by themselves. Published ones stay published."""
    if stage_ids:
        with Link(url, DROP_TIMEOUT_MS) as link, contextlib.suppress(ClientError):
            link.drop_stages(stage_ids)


def stage_rows(iterator: Iterator[Any], options: WriteOptions, grant: Grant, task: int) -> list[StagedPart]:
    """Everything that the task was given, on the server's disk and in no stream."""
    with Link(options.url, options.request_timeout_ms) as link, ThreadPoolExecutor(UPLOADS) as pool:
        topics = Topics(link, options)
        stager = Stager(link, options, grant, topics, pool)
        queues = Queues(
            options.topic, options.partition, task, topics.partitions_of, batch_bytes=options.batch_bytes
        )  # fmt: skip
        try:
            for batch in iterator:
                for target, rows in queues.add(batch):
                    stager.send(target, rows)
            for target, rows in queues.rest():
                stager.send(target, rows)
            return stager.finish()
        except Fenced as error:
            stager.drop()
            raise fenced(grant.application, error) from error
        except BaseException:
            stager.drop()
            raise
