"""Stages and the Spark applications that publish them (P11).

A stage is an extent that is in no stream: durable, invisible, used once. A driver publishes exactly the stages it was
handed, by reference, in one entry that also stores the query, the batch number and the source's end offsets. Replays
are no-ops, an older driver is fenced, and an expired stage makes the publish fail whole, never in part.
"""

from oncelog import limits
from oncelog.core import message_id
from oncelog.core.append import append_refused
from oncelog.core.command import (
    AppendStage,
    DropStages,
    ExpireStages,
    OpenApplication,
    OpenStage,
    Publish,
)
from oncelog.core.content_type import batch_refused, is_json
from oncelog.core.cursor import moved
from oncelog.core.entry import (
    ApplicationSet,
    Compound,
    Entry,
    Operation,
    StageAppended,
    StageDropped,
    StageOpened,
    StagePublished,
)
from oncelog.core.fact_columns import holds_facts
from oncelog.core.outcome import (
    ApplicationBatchRefused,
    ApplicationDone,
    ApplicationFenced,
    BatchRefused,
    ClaimInvalid,
    CommitConfirmed,
    ContentTypeMismatch,
    EnvelopeInvalid,
    Outcome,
    Refusal,
    ShardMismatch,
    StageBusy,
    StageCountMismatch,
    StageDone,
    StageMissing,
    StreamClosedRefusal,
    TooLarge,
    TopicMissing,
)
from oncelog.core.rows import Application, Stage
from oncelog.core.staged_ids import StagedIds
from oncelog.core.state import State

Decision = tuple[Entry | None, Outcome]


def decide_open_application(state: State, command: OpenApplication, now_ns: int) -> Decision:
    """A driver starts. What it gets fences every driver before it."""
    name = command.application
    old = state.applications[name] or Application(0)
    new = Application(old.fence + 1, old.query, old.batch, old.source_end, list(old.outcome), now_ns)
    answer = ApplicationDone(new.fence, new.query, new.batch, new.source_end)
    return Compound(now_ns, [ApplicationSet(name, new)]), answer


def fence_refused(state: State, application: str, fence: int) -> Refusal | None:
    """Only the newest driver of an application may stage and publish."""
    row = state.applications[application]
    current = row.fence if row is not None else 0
    return ApplicationFenced(application, current, fence) if fence != current or not current else None


def decide_open_stage(state: State, command: OpenStage, now_ns: int) -> Decision:
    """An empty stage."""
    if command.application and (refusal := fence_refused(state, command.application, command.fence)) is not None:
        return None, refusal
    ttl_ms = command.ttl_ms or limits.STAGE_TTL_MS_DEFAULT
    if not 0 < ttl_ms <= limits.STAGE_TTL_MS_MAX:
        return None, TooLarge("stage ttl ms", limits.STAGE_TTL_MS_MAX, ttl_ms, least=0)
    fence = command.fence if command.application else 0
    operation = StageOpened(state.next_id, command.application, fence, ttl_ms, command.content_type)
    return Compound(now_ns, [operation]), StageDone(state.next_id, 0, now_ns + ttl_ms * 1_000_000)


def _live_stage(state: State, stage_id: int, now_ns: int) -> Stage | None:
    """An expired stage is gone from the moment it expires, not from when a timer drops it."""
    stage = state.stages[stage_id]
    return stage if stage is not None and now_ns < stage.expires_ns else None


def decide_append_stage(state: State, command: AppendStage, now_ns: int) -> Decision:
    """A batch at the stage's end; the retry of the newest one is a duplicate."""
    stage = _live_stage(state, command.stage_id, now_ns)
    if stage is None:
        return None, StageMissing(command.stage_id)
    if stage.application and (refusal := fence_refused(state, stage.application, stage.fence)) is not None:
        return None, refusal
    if command.at == stage.last_first and command.at + command.count == stage.count:
        if command.digest != stage.last_digest:
            return None, ClaimInvalid("the stage holds other content at this place", stage.count, command.at)
        return None, StageDone(stage.stage_id, stage.count, stage.expires_ns, duplicate=True)
    if command.at != stage.count:
        return None, StageCountMismatch(stage.stage_id, command.at, stage.count)
    if len(command.digest) != message_id.DIGEST_BYTES:
        return None, BatchRefused("a batch of a stage needs a digest of the content")
    refusal = append_refused(command.batch, command.count) or batch_refused(stage.content_type, command.batch)
    if refusal is not None:
        return None, refusal
    operation = StageAppended(stage.stage_id, stage.count, command.count, command.batch, command.digest)
    answer = StageDone(stage.stage_id, stage.count + command.count, now_ns + stage.ttl_ms * 1_000_000)
    return Compound(now_ns, [operation]), answer


def decide_drop_stages(state: State, command: DropStages, now_ns: int) -> Decision:
    """Unknown and published stages are skipped, so that an abort never undoes a commit."""
    dropped: list[Operation] = [
        StageDropped(stage_id) for stage_id in dict.fromkeys(command.stage_ids) if state.stages[stage_id] is not None
    ]
    entry = Compound(now_ns, dropped) if dropped else None
    return entry, CommitConfirmed([])


