"""Stages and Spark applications: used once, whole or not at all, replays are no-ops, nothing is lost silently (P11)."""

import pytest

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.command import (
    Append,
    AppendStage,
    CloseStream,
    CreateTopic,
    CursorMove,
    DropStages,
    ExpireStages,
    GetApplication,
    GetCursor,
    GetReceipt,
    GetStream,
    OpenApplication,
    OpenStage,
    Publish,
    PublishItem,
)
from oncelog.core.message_id import content_digest
from oncelog.core.outcome import (
    ApplicationBatchRefused,
    ApplicationDone,
    ApplicationFenced,
    ApplicationFound,
    BatchRefused,
    ClaimInvalid,
    CommitConfirmed,
    Confirmed,
    CursorDone,
    IdConflict,
    NameInvalid,
    NotFound,
    OffsetAhead,
    Outcome,
    ReceiptFound,
    StageBusy,
    StageCountMismatch,
    StageDone,
    StageMissing,
    StreamClosedRefusal,
    StreamDone,
    TooLarge,
    TopicDone,
    TopicMissing,
)
from oncelog.core.rows import Application, Cause, Table, TopicConfig
from oncelog.testing.core_harness import MS, CoreHarness

APP = "app"


@pytest.fixture(params=["rows dropped before every command", "rows kept"])
def log(request: pytest.FixtureRequest) -> CoreHarness:
    harness = CoreHarness()
    harness.keep_loaded = request.param == "rows kept"
    harness.create("t")
    harness.create("u")
    assert harness.run(OpenApplication(APP)) == ApplicationDone(1, "", -1, b"")
    return harness


def stage(log: CoreHarness, *values: bytes, application: str = APP, fence: int = 1, ttl_ms: int = 0) -> int:
    """A stage with these values."""
    opened = log.run(OpenStage(application, fence, ttl_ms))
    assert isinstance(opened, StageDone), opened
    if values:
        assert isinstance(append(log, opened.stage_id, 0, *values), StageDone)
    return opened.stage_id


def append(log: CoreHarness, stage_id: int, at: int, *values: bytes) -> Outcome:
    batch = codec.encode_values(values, 1)
    return log.run(AppendStage(stage_id, at, batch, len(values), content_digest(b"|".join(values))))


def publish(*items: tuple[int, str, int], batch: int = 0, fence: int = 1, query: str = "q") -> Publish:
    return Publish([PublishItem(id_, topic, 0, count) for id_, topic, count in items], APP, fence, query, batch)


def refused(log: CoreHarness, command: Publish) -> Outcome:
    outcome = log.run(command)
    assert log.last_entry is None
    return outcome


# --- staging -----------------------------------------------------------------------------------------------------


LONGEST_TYPE = "t" * limits.TOPIC_CONFIG_BYTES_MAX


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("", StageDone),
        ("application/json", StageDone),
        (LONGEST_TYPE, StageDone),
        (LONGEST_TYPE + "t", TooLarge),
        ("text/plain\r\nEvil: yes", NameInvalid),
        ("text/plän", NameInvalid),
        ("Application/vnd.oncelog.batches", NameInvalid),
    ],
    ids=["none", "json", "longest", "too long", "line break", "not ASCII", "raw batches"],
)
def test_content_type_of_a_stage_is_one_that_a_topic_may_have(log: CoreHarness, content_type: str, kind: type) -> None:
    assert type(log.run(OpenStage(APP, 1, 0, content_type))) is kind
    if content_type:
        made = log.run(CreateTopic("v", 1, TopicConfig(content_type)))
        assert type(made) is (TopicDone if kind is StageDone else kind)


def test_stage_is_invisible_until_it_is_published(log: CoreHarness) -> None:
    one = stage(log, b"a", b"b")
    assert log.run(GetStream("t")) == StreamDone(2, 0, 0, 0, False)
    log.append("t", b"before")
    assert log.run(publish((one, "t", 2))) == CommitConfirmed([2, 1, 3])
    assert log.run(GetStream("t")) == StreamDone(2, 0, 3, 3, False)


