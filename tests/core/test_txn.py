"""Txns: the table row by row against a literal copy of the reference, random walks, overflow, and Kafka's stories."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncelog.core.txn import (
    ABORT_UNSEEN_TABLE,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NS_PER_MS,
    TABLE,
    Action,
    Txn,
    TxnEvent,
    TxnRefusal,
    TxnState,
    TxnVerdict,
    is_expired,
    is_timed_out,
    judge,
    merge_range,
    next_txn,
    timeout_of,
)
from oncelog.limits import TXN_ID_EXPIRY_MS

PID = 7000
EPOCH_LAST = 32766
EXPIRY_NS = TXN_ID_EXPIRY_MS * NS_PER_MS

# Kafka's coordinator, with columns for writes and pending cursors (both only in an open txn) and the timer
# column split in two. Prepare* cells under "timeout" say "must finish". A number is Kafka's refusal.
REFERENCE = """
state           INIT         ADD      WRITE  OFFSETS  COMMIT      ABORT      TIMEOUT     EXPIRE   KILL
none            ALLOCATE     49       49     49       49          49         NOTHING     NOTHING  NOTHING
EMPTY           BUMP         START    120    120      48          48         NOTHING     FORGET   NOTHING
ONGOING         BUMP+ABORT   ADD      WRITE  OFFSETS  END_COMMIT  END_ABORT  TIME_OUT    NOTHING  TIME_OUT
PREPARE_COMMIT  51           51       51     51       51          48         END_COMMIT  NOTHING  51
PREPARE_ABORT   51           51       51     51       48          51         END_ABORT   NOTHING  51
COMPLETE_COMMIT BUMP         START    120    120      REPEAT      48         NOTHING     FORGET   NOTHING
COMPLETE_ABORT  BUMP         START    120    120      48          REPEAT     NOTHING     FORGET   NOTHING
DEAD            ALLOCATE     49       49     49       49          49         NOTHING     FORGET   NOTHING
"""
REFUSAL_OF_NUMBER = {
    "48": TxnRefusal.INVALID_STATE,
    "49": TxnRefusal.MAPPING,
    "51": TxnRefusal.CONCURRENT,
    "120": TxnRefusal.NOT_IN_TXN,
}


def reference_rows() -> list[tuple[TxnState | None, TxnEvent, str]]:
    head, *lines = [line.split() for line in REFERENCE.strip().splitlines()]
    events = [TxnEvent[name] for name in head[1:]]
    cells = []
    for name, *row in lines:
        state = None if name == "none" else TxnState[name]
        cells += [(state, event, cell) for event, cell in zip(events, row, strict=True)]
    return cells


def txn_in(state: TxnState, epoch: int = 5, **more: object) -> Txn:
    row = Txn("t", PID, epoch, NO_PRODUCER_ID, NO_EPOCH, 60_000, state, 0, 0)
    if state in (TxnState.ONGOING, TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT):
        row.streams, row.groups = {1: [10, 12], 2: []}, ["g"]
    return msgspec.structs.replace(row, **more)


def ask(row: Txn | None, event: TxnEvent, now_ns: int = EXPIRY_NS, **more: object) -> TxnVerdict:
    """Judge by the identity of the holder itself (for INIT: by none), at a time when every timer is due."""
    identity = {"producer_id": NO_PRODUCER_ID, "epoch": NO_EPOCH}
    if row is not None and event is not TxnEvent.INIT:
        identity = {"producer_id": row.producer_id, "epoch": row.epoch}
    return judge(row, event, now_ns=now_ns, **(identity | more))  # type: ignore[arg-type]


def step(row: Txn | None, event: TxnEvent, now_ns: int = 0, fresh: int = PID + 1, **more: object) -> Txn:
    """The row after an event that must succeed or fence."""
    after = next_txn(row, ask(row, event, now_ns, **more), txn_id="t", now_ns=now_ns, fresh_producer_id=fresh)
    assert after is not None
    return after


def init_as(row: Txn | None, producer_id: int, epoch: int) -> TxnVerdict:
    return ask(row, TxnEvent.INIT, producer_id=producer_id, epoch=epoch)


# --- the table ----------------------------------------------------------------------------------------------------


def test_table_and_reference_cover_every_pair() -> None:
    every = {(state, event) for state in (None, *TxnState) for event in TxnEvent}
    assert set(TABLE) == every
    assert {(state, event) for state, event, _ in reference_rows()} == every
    assert len(reference_rows()) == len(every)


@pytest.mark.parametrize(("state", "event", "cell"), reference_rows())
def test_verdict_follows_the_reference(state: TxnState | None, event: TxnEvent, cell: str) -> None:
    row = None if state is None else txn_in(state)
    before = msgspec.msgpack.encode(row)
    verdict = ask(row, event)
    assert msgspec.msgpack.encode(row) == before, "judge changes nothing"
    if cell in REFUSAL_OF_NUMBER:
        assert (verdict.action, verdict.refusal, verdict.state) == (Action.REFUSE, REFUSAL_OF_NUMBER[cell], state)
        assert next_txn(row, verdict, txn_id="t", now_ns=1) is row
    elif cell == "BUMP+ABORT":
        assert (verdict.action, verdict.refusal) == (Action.BUMP_AND_ABORT, TxnRefusal.CONCURRENT)
        assert (verdict.state, verdict.epoch) == (TxnState.COMPLETE_ABORT, 6)
    else:
        assert (verdict.action, verdict.refusal) == (Action[cell], None)
        assert TABLE[state, event] is Action[cell]


@pytest.mark.parametrize(
    ("action", "state", "epoch"),
    [
        (Action.BUMP, TxnState.EMPTY, 6),
        (Action.START, TxnState.ONGOING, 5),
        (Action.END_COMMIT, TxnState.COMPLETE_COMMIT, 5),
        (Action.END_ABORT, TxnState.COMPLETE_ABORT, 5),
        (Action.TIME_OUT, TxnState.COMPLETE_ABORT, 6),
        (Action.REPEAT, None, 5),
        (Action.NOTHING, None, 5),
    ],
)
def test_action_leads_to_its_state_and_epoch_from_wherever_it_is_taken(
    action: Action, state: TxnState | None, epoch: int
) -> None:
    pairs = [(before, event) for (before, event), found in TABLE.items() if found is action and before is not None]
    assert pairs
    for before, event in pairs:
        verdict = ask(txn_in(before), event)
        assert (verdict.state, verdict.epoch) == (before if state is None else state, epoch)


@pytest.mark.parametrize("state", TxnState)
def test_another_producer_id_or_epoch_is_refused_before_the_state_is_looked_at(state: TxnState) -> None:
    row = txn_in(state)
    for event in (TxnEvent.ADD, TxnEvent.WRITE, TxnEvent.OFFSETS, TxnEvent.COMMIT, TxnEvent.ABORT):
        dead = state is TxnState.DEAD
        assert ask(row, event, producer_id=PID + 1).refusal is TxnRefusal.MAPPING
        for epoch in (4, 6, NO_EPOCH):
            refusal = ask(row, event, epoch=epoch).refusal
            assert refusal is (TxnRefusal.MAPPING if dead else TxnRefusal.FENCED)
    for event in (TxnEvent.TIMEOUT, TxnEvent.EXPIRE):
        if state is not TxnState.DEAD:
            assert ask(row, event, epoch=4).action is Action.NOTHING
            assert ask(row, event, producer_id=PID + 1).action is Action.NOTHING


def test_empty_txn_id_is_refused_in_every_state() -> None:
    for row in (None, *map(txn_in, TxnState)):
        for event in TxnEvent:
            assert ask(row, event, txn_id="").refusal is TxnRefusal.ID_EMPTY
    assert ask(None, TxnEvent.INIT, txn_id="t").action is Action.ALLOCATE


def test_init_with_an_identity_follows_kip_360() -> None:
    row = txn_in(TxnState.COMPLETE_COMMIT, previous_producer_id=PID, previous_epoch=4)
    bump = init_as(row, PID, 5)
    assert (bump.action, bump.epoch, bump.previous_producer_id, bump.previous_epoch) == (Action.BUMP, 6, PID, 5)
    again = init_as(row, PID, 4)
    assert (again.action, again.refusal, again.producer_id, again.epoch) == (Action.REPEAT, None, PID, 5)
    for producer_id, epoch in ((PID, 3), (PID, 6), (PID + 1, 5), (PID - 1, 4), (PID, NO_EPOCH)):
        assert init_as(row, producer_id, epoch).refusal is TxnRefusal.FENCED
    for forgotten in (None, txn_in(TxnState.DEAD)):
        allocate = init_as(forgotten, PID, 5)
        assert (allocate.action, allocate.producer_id, allocate.epoch) == (Action.ALLOCATE, NO_PRODUCER_ID, 0)


def test_init_by_a_newcomer_forgets_who_came_before() -> None:
    """Else the holder before it would be told the new epoch as if its own INIT were retried (P5)."""
    row = step(txn_in(TxnState.EMPTY), TxnEvent.INIT)
    assert (row.epoch, row.previous_producer_id, row.previous_epoch) == (6, NO_PRODUCER_ID, NO_EPOCH)
    assert init_as(row, PID, 5).refusal is TxnRefusal.FENCED


def test_add_of_what_is_there_repeats_and_of_more_adds() -> None:
    row = txn_in(TxnState.ONGOING)
    assert ask(row, TxnEvent.ADD, streams=[1, 2], groups=["g"]).action is Action.REPEAT
    assert ask(row, TxnEvent.ADD, streams=[1, 3], groups=[]).action is Action.ADD
    assert ask(row, TxnEvent.ADD, streams=[], groups=["h"]).action is Action.ADD
    verdict = ask(row, TxnEvent.ADD, streams=[1, 3], groups=["h", "h"])
    after = next_txn(row, verdict, txn_id="t", now_ns=9, streams=[1, 3], groups=["h", "h"])
    assert after is not None
    assert (after.streams, after.groups) == ({1: [10, 12], 2: [], 3: []}, ["g", "h"])
    assert row.streams == {1: [10, 12], 2: []}, "the old row is untouched"
    assert row.groups == ["g"]
    after.streams[1].append(0)
    assert row.streams[1] == [10, 12], "and shares no list"


def test_write_and_offsets_need_their_stream_and_group_in_the_txn() -> None:
    row = txn_in(TxnState.ONGOING)
    assert ask(row, TxnEvent.WRITE, streams=[2]).action is Action.WRITE
    assert ask(row, TxnEvent.WRITE, streams=[3]).refusal is TxnRefusal.NOT_IN_TXN
    assert ask(row, TxnEvent.OFFSETS, groups=["h"]).refusal is TxnRefusal.NOT_IN_TXN
    verdict = ask(row, TxnEvent.OFFSETS, groups=["g"])
    after = next_txn(row, verdict, txn_id="t", now_ns=9, pending=[("g", 4, 17, "m")])
    assert after is not None
    assert (after.pending, after.started_ns, after.updated_ns) == ([("g", 4, 17, "m")], 0, 9)
    assert row.pending == [], "the old row is untouched"


def test_new_txn_id_starts_empty_and_its_txn_starts_with_the_first_add() -> None:
    row = next_txn(None, ask(None, TxnEvent.INIT), txn_id="t", now_ns=3, fresh_producer_id=PID)
    assert row == Txn("t", PID, 0, NO_PRODUCER_ID, NO_EPOCH, 60_000, TxnState.EMPTY, 3, 3)
    opened = next_txn(row, ask(row, TxnEvent.ADD), txn_id="t", now_ns=8, streams=[4], groups=["g"])
    assert opened == msgspec.structs.replace(
        row, state=TxnState.ONGOING, started_ns=8, updated_ns=8, streams={4: []}, groups=["g"]
    )


# --- timeouts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "clamped", "kafka"),
    [
        (None, 60_000, 60_000),
        (0, 60_000, None),
        (-1, 1_000, None),
        (1, 1_000, 1),
        (1_000, 1_000, 1_000),
        (900_000, 900_000, 900_000),
        (900_001, 900_000, None),
    ],
)
def test_timeout_is_clamped_or_refused_as_kafka_does(asked: int | None, clamped: int, kafka: int | None) -> None:
    assert timeout_of(asked, reject=False) == clamped
    assert timeout_of(asked, reject=True) == kafka
    for row in (None, txn_in(TxnState.EMPTY)):
        assert ask(row, TxnEvent.INIT, timeout_ms=asked).timeout_ms == clamped
        verdict = ask(row, TxnEvent.INIT, timeout_ms=asked, reject_timeout=True)
        assert verdict.refusal is (TxnRefusal.TIMEOUT_OUT_OF_RANGE if kafka is None else None)


def test_timers_do_nothing_before_their_time() -> None:
    open_row = txn_in(TxnState.ONGOING, started_ns=100)
    due_ns = 100 + 60_000 * NS_PER_MS
    assert not is_timed_out(open_row, due_ns - 1)
    assert ask(open_row, TxnEvent.TIMEOUT, due_ns - 1).action is Action.NOTHING
    assert ask(open_row, TxnEvent.TIMEOUT, due_ns).action is Action.TIME_OUT
    assert not is_expired(open_row, 100 * EXPIRY_NS)
    idle = txn_in(TxnState.COMPLETE_COMMIT, updated_ns=100)
    assert not is_expired(idle, 99 + EXPIRY_NS)
    assert ask(idle, TxnEvent.EXPIRE, 99 + EXPIRY_NS).action is Action.NOTHING
    assert ask(idle, TxnEvent.EXPIRE, 100 + EXPIRY_NS).action is Action.FORGET
    assert not is_timed_out(idle, 100 * EXPIRY_NS)


@pytest.mark.parametrize("state", TxnState)
@pytest.mark.parametrize("fence", [True, False])
def test_every_state_ends_by_timers_alone(state: TxnState, fence: bool) -> None:
    """P7: nothing stays stuck, whatever was stored."""
    row: Txn | None = txn_in(state)
    for event in (TxnEvent.TIMEOUT, TxnEvent.EXPIRE):
        verdict = ask(row, event, EXPIRY_NS * 2, fence_on_timeout=fence)
        row = next_txn(row, verdict, txn_id="t", now_ns=0)
    assert row is None


def test_timeout_without_a_fence_keeps_the_client_out_until_it_knows() -> None:
    """`fence_on_timeout = false`: the epoch stays, but a client that still believes in its txn gets no half of it."""
    row = step(txn_in(TxnState.ONGOING), TxnEvent.TIMEOUT, EXPIRY_NS, fence_on_timeout=False)
    assert (row.state, row.epoch, row.abort_unseen) == (TxnState.COMPLETE_ABORT, 5, True)
    assert row.timeout_ms == step(txn_in(TxnState.ONGOING), TxnEvent.TIMEOUT, EXPIRY_NS).timeout_ms == 60_000
    assert ask(row, TxnEvent.WRITE, streams=[1]).refusal is TxnRefusal.NOT_IN_TXN
    assert ask(row, TxnEvent.OFFSETS, groups=["g"]).refusal is TxnRefusal.NOT_IN_TXN
    assert ask(row, TxnEvent.ADD, streams=[9], groups=[]).refusal is TxnRefusal.INVALID_STATE
    assert ask(row, TxnEvent.COMMIT).refusal is TxnRefusal.INVALID_STATE
    seen = step(row, TxnEvent.ABORT)
    assert not seen.abort_unseen
    assert ask(seen, TxnEvent.ABORT).action is Action.REPEAT
    assert ask(seen, TxnEvent.ADD).action is Action.START
    assert not step(row, TxnEvent.INIT).abort_unseen
    assert set(ABORT_UNSEEN_TABLE) == {TxnEvent.ADD, TxnEvent.ABORT}


# --- epochs run out -------------------------------------------------------------------------------------------------


def test_epochs_from_32764_rotate_to_a_fresh_producer_id_after_the_last_one() -> None:
    """KAFKA-18660, 19367: no client is ever given 32767, and no pair is given twice."""
    row = txn_in(TxnState.EMPTY, epoch=32764)
    held = []
    for number in range(4):
        row = step(row, TxnEvent.INIT, fresh=PID + 1 + number)
        held.append((row.producer_id, row.epoch))
    assert held == [(PID, 32765), (PID, 32766), (PID + 3, 0), (PID + 3, 1)]


def test_rotation_by_the_holder_itself_is_repeated_for_its_retry() -> None:
    row = txn_in(TxnState.EMPTY, epoch=EPOCH_LAST)
    verdict = init_as(row, PID, EPOCH_LAST)
    assert (verdict.action, verdict.producer_id, verdict.epoch) == (Action.BUMP, NO_PRODUCER_ID, 0)
    after = next_txn(row, verdict, txn_id="t", now_ns=0, fresh_producer_id=PID + 9)
    again = init_as(after, PID, EPOCH_LAST)
    assert (again.action, again.producer_id, again.epoch) == (Action.REPEAT, PID + 9, 0)
    assert ask(after, TxnEvent.ADD, producer_id=PID, epoch=EPOCH_LAST).refusal is TxnRefusal.MAPPING


@pytest.mark.parametrize("event", [TxnEvent.TIMEOUT, TxnEvent.INIT])
def test_open_txn_at_the_last_epoch_is_fenced_and_then_rotated(event: TxnEvent) -> None:
    """KAFKA-20090: an open txn at 32766 must not get stuck Ongoing."""
    row = step(txn_in(TxnState.ONGOING, epoch=EPOCH_LAST), event, EXPIRY_NS)
    assert (row.state, row.producer_id, row.epoch) == (TxnState.COMPLETE_ABORT, PID, 32767)
    assert init_as(row, PID, EPOCH_LAST).refusal is TxnRefusal.FENCED
    fresh = step(row, TxnEvent.INIT)
    assert (fresh.producer_id, fresh.epoch, fresh.state) == (PID + 1, 0, TxnState.EMPTY)


def test_holder_that_aborted_its_own_txn_at_the_last_epoch_is_never_handed_the_fence_epoch() -> None:
    row = txn_in(TxnState.ONGOING, epoch=EPOCH_LAST)
    fenced = next_txn(row, init_as(row, PID, EPOCH_LAST), txn_id="t", now_ns=0)
    assert fenced is not None
    assert (fenced.epoch, fenced.previous_epoch) == (32767, EPOCH_LAST)
    for _ in range(2):  # the second time round is a retry
        verdict = init_as(fenced, PID, EPOCH_LAST)
        assert (verdict.refusal, verdict.epoch) == (None, 0)
        fenced = next_txn(fenced, verdict, txn_id="t", now_ns=0, fresh_producer_id=PID + 1)
        assert fenced is not None
        assert (fenced.producer_id, fenced.state) == (PID + 1, TxnState.EMPTY)


# --- stories of Kafka's own past faults ------------------------------------------------------------------------------


def test_kafka_6119_zombie_cannot_go_on_with_a_timed_out_txn() -> None:
    row = step(txn_in(TxnState.ONGOING), TxnEvent.TIMEOUT, EXPIRY_NS)
    for event in (TxnEvent.ADD, TxnEvent.WRITE, TxnEvent.OFFSETS, TxnEvent.COMMIT, TxnEvent.ABORT):
        assert ask(row, event, epoch=5).refusal is TxnRefusal.FENCED
    assert init_as(row, PID, 5).refusal is TxnRefusal.FENCED


def test_kafka_20785_commit_racing_a_timeout_is_fenced_and_not_an_invalid_state() -> None:
    row = step(txn_in(TxnState.ONGOING), TxnEvent.TIMEOUT, EXPIRY_NS)
    assert ask(row, TxnEvent.COMMIT).refusal is TxnRefusal.INVALID_STATE, "what the state alone would say"
    assert ask(row, TxnEvent.COMMIT, epoch=5).refusal is TxnRefusal.FENCED


def test_kafka_12671_late_write_after_the_end_opens_nothing() -> None:
    for end in (TxnEvent.COMMIT, TxnEvent.ABORT):
        row = step(txn_in(TxnState.ONGOING), end)
        assert row.streams == {}
        assert ask(row, TxnEvent.WRITE, streams=[1]).refusal is TxnRefusal.NOT_IN_TXN


def test_kafka_17507_offsets_and_markers_end_in_one_verdict() -> None:
    """There is no state in which markers are written and pending cursors are not."""
    row = txn_in(TxnState.ONGOING, pending=[("g", 1, 2, "")])
    after = step(row, TxnEvent.COMMIT)
    assert (after.state, after.pending, after.groups, after.streams) == (TxnState.COMPLETE_COMMIT, [], [], {})


def test_kafka_19999_row_found_in_prepare_finishes_as_decided() -> None:
    assert step(txn_in(TxnState.PREPARE_COMMIT), TxnEvent.TIMEOUT).state is TxnState.COMPLETE_COMMIT
    assert step(txn_in(TxnState.PREPARE_ABORT), TxnEvent.TIMEOUT).state is TxnState.COMPLETE_ABORT


def test_kafka_7519_a_refusal_leaves_no_pending_transition_behind() -> None:
    """A verdict that is thrown away, as after a failed append, changes no later one."""
    row = txn_in(TxnState.ONGOING)
    lost = ask(row, TxnEvent.COMMIT)
    assert ask(row, TxnEvent.COMMIT) == lost
    assert ask(row, TxnEvent.ABORT).action is Action.END_ABORT


def test_delayed_init_of_the_holder_does_not_abort_the_txn_it_opened_since() -> None:
    row = txn_in(TxnState.EMPTY)
    moved = next_txn(row, init_as(row, PID, 5), txn_id="t", now_ns=0)
    opened = step(moved, TxnEvent.ADD)
    late = init_as(opened, PID, 5)
    assert (late.action, late.epoch) == (Action.REPEAT, 6)


# --- random walks ---------------------------------------------------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(TxnEvent), st.integers(0, 3), st.booleans(), st.integers(0, 3)), min_size=1, max_size=40
)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.sampled_from([0, 5, 32764]))
def test_random_walk_keeps_the_invariants(steps: list[tuple[TxnEvent, int, bool, int]], start_epoch: int) -> None:
    """Four clients share one txn id, each acting under whatever identity it was last given."""
    row: Txn | None = txn_in(TxnState.EMPTY, epoch=start_epoch) if start_epoch else None
    fresh = PID
    now_ns = tail = 0
    holds: dict[int, tuple[int, int]] = {}  # client -> identity it was given
    given_to: dict[tuple[int, int], int] = {}
    epochs: dict[int, int] = {}  # producer id -> highest epoch seen
    for event, client, flag, wait in steps:
        now_ns += (0, NS_PER_MS, 61_000 * NS_PER_MS, EXPIRY_NS)[wait]
        identity = holds.get(client, (NO_PRODUCER_ID, NO_EPOCH))
        timer = event in (TxnEvent.TIMEOUT, TxnEvent.EXPIRE)
        if timer and row is not None:
            identity = (row.producer_id, row.epoch)
        elif event is TxnEvent.INIT and flag:
            identity = (NO_PRODUCER_ID, NO_EPOCH)
        streams, groups = [client], ["g"]
        verdict = judge(
            row, event, producer_id=identity[0], epoch=identity[1], now_ns=now_ns, streams=streams, groups=groups,
            fence_on_timeout=flag,
        )  # fmt: skip
        current = None if row is None else (row.producer_id, row.epoch)
        if verdict.action not in (Action.REFUSE, Action.NOTHING) and event is not TxnEvent.INIT:
            assert identity == current, "only the current identity changes anything (P5)"
        fresh += 1
        pending = [("g", 1, now_ns, "")] if event is TxnEvent.OFFSETS else []
        row = next_txn(
            row, verdict, txn_id="t", now_ns=now_ns, fresh_producer_id=fresh, streams=streams, groups=groups,
            pending=pending,
        )  # fmt: skip
        if row is None:
            continue
        if verdict.action is Action.WRITE:
            tail += 1 + wait
            row.streams[client] = merge_range(row.streams[client], tail - 1, tail)
        assert row.epoch >= epochs.get(row.producer_id, 0), "the epoch of a producer id never falls"
        epochs[row.producer_id] = row.epoch
        if event is TxnEvent.INIT and verdict.refusal is None:
            given = (row.producer_id, row.epoch)
            assert given[1] <= EPOCH_LAST
            assert given_to.setdefault(given, client) == client, "one pair, one client"
            holds[client] = given
        if row.state is not TxnState.ONGOING:
            assert not row.streams
            assert not row.groups
            assert not row.pending
        assert row.state not in (TxnState.PREPARE_COMMIT, TxnState.PREPARE_ABORT, TxnState.DEAD), "never stored"
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=Txn) == row


# --- helpers ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=20))
def test_merged_ranges_hold_exactly_the_offsets_and_never_touch(gaps: list[tuple[int, int]]) -> None:
    ranges: list[int] = []
    offsets: set[int] = set()
    tail = 0
    for gap, count in gaps:
        first = tail + gap
        tail = first + count
        offsets |= set(range(first, tail))
        assert merge_range(ranges, first, tail) is ranges
    pairs = list(zip(ranges[::2], ranges[1::2], strict=True))
    assert {offset for first, next_ in pairs for offset in range(first, next_)} == offsets
    assert ranges == sorted(set(ranges)), "disjoint, sorted, and no two ranges meet"
