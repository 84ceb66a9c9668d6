"""The message ids of stages that are to be published: read from the disk before the publish is decided.

`decide` reads no disk, and the ids lie in the staged records. So a publish is completed first: planned on the loop's
thread, read on the reader's, then submitted as any other command. A stage that is not what the publish believes is left
unread: `decide` says why not, and asks for another look if it has become that one meanwhile.
"""

from collections.abc import Callable

import msgspec

from oncelog import limits
from oncelog.core.command import Publish, PublishItem
from oncelog.core.fact_columns import facts_in
from oncelog.core.outcome import Refusal
from oncelog.core.rows import Stage
from oncelog.core.staged_ids import ids_in
from oncelog.engine.reader import Reader, ReadPart
from oncelog.errors import BatchInvalid

Plans = list[list[ReadPart] | None]
"""Of each stage of a publish: where its records lie, None if they are not to be read."""


def of_facts(command: Publish, is_fact_topic: Callable[[str], bool]) -> Publish:
    """The publish, with what goes into fact topics marked: its records are read as facts."""
    if not any(is_fact_topic(item.topic) for item in command.stages):
        return command
    return msgspec.structs.replace(
        command,
        stages=[
            msgspec.structs.replace(item, named=True, facts=True) if is_fact_topic(item.topic) else item
            for item in command.stages
        ],
    )


def plans_of(command: Publish, reader: Reader, stage_of: Callable[[int], Stage | None]) -> Plans:
    """Where to read. Raises Corruption."""
    plans: Plans = []
    for item in command.stages:
        stage = stage_of(item.stage_id) if item.named else None
        is_whole = stage is not None and stage.count == item.count
        plans.append(reader.plan_stage(item.stage_id, item.count) if is_whole else None)
    return plans


def newest_group(plans: Plans) -> int:
    """The last group that is to be read. The rows are the writer's own, so it may not be durable yet."""
    return max((part.group for parts in plans for part in parts or ()), default=0)


def completed(command: Publish, plans: Plans, reader: Reader) -> Publish | Refusal:
    """The publish with its ids. May run on another thread; touches only the journal's files. Raises Corruption."""
    stages: list[PublishItem] = []
    for item, parts in zip(command.stages, plans, strict=True):
        read = item if parts is None else _with_ids(item, parts, reader)
        if isinstance(read, Refusal):
            return read
        stages.append(read)
    return msgspec.structs.replace(command, stages=stages)


def _with_ids(item: PublishItem, parts: list[ReadPart], reader: Reader) -> PublishItem | Refusal:
    """A few megabytes at a time: a stage may be as large as the disk."""
    ids: list[tuple[int, bytes, bytes]] = []
    waiting: list[ReadPart] = []
    for number, part in enumerate(parts, start=1):
        waiting.append(part)
        if number == len(parts) or sum(read.length for read in waiting) >= limits.STAGE_READ_BYTES:
            for each, batch in zip(waiting, reader.fetch_parts(waiting), strict=True):
                if item.facts:
                    found = facts_in(bytes(batch.batch))
                    if isinstance(found, Refusal):
                        return found
                    ids += [(batch.base_offset + number, id_, digest) for number, id_, digest in found]
                    continue
                try:
                    ids += ids_in(batch.base_offset, batch.batch)
                except BatchInvalid as error:
                    raise reader.damage(each, f"of stage {item.stage_id} cannot be decoded: {error}") from error
            waiting = []
    return msgspec.structs.replace(item, ids=ids)