def test_retry_of_the_newest_stage_append_is_a_duplicate(log: CoreHarness) -> None:
    one = stage(log, b"a")
    assert append(log, one, 1, b"b", b"c") == StageDone(one, 3, log.now_ns + limits.STAGE_TTL_MS_DEFAULT * MS)
    assert append(log, one, 1, b"b", b"c") == StageDone(one, 3, log.now_ns + limits.STAGE_TTL_MS_DEFAULT * MS, True)
    assert log.last_entry is None
    assert isinstance(append(log, one, 1, b"b", b"x"), ClaimInvalid)
    assert append(log, one, 0, b"a") == StageCountMismatch(one, 0, 3)
    assert append(log, one, 9, b"a") == StageCountMismatch(one, 9, 3)


def test_append_renews_the_time_to_live(log: CoreHarness) -> None:
    one = stage(log, b"a", ttl_ms=1000)
    log.pass_ms(900)
    assert append(log, one, 1, b"b") == StageDone(one, 2, log.now_ns + 1000 * MS)
    log.pass_ms(999)
    assert isinstance(append(log, one, 2, b"c"), StageDone)
    log.pass_ms(1000)
    assert append(log, one, 3, b"d") == StageMissing(one)


def test_each_bound_of_a_stage_is_refused(log: CoreHarness) -> None:
    assert isinstance(log.run(OpenStage("", 0, limits.STAGE_TTL_MS_MAX + 1)), TooLarge)
    assert isinstance(log.run(OpenStage("", 0, -1)), TooLarge)
    assert isinstance(log.run(OpenStage("a\0")), NameInvalid)
    one = stage(log)
    assert isinstance(log.run(AppendStage(one, 0, b"x" * (limits.BATCH_BYTES_MAX + 1), 1, b"d" * 16)), TooLarge)
    assert isinstance(log.run(AppendStage(one, 0, b"", 1, b"d" * 16)), BatchRefused)
    assert isinstance(log.run(AppendStage(one, 0, b"x", 1, b"d" * 256)), BatchRefused)
    assert isinstance(log.run(AppendStage(one, 0, b"x" * limits.BATCH_BYTES_MAX, 1, b"d" * 16)), StageDone)
    for nowhere in (99, 0, -1, 2**64):
        assert append(log, nowhere, 0, b"a") == StageMissing(nowhere)


def test_stage_of_a_fenced_driver_takes_nothing_more(log: CoreHarness) -> None:
    one = stage(log, b"a")
    log.run(OpenApplication(APP))
    assert append(log, one, 1, b"b") == ApplicationFenced(APP, 2, 1)
    assert log.run(OpenStage(APP, 1)) == ApplicationFenced(APP, 2, 1)
    assert log.run(OpenStage("never opened", 0)) == ApplicationFenced("never opened", 0, 0)


# --- publishing --------------------------------------------------------------------------------------------------


def test_publish_puts_stages_end_to_end_in_one_entry(log: CoreHarness) -> None:
    stages = [stage(log, *[b"x"] * count) for count in (2, 3, 1)]
    entries = len(log.journal)
    command = publish((stages[1], "t", 3), (stages[0], "u", 2), (stages[2], "t", 1))
    command.cursors = [CursorMove("c", "t", 0, 4)]
    assert log.run(command) == CommitConfirmed([2, 0, 4, 4, 0, 2])
    assert len(log.journal) == entries + 1
    cursor = log.run(GetCursor("c", "t", 0))
    assert isinstance(cursor, CursorDone)
    assert cursor.cursor is not None
    assert cursor.cursor.frontier == 4
    log.replay_all()


