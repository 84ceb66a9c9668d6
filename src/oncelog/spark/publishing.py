"""What the driver does at the end of a write: name the stages that it was handed, in one request, and nothing else.

The request is idempotent by (application, query, batch), so it is repeated until an answer comes. An abort drops stages
and never undoes: if the publish had happened after all, its stages are no longer stages, and dropping skips them.
"""

from collections.abc import Sequence

from pyspark.sql.datasource import WriterCommitMessage

from oncelog.client import Conflict, Fenced, NotFound, PublishStage, TooLarge
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
            refused = (
                f"batch {batch} of query {query} was refused for application {grant.application!r}, nothing of it is "
                f"visible: {error}"
            )
            if isinstance(error, TooLarge) and "message ids" in str(error):
                refused += ". Take smaller batches (maxOffsetsPerTrigger), or delivery=direct"
            elif error.code == "application_batch_refused":
                held = link.application(grant.application)
                known = held is not None and bool(held.source_end)
                refused += f". {_ways_on(grant.application, known=known, tracking=options.source_tracking)}"
            raise PublishRefused(refused) from error
    if result.duplicate:
        drop_stages(options.url, [part.stage_id for part in parts])
    return not result.duplicate


def _ways_on(application: str, *, known: bool, tracking: bool) -> str:
    """What a query can do that the server does not know. `known`: the server has what the one before had read.
    `tracking`: this sink tells what it reads."""
    new_history = (
        "acceptNewQuery=true, for this start only, which begins a new history knowingly and may write again what is "
        "there"
    )
    if not known:
        return (
            "The application was written with sourceTracking=none, so the server does not know what was read, and "
            f"startingOffsets=group:{application} has nothing to go on from. What leads on is {new_history}. Leave "
            "sourceTracking out from then on, and a lost checkpoint can be made good"
        )
    leave_out = "" if tracking else "leave sourceTracking=none out, with which the sink does not tell where it is, and "
    return (
        "After a lost checkpoint, or a full refresh of a declarative pipeline, two ways lead on: "
        f"{leave_out}read from startingOffsets=group:{application}, which begins where the server's copy ends and "
        f"writes nothing twice; or set {new_history}"
    )


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Frees the stages of tasks that were done."""
    parts = [part for message in messages if isinstance(message, Staged) for part in message.parts]
    drop_stages(options.url, [part.stage_id for part in parts])