def decide_expire_stages(state: State, command: ExpireStages, now_ns: int) -> Decision:
    """Drop those whose time is up."""
    dropped: list[Operation] = [
        StageDropped(stage_id)
        for stage_id in dict.fromkeys(command.stage_ids)
        if (stage := state.stages[stage_id]) is not None and now_ns >= stage.expires_ns
    ]
    # What does not fit one entry lives on, and the timer asks for it in its next round.
    entry = Compound(now_ns, dropped[: limits.STAGES_PER_PUBLISH_MAX]) if dropped else None
    return entry, CommitConfirmed([])


def decide_publish(state: State, command: Publish, now_ns: int) -> Decision:
    """One entry: every stage into its stream, and the application's progress."""
    if not 0 <= command.batch <= limits.SEQUENCE_MAX or not command.query:
        return None, ClaimInvalid("a publish names its query and a batch number from 0", 0, command.batch)
    if (refusal := fence_refused(state, command.application, command.fence)) is not None:
        return None, refusal
    application = state.applications[command.application]
    assert application is not None
    if command.query == application.query and command.batch <= application.batch:
        outcome = list(application.outcome) if command.batch == application.batch else []
        return None, CommitConfirmed(outcome, duplicate=True)
    if (refusal := _batch_refused(application, command)) is not None:
        return None, refusal
    operations, outcome, added, refusal = _published(state, command, now_ns)
    if refusal is not None:
        return None, refusal
    for move in command.cursors:
        stream = state.stream(move.topic, move.partition)
        extra = added.get(stream.stream_id, 0) if stream is not None else 0
        operation, refusal = moved(state, move, extra)
        if operation is None:
            assert refusal is not None
            return None, refusal
        operations.append(operation)
    new = Application(application.fence, command.query, command.batch, command.source_end, outcome, now_ns)
    operations.append(ApplicationSet(command.application, new))
    return Compound(now_ns, operations), CommitConfirmed(list(outcome))


def _batch_refused(application: Application, command: Publish) -> Refusal | None:
    """Batches of one query follow each other; a new query must begin where the old one ended, and must say so.

    An empty source is no place: two queries that both name none have not shown that one follows the other (P11).
    """
    if command.query == application.query:
        if command.batch == application.batch + 1:
            return None
        reason = "a batch is missing before this one"
    elif not application.query or command.accept_new_query:
        return None
    elif application.source_end and command.source_start == application.source_end:
        return None
    else:
        reason = "another query published for this application and this one does not start where it ended"
    return ApplicationBatchRefused(command.application, application.query, application.batch + 1, command.batch, reason)


def _published(
    state: State, command: Publish, now_ns: int
) -> tuple[list[Operation], list[int], dict[int, int], Refusal | None]:
    operations: list[Operation] = []
    added: dict[int, int] = {}
    staged_ids = StagedIds(state, now_ns)
    shard = -1
    used: set[int] = set()
    for item in command.stages:
        stream = state.stream(item.topic, item.partition)
        if stream is None:
            return [], [], {}, TopicMissing(item.topic, item.partition)
        if shard not in (-1, stream.shard):
            return [], [], {}, ShardMismatch(shard, stream.shard)
        shard = stream.shard
        if stream.closed:
            return [], [], {}, StreamClosedRefusal(stream.stream_id, stream.tail)
        stage = _live_stage(state, item.stage_id, now_ns)
        if stage is None or item.stage_id in used or stage.application != command.application:
            return [], [], {}, StageMissing(item.stage_id)
        used.add(item.stage_id)
        if stage.count != item.count:
            return [], [], {}, StageCountMismatch(stage.stage_id, item.count, stage.count)
        if is_json(stream.config.content_type) and not is_json(stage.content_type):
            return [], [], {}, ContentTypeMismatch(stream.config.content_type, stage.content_type)
        if not stage.count:
            operations.append(StageDropped(stage.stage_id))
            continue
        if holds_facts(stream) and not (item.named and item.facts):
            return [], [], {}, EnvelopeInvalid("what is published into a fact topic is read as facts; name its ids")
        if item.named and item.ids is None:
            # Whoever read the ids found another stage than this one: what they would have said is not known.
            return [], [], {}, StageBusy(stage.stage_id)
        first = stream.tail + added.get(stream.stream_id, 0)
        added[stream.stream_id] = added.get(stream.stream_id, 0) + stage.count
        ids, refusal = staged_ids.take(stream, item, first)
        if refusal is not None:
            return [], [], {}, refusal
        operations.append(StagePublished(stage.stage_id, stream.stream_id, first, stage.count, ids))
    operations += staged_ids.operations()
    # The stages of one stream lie end to end, so its outcome is one range however many tasks wrote it.
    outcome: list[int] = []
    for stream_id, count in added.items():
        published = state.streams[stream_id]
        assert published is not None
        outcome += (stream_id, published.tail, published.tail + count)
    return operations, outcome, added, None