def test_replayed_publish_is_a_no_op_with_the_first_outcome(log: CoreHarness) -> None:
    one = stage(log, b"a")
    command = publish((one, "t", 1))
    log.run(command)
    log.restart()
    assert log.run(command) == CommitConfirmed([2, 0, 1], duplicate=True)
    assert log.last_entry is None
    again = stage(log, b"a")
    assert log.run(publish((again, "t", 1))) == CommitConfirmed([2, 0, 1], duplicate=True)
    assert log.run(publish((again, "t", 1), batch=1)) == CommitConfirmed([2, 1, 2])
    assert log.run(publish((again, "t", 1), batch=0)) == CommitConfirmed([], duplicate=True)


def test_restarted_driver_replays_under_its_new_fence(log: CoreHarness) -> None:
    log.run(publish((stage(log, b"a"), "t", 1)))
    assert log.run(OpenApplication(APP)) == ApplicationDone(2, "q", 0, b"")
    replayed = stage(log, b"a", fence=2)
    assert log.run(publish((replayed, "t", 1), fence=2)) == CommitConfirmed([2, 0, 1], duplicate=True)


def test_zombie_driver_is_fenced_also_for_a_batch_it_published(log: CoreHarness) -> None:
    one = stage(log, b"a")
    log.run(publish((one, "t", 1)))
    log.run(OpenApplication(APP))
    assert refused(log, publish((one, "t", 1))) == ApplicationFenced(APP, 2, 1)
    assert refused(log, publish((one, "t", 1), batch=1)) == ApplicationFenced(APP, 2, 1)


def test_missing_batch_is_refused(log: CoreHarness) -> None:
    log.run(publish((stage(log, b"a"), "t", 1)))
    two = stage(log, b"b")
    outcome = refused(log, publish((two, "t", 1), batch=2))
    assert isinstance(outcome, ApplicationBatchRefused)
    assert (outcome.expected_batch, outcome.received_batch) == (1, 2)


def test_lost_checkpoint_is_refused_unless_it_continues_or_is_accepted(log: CoreHarness) -> None:
    first = publish((stage(log, b"a"), "t", 1))
    first.source_end = b"{offset 7}"
    log.run(first)
    one = stage(log, b"b")
    lost = publish((one, "t", 1), query="new")
    assert isinstance(refused(log, lost), ApplicationBatchRefused)
    lost.source_start = b"{offset 3}"
    assert isinstance(refused(log, lost), ApplicationBatchRefused)
    lost.source_start, lost.source_end = b"{offset 7}", b"{offset 9}"
    assert log.run(lost) == CommitConfirmed([2, 1, 2])
    late = publish((stage(log, b"c"), "t", 1), batch=1)
    assert isinstance(refused(log, late), ApplicationBatchRefused), "the old query does not come back silently"
    late.accept_new_query = True
    assert log.run(late) == CommitConfirmed([2, 2, 3])


def test_two_queries_without_source_offsets_have_not_shown_that_one_follows_the_other(log: CoreHarness) -> None:
    log.run(publish((stage(log, b"a"), "t", 1)))
    one = stage(log, b"a")
    assert isinstance(refused(log, publish((one, "t", 1), query="new")), ApplicationBatchRefused)


def test_application_answers_how_far_it_came(log: CoreHarness) -> None:
    assert log.run(GetApplication("nobody")) == NotFound("application")
    command = publish((stage(log, b"a"), "t", 1), batch=4)
    command.source_end = b"{}"
    log.run(command)
    found = log.run(GetApplication(APP))
    assert found == ApplicationFound(Application(1, "q", 4, b"{}", [2, 0, 1], log.now_ns))
    assert log.run(OpenApplication(APP)) == ApplicationDone(2, "q", 4, b"{}")


def test_stage_is_published_once(log: CoreHarness) -> None:
    one, two = stage(log, b"a"), stage(log, b"b")
    assert refused(log, publish((one, "t", 1), (one, "t", 1))) == StageMissing(one)
    log.run(publish((one, "t", 1)))
    assert refused(log, publish((two, "t", 1), (one, "t", 1), batch=1)) == StageMissing(one)
    assert log.run(GetStream("t")) == StreamDone(2, 0, 1, 1, False)


