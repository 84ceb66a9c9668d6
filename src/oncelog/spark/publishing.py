"""What the driver does at the end of a write: name the stages that it was handed, in one request, and nothing else.

The request is idempotent by (application, query, batch), so it is repeated until an answer comes. An abort drops stages
and never undoes: if the publish had happened after all, its stages are no longer stages, and dropping skips them.
"""

from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from oncelog.client import Conflict, Fenced, NotFound, PublishStage, Refused, TooLarge
from oncelog.spark.driver_notes import Grant
from oncelog.spark.link import Link
from oncelog.spark.options import WriteOptions
from oncelog.spark.staging import Staged, drop_stages, fenced


class PublishRefused(Exception):
    """The server will not make the batch visible. Nothing of it was."""


def staged_of(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """The messages of all tasks in the order of their numbers. PublishRefused if one is missing."""
    found = [message for message in messages if isinstance(message, Staged)]
    if len(found) != len(messages) or not found:
        raise PublishRefused(f"{len(found)} of {len(messages)} tasks told what they staged")
    if len({(message.grant, message.query, message.run, message.batch) for message in found}) != 1:
        raise PublishRefused("the tasks of one batch belong to several runs of the query")
    return sorted(found, key=lambda message: message.task)


def publish(
    options: WriteOptions,
    grant: Grant,
    query: str,
    batch: int,
    staged: Sequence[Staged],
    *,
    source_start: bytes = b"",
    source_end: bytes = b"",
    accept_new_query: bool = False,
) -> bool:
    """Makes the stages visible at one instant; False if the batch was published before and these were not needed."""
    parts = [part for message in staged for part in message.parts]
    stages = [PublishStage(part.stage_id, part.topic, part.row_count, part.partition, part.named) for part in parts]
    with Link(options.url, options.request_timeout_ms) as link:
        try:
            result = link.publish(
                grant.application,
                grant.fence,
                query,
                batch,
                stages,
                source_start=source_start,
                source_end=source_end,
                accept_new_query=accept_new_query,
            )
        except Fenced as error:
            raise fenced(grant.application, error) from error
        except (Conflict, NotFound, TooLarge) as error:
            raise PublishRefused(_advice(grant.application, query, batch, error)) from error
    if result.duplicate:
        drop_stages(options.url, [part.stage_id for part in parts])
    return not result.duplicate


def _advice(application: str, query: str, batch: int, error: Refused) -> str:
    refused = f"batch {batch} of query {query} was refused for application {application!r}, nothing of it is visible: "
    if isinstance(error, TooLarge) and "message ids" in str(error):
        return f"{refused}{error}. Take smaller batches (maxOffsetsPerTrigger), or delivery=direct"
    if error.code != "application_batch_refused":
        return f"{refused}{error}"
    return (
        f"{refused}{error}. After a lost checkpoint, or a full refresh of a declarative pipeline, two ways lead on: "
        f"read from startingOffsets=group:{application}, which begins where the server's copy ends and writes nothing "
        "twice; or set acceptNewQuery=true, for this start only, which begins a new history knowingly and may write "
        "again what is there"
    )


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Frees the stages of tasks that were done."""
    parts = [part for message in messages if isinstance(message, Staged) for part in message.parts]
    drop_stages(options.url, [part.stage_id for part in parts])