def test_one_bad_stage_publishes_nothing(log: CoreHarness) -> None:
    good = stage(log, b"a")
    log.run(OpenApplication("other"))
    foreign = stage(log, b"b", application="other")
    expired = stage(log, b"c", ttl_ms=10)
    log.pass_ms(10)
    log.run(CloseStream("u"))
    for bad, answer in (
        ((999, "t", 1), StageMissing(999)),
        ((foreign, "t", 1), StageMissing(foreign)),
        ((expired, "t", 1), StageMissing(expired)),
        ((good, "no", 1), TopicMissing("no")),
        ((-4, "t", 1), StageMissing(-4)),
    ):
        assert refused(log, publish((good, "t", 1), bad)) == answer
    assert refused(log, publish((good, "t", 2))) == StageCountMismatch(good, 2, 1)
    assert refused(log, publish((good, "u", 1))) == StreamClosedRefusal(4, 0)
    moving = publish((good, "t", 1))
    moving.cursors = [CursorMove("c", "t", 0, 2)]
    assert refused(log, moving) == OffsetAhead(2, 2, 1)
    assert log.run(publish((good, "t", 1))) == CommitConfirmed([2, 0, 1])


def test_empty_stage_is_dropped_by_its_publish(log: CoreHarness) -> None:
    empty, one = stage(log), stage(log, b"a")
    assert log.run(publish((empty, "t", 0), (one, "t", 1))) == CommitConfirmed([2, 0, 1])
    assert append(log, empty, 0, b"a") == StageMissing(empty)
    assert log.run(publish(batch=1)) == CommitConfirmed([])


def test_each_bound_of_a_publish_is_refused(log: CoreHarness) -> None:
    assert isinstance(refused(log, publish(batch=-1)), ClaimInvalid)
    assert isinstance(refused(log, publish(batch=2**60)), ClaimInvalid)
    assert isinstance(refused(log, publish(query="")), ClaimInvalid)
    assert isinstance(refused(log, publish(query="q" * 401)), TooLarge)
    assert isinstance(refused(log, publish(query="\ud800")), NameInvalid)
    many = Publish([PublishItem(1, "t", 0, 1)] * (limits.STAGES_PER_PUBLISH_MAX + 1), APP, 1, "q", 0)
    assert isinstance(refused(log, many), TooLarge)
    source = publish()
    source.source_end = b"x" * (limits.APPLICATION_SOURCE_BYTES_MAX + 1)
    assert isinstance(refused(log, source), TooLarge)
    heavy = publish()
    heavy.cursors = [CursorMove(f"c{number}", "t", 0, 0, "m" * 4096) for number in range(1000)]
    assert isinstance(refused(log, heavy), TooLarge)
    countless = publish()
    countless.cursors = [CursorMove("c", "t", 0, 0)] * (limits.COMMIT_APPENDS_MAX + 1)
    assert isinstance(refused(log, countless), TooLarge)
    for name in ("", "a\0b", "a" * 401):
        assert isinstance(log.run(OpenApplication(name)), NameInvalid | TooLarge)


# --- dropping and expiring (P7) ----------------------------------------------------------------------------------


def test_dropping_never_undoes_a_publish(log: CoreHarness) -> None:
    one, two = stage(log, b"a"), stage(log, b"b")
    log.run(publish((one, "t", 1)))
    assert log.run(DropStages([one, two, two, 999])) == CommitConfirmed([])
    assert append(log, two, 1, b"c") == StageMissing(two)
    assert log.run(GetStream("t")) == StreamDone(2, 0, 1, 1, False)
    assert log.run(DropStages([one, two])) == CommitConfirmed([])
    assert log.last_entry is None


def test_abandoned_stage_ends_exactly_at_its_time(log: CoreHarness) -> None:
    one = stage(log, b"a", ttl_ms=1000)
    log.pass_ms(999)
    log.run(ExpireStages([one, 999]))
    assert not log.wrote()
    log.pass_ms(1)
    assert log.run(ExpireStages([one, one])) == CommitConfirmed([])
    assert log.wrote()
    log.run(ExpireStages([one]))
    assert not log.wrote()


def test_expiry_drops_what_one_entry_holds_and_leaves_the_rest(
    log: CoreHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STAGES_PER_PUBLISH_MAX", 3)
    stages = [stage(log, b"a", ttl_ms=1) for _ in range(5)]
    log.pass_ms(1)
    for left in (2, 0):
        assert log.run(ExpireStages(stages)) == CommitConfirmed([])
        assert len(log.rows.tables[Table.STAGE]) == left
    assert isinstance(log.run(DropStages(stages)), TooLarge)


# --- message ids -------------------------------------------------------------------------------------------------


def holes_of(log: CoreHarness, topic: str) -> list[tuple[int, int, int]]:
    """(first, next, cause) of a short stream."""
    stands = log.run(GetStream(topic, 0))
    assert isinstance(stands, StreamDone)
    key = (Table.HOLES, (stands.stream_id, 0))
    log.rows.load(log.state, [key])
    chunk = log.state.holes[key[1]]
    flat = chunk.holes if chunk is not None else []
    return [(flat[at], flat[at + 1], flat[at + 2]) for at in range(0, len(flat), 4)]


def named(stage_id: int, topic: str, count: int, *ids: tuple[int, bytes, bytes]) -> PublishItem:
    judged = [(number, id_, content_digest(value)) for number, id_, value in ids]
    return PublishItem(stage_id, topic, 0, count, True, judged)


def test_fresh_ids_are_remembered_with_the_offsets_that_their_records_took(log: CoreHarness) -> None:
    log.append("t", b"before")
    item = named(stage(log, b"a", b"b", b"c"), "t", 3, (0, b"1", b"a"), (2, b"3", b"c"))
    assert log.run(Publish([item], APP, 1, "q", 0)) == CommitConfirmed([2, 1, 4])
    for id_, offset, value in ((b"1", 1, b"a"), (b"3", 3, b"c")):
        found = log.run(GetReceipt("t", 0, id_))
        assert isinstance(found, ReceiptFound)
        assert (found.first, found.next, found.digest, found.gone) == (offset, offset + 1, content_digest(value), False)
    again = log.run(Append("t", 0, codec.encode_values([b"c"], 1), 1, content_digest(b"c"), message_id=b"3"))
    assert isinstance(again, Confirmed)
    assert (again.first, again.duplicate) == (3, True), "the id is known to every other writer"


def test_record_of_a_known_id_is_a_hole_from_the_start(log: CoreHarness) -> None:
    log.run(Append("t", 0, codec.encode_values([b"a"], 1), 1, content_digest(b"a"), message_id=b"1"))
    items = [
        named(stage(log, b"a", b"b", b"b"), "t", 3, (0, b"1", b"a"), (1, b"2", b"b"), (2, b"2", b"b")),
        named(stage(log, b"b", b"new"), "t", 2, (0, b"2", b"b"), (1, b"4", b"new")),
    ]
    assert log.run(Publish(items, APP, 1, "q", 0)) == CommitConfirmed([2, 1, 6])
    assert holes_of(log, "t") == [(1, 2, Cause.DUPLICATE), (3, 5, Cause.DUPLICATE)]
    first = log.run(GetReceipt("t", 0, b"1"))
    assert isinstance(first, ReceiptFound)
    assert first.first == 0, "the first outcome stays"


def test_same_id_in_another_stream_is_another_id(log: CoreHarness) -> None:
    items = [
        named(stage(log, b"a"), "t", 1, (0, b"1", b"a")),
        named(stage(log, b"z"), "u", 1, (0, b"1", b"z")),
    ]
    assert log.run(Publish(items, APP, 1, "q", 0)) == CommitConfirmed([2, 0, 1, 4, 0, 1])
    assert holes_of(log, "t") == holes_of(log, "u") == []


@pytest.mark.parametrize("where", ["in the log", "in the same publish"])
def test_known_id_with_other_content_refuses_the_publish_whole(log: CoreHarness, where: str) -> None:
    stored = log.run(Append("t", 0, codec.encode_values([b"a"], 1), 1, content_digest(b"a"), message_id=b"1"))
    assert isinstance(stored, Confirmed)
    id_ = b"1" if where == "in the log" else b"2"
    items = [
        named(stage(log, b"x", b"b"), "t", 2, (1, b"2", b"b")),
        named(stage(log, b"other"), "t", 1, (0, id_, b"other")),
    ]
    expected = (0, content_digest(b"a")) if where == "in the log" else (2, content_digest(b"b"))
    outcome = refused(log, Publish(items, APP, 1, "q", 0))
    assert outcome == IdConflict(2, expected[0], expected[1], content_digest(b"other"), id_.decode(), "t", 0)
    assert isinstance(log.run(GetReceipt("t", 0, b"2")), NotFound)


def test_stage_whose_ids_nobody_has_read_is_not_published(log: CoreHarness) -> None:
    """Its records may be known: without their ids nobody can tell."""
    one = stage(log, b"a")
    unread = Publish([PublishItem(one, "t", 0, 1, named=True)], APP, 1, "q", 0)
    assert refused(log, unread) == StageBusy(one)
    read = Publish([PublishItem(one, "t", 0, 1, True, [])], APP, 1, "q", 0)
    assert log.run(read) == CommitConfirmed([2, 0, 1])
    assert log.run(unread) == CommitConfirmed([2, 0, 1], duplicate=True), "a retry of a success is a success"


def test_replayed_publish_with_ids_is_a_no_op(log: CoreHarness) -> None:
    command = Publish([named(stage(log, b"a"), "t", 1, (0, b"1", b"a"))], APP, 1, "q", 0)
    assert log.run(command) == CommitConfirmed([2, 0, 1])
    assert log.run(command) == CommitConfirmed([2, 0, 1], duplicate=True)
    assert log.last_entry is None


def test_ids_of_one_publish_are_bounded(log: CoreHarness) -> None:
    count = limits.PUBLISH_IDS_MAX + 1
    item = PublishItem(1, "t", 0, count, True, [(number, b"%d" % number, bytes(16)) for number in range(count)])
    outcome = refused(log, Publish([item], APP, 1, "q", 0))
    assert outcome == TooLarge("records with message ids in one publish", limits.PUBLISH_IDS_MAX, count)


def test_count_below_zero_is_refused_and_balances_no_other(log: CoreHarness) -> None:
    many = PublishItem(1, "t", 0, limits.PUBLISH_IDS_MAX + 1, named=True)
    below = PublishItem(2, "t", 0, -many.count, named=True)
    for items in ([many, below], [below], [PublishItem(2, "t", 0, below.count)]):
        outcome = refused(log, Publish(items, APP, 1, "q", 0))
        assert outcome == TooLarge("records of one stage", limits.SEQUENCE_MAX, below.count, least=0)


def test_malformed_ids_refuse_the_publish(log: CoreHarness) -> None:
    too_long = named(stage(log, b"a"), "t", 1, (0, b"x" * (limits.MESSAGE_ID_BYTES_MAX + 1), b"a"))
    assert isinstance(refused(log, Publish([too_long], APP, 1, "q", 0)), TooLarge)
    no_digest = PublishItem(stage(log, b"a"), "t", 0, 1, True, [(0, b"1", b"")])
    assert isinstance(refused(log, Publish([no_digest], APP, 1, "q", 0)), BatchRefused)
