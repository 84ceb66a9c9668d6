"""Txns: which call is legal in which state, who is fenced, and what the row becomes.

Owns `TABLE`, total over (state, event), after Kafka's coordinator. `judge` compares identity
first (P5) and then reads the table; it changes nothing. `next_txn` builds the row that a verdict leads to, as a new
object: the entry carries that row whole.

Ending is one entry: markers, cursors and state together. So Prepare* is never stored; the table lists it because the
wire has names for it, and because a row that somehow held it would still have to get out.

Invariants: the epoch of a producer id never falls; (producer id, epoch) is never given to a second client; only an
Ongoing txn has streams, groups or pending cursors; every stored state is left by TIMEOUT or EXPIRE (P7).
"""

from collections.abc import Collection
from enum import IntEnum
from typing import Final

import msgspec

from oncelog.limits import (
    KAFKA_EPOCH_MAX,
    TXN_CHECK_INTERVAL_MS,
    TXN_ID_EXPIRY_MS,
    TXN_TIMEOUT_MS_DEFAULT,
    TXN_TIMEOUT_MS_MAX,
    TXN_TIMEOUT_MS_MIN,
)

NS_PER_MS: Final = 1_000_000

NO_PRODUCER_ID: Final = -1
"""As an argument of INIT: the client names none. In a verdict: take a fresh one, which is never given out again."""

NO_EPOCH: Final = -1


class TxnState(IntEnum):
    """Kafka's states, with Kafka's numbers."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6


class TxnEvent(IntEnum):
    """What can happen to a txn id. TIMEOUT and EXPIRE come from timers."""

    INIT = 0
    ADD = 1  # streams or groups
    WRITE = 2  # a batch to a stream of the txn
    OFFSETS = 3  # pending cursors of a group of the txn
    COMMIT = 4
    ABORT = 5
    TIMEOUT = 6
    EXPIRE = 7
    KILL = 8  # an administrator's abort, which names the holder that it saw


class TxnRefusal(IntEnum):
    """Why a call is refused. Faces map these; Kafka's number is beside each."""

    ID_EMPTY = 0  # 42
    INVALID_STATE = 1  # 48
    MAPPING = 2  # 49: no such txn id, or another producer id holds it
    TIMEOUT_OUT_OF_RANGE = 3  # 50
    CONCURRENT = 4  # 51: retriable
    FENCED = 5  # 90, or 47 in old versions and on the data path
    NOT_IN_TXN = 6  # 120, or 48 in old versions
    COORDINATOR_FENCED = 7  # 52: a marker of a coordinator that was replaced


class Action(IntEnum):
    """What a verdict tells the caller to do."""

    REFUSE = 0  # nothing, but the answer is a refusal
    NOTHING = 1  # nothing, and nobody waits for an answer
    REPEAT = 2  # nothing: it was done before, the answer is the same success
    ALLOCATE = 3  # a new txn id: fresh producer id, epoch 0
    BUMP = 4  # next epoch, or a fresh producer id when epochs are used up
    BUMP_AND_ABORT = 5  # fence the holder, abort its open txn, answer CONCURRENT
    START = 6  # open a txn with these streams and groups
    ADD = 7
    WRITE = 8
    OFFSETS = 9
    END_COMMIT = 10
    END_ABORT = 11
    TIME_OUT = 12  # abort the open txn, and fence its holder unless told otherwise
    SEE_ABORT = 13  # the client has learned of the unfenced timeout; it may start again
    FORGET = 14  # remove the row
    REFUSE_INVALID_STATE = 15
    REFUSE_MAPPING = 16
    REFUSE_CONCURRENT = 17
    REFUSE_NOT_IN_TXN = 18


class TxnTimeouts(msgspec.Struct, frozen=True, gc=False):
    """How long txns may take, and what becomes of one that took too long: seed 002's `TransactionTimeoutConfig`."""

    check_interval_ms: int = TXN_CHECK_INTERVAL_MS
    """How often the timer looks for txns that have timed out."""
    write_abort_markers: bool = True
    """Without them the records of a timed-out txn become holes all the same, and readers go on."""
    fence_on_timeout: bool = True
    """Without it the client keeps its epoch, and its late writes to the ended txn are refused."""
    min_timeout_ms: int = TXN_TIMEOUT_MS_MIN
    max_timeout_ms: int = TXN_TIMEOUT_MS_MAX


class Txn(msgspec.Struct, gc=False, array_like=True):
    """One txn id: the row."""

    txn_id: str
    producer_id: int
    epoch: int
    previous_producer_id: int
    previous_epoch: int
    """Who became the current holder by its own INIT: its retry is answered with the current pair (KIP-360). Both -1
    when the epoch went to a newcomer or to nobody, so that the holder before it stays fenced."""
    timeout_ms: int
    state: TxnState
    started_ns: int
    updated_ns: int
    streams: dict[int, list[int]] = {}
    """Stream id -> flat half-open ranges (first, next, ...) written so far, contiguous ones merged; empty means added
    and not written yet."""
    groups: list[str] = []
    pending: list[tuple[str, int, int, str]] = []
    """Cursor moves that come true on commit: (cursor name, stream id, offset, metadata)."""
    abort_unseen: bool = False
    """Timed out without a fence, and the client does not know. It must not be let into a new txn before it does, or
    it would commit the second half of what it believes to be one txn (P4)."""
    patience_ms: int = TXN_TIMEOUT_MS_MAX
    """How long the streams of the open txn let it hold back what is behind it. Not part of `timeout_ms`, which is the
    client's and counts for its later txns on other streams too."""

    @property
    def due_ns(self) -> int:
        """When it times out, if it is open."""
        return self.started_ns + min(self.timeout_ms, self.patience_ms) * NS_PER_MS


DEFAULT_TIMEOUTS: Final = TxnTimeouts()


class TxnVerdict(msgspec.Struct, gc=False):
    """What to do, what to answer (None: success), and the numbers that the row has afterwards."""

    action: Action
    refusal: TxnRefusal | None
    state: TxnState | None
    producer_id: int = NO_PRODUCER_ID
    """NO_PRODUCER_ID with ALLOCATE or BUMP: take a fresh one; the epoch is then 0."""
    epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    previous_epoch: int = NO_EPOCH
    timeout_ms: int = 0


_S, _E, _A = TxnState, TxnEvent, Action

TABLE: Final[dict[tuple[TxnState | None, TxnEvent], Action]] = {
    (None, _E.INIT): _A.ALLOCATE,
    (None, _E.ADD): _A.REFUSE_MAPPING,
    (None, _E.WRITE): _A.REFUSE_MAPPING,
    (None, _E.OFFSETS): _A.REFUSE_MAPPING,
    (None, _E.COMMIT): _A.REFUSE_MAPPING,
    (None, _E.ABORT): _A.REFUSE_MAPPING,
    (None, _E.TIMEOUT): _A.NOTHING,
    (None, _E.EXPIRE): _A.NOTHING,
    (None, _E.KILL): _A.NOTHING,
    (_S.EMPTY, _E.INIT): _A.BUMP,
    (_S.EMPTY, _E.ADD): _A.START,
    (_S.EMPTY, _E.WRITE): _A.REFUSE_NOT_IN_TXN,
    (_S.EMPTY, _E.OFFSETS): _A.REFUSE_NOT_IN_TXN,
    (_S.EMPTY, _E.COMMIT): _A.REFUSE_INVALID_STATE,
    (_S.EMPTY, _E.ABORT): _A.REFUSE_INVALID_STATE,
    (_S.EMPTY, _E.TIMEOUT): _A.NOTHING,
    (_S.EMPTY, _E.EXPIRE): _A.FORGET,
    (_S.EMPTY, _E.KILL): _A.NOTHING,
    (_S.ONGOING, _E.INIT): _A.BUMP_AND_ABORT,
    (_S.ONGOING, _E.ADD): _A.ADD,
    (_S.ONGOING, _E.WRITE): _A.WRITE,
    (_S.ONGOING, _E.OFFSETS): _A.OFFSETS,
    (_S.ONGOING, _E.COMMIT): _A.END_COMMIT,
    (_S.ONGOING, _E.ABORT): _A.END_ABORT,
    (_S.ONGOING, _E.TIMEOUT): _A.TIME_OUT,
    (_S.ONGOING, _E.EXPIRE): _A.NOTHING,
    (_S.ONGOING, _E.KILL): _A.TIME_OUT,
    # Never stored. Once decided, an end must finish the way it was decided: no timer turns a commit into an abort.
    (_S.PREPARE_COMMIT, _E.INIT): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_COMMIT, _E.ADD): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_COMMIT, _E.WRITE): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_COMMIT, _E.OFFSETS): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_COMMIT, _E.COMMIT): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_COMMIT, _E.ABORT): _A.REFUSE_INVALID_STATE,
    (_S.PREPARE_COMMIT, _E.TIMEOUT): _A.END_COMMIT,
    (_S.PREPARE_COMMIT, _E.EXPIRE): _A.NOTHING,
    (_S.PREPARE_COMMIT, _E.KILL): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_ABORT, _E.INIT): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_ABORT, _E.ADD): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_ABORT, _E.WRITE): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_ABORT, _E.OFFSETS): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_ABORT, _E.COMMIT): _A.REFUSE_INVALID_STATE,
    (_S.PREPARE_ABORT, _E.ABORT): _A.REFUSE_CONCURRENT,
    (_S.PREPARE_ABORT, _E.TIMEOUT): _A.END_ABORT,
    (_S.PREPARE_ABORT, _E.EXPIRE): _A.NOTHING,
    (_S.PREPARE_ABORT, _E.KILL): _A.REFUSE_CONCURRENT,
    # Complete* is kept so that a retried end succeeds. A late write of the ended txn is refused: were it let in, it
    # would open a txn that nobody ends, and the stream's stable offset would be stuck (KAFKA-12671).
    (_S.COMPLETE_COMMIT, _E.INIT): _A.BUMP,
    (_S.COMPLETE_COMMIT, _E.ADD): _A.START,
    (_S.COMPLETE_COMMIT, _E.WRITE): _A.REFUSE_NOT_IN_TXN,
    (_S.COMPLETE_COMMIT, _E.OFFSETS): _A.REFUSE_NOT_IN_TXN,
    (_S.COMPLETE_COMMIT, _E.COMMIT): _A.REPEAT,
    (_S.COMPLETE_COMMIT, _E.ABORT): _A.REFUSE_INVALID_STATE,
    (_S.COMPLETE_COMMIT, _E.TIMEOUT): _A.NOTHING,
    (_S.COMPLETE_COMMIT, _E.EXPIRE): _A.FORGET,
    (_S.COMPLETE_COMMIT, _E.KILL): _A.NOTHING,
    (_S.COMPLETE_ABORT, _E.INIT): _A.BUMP,
    (_S.COMPLETE_ABORT, _E.ADD): _A.START,
    (_S.COMPLETE_ABORT, _E.WRITE): _A.REFUSE_NOT_IN_TXN,
    (_S.COMPLETE_ABORT, _E.OFFSETS): _A.REFUSE_NOT_IN_TXN,
    (_S.COMPLETE_ABORT, _E.COMMIT): _A.REFUSE_INVALID_STATE,
    (_S.COMPLETE_ABORT, _E.ABORT): _A.REPEAT,
    (_S.COMPLETE_ABORT, _E.TIMEOUT): _A.NOTHING,
    (_S.COMPLETE_ABORT, _E.EXPIRE): _A.FORGET,
    (_S.COMPLETE_ABORT, _E.KILL): _A.NOTHING,
    (_S.DEAD, _E.INIT): _A.ALLOCATE,
    (_S.DEAD, _E.ADD): _A.REFUSE_MAPPING,
    (_S.DEAD, _E.WRITE): _A.REFUSE_MAPPING,
    (_S.DEAD, _E.OFFSETS): _A.REFUSE_MAPPING,
    (_S.DEAD, _E.COMMIT): _A.REFUSE_MAPPING,
    (_S.DEAD, _E.ABORT): _A.REFUSE_MAPPING,
    (_S.DEAD, _E.TIMEOUT): _A.NOTHING,
    (_S.DEAD, _E.EXPIRE): _A.FORGET,
    (_S.DEAD, _E.KILL): _A.NOTHING,
}
"""The rule, for a caller whose identity has been checked."""

ABORT_UNSEEN_TABLE: Final[dict[TxnEvent, Action]] = {
    _E.ADD: _A.REFUSE_INVALID_STATE,
    _E.ABORT: _A.SEE_ABORT,
}
"""What differs from COMPLETE_ABORT while `Txn.abort_unseen` holds. A commit is refused by TABLE already."""

_STATE_AFTER: Final[dict[Action, TxnState]] = {
    _A.ALLOCATE: _S.EMPTY,
    _A.BUMP: _S.EMPTY,
    _A.BUMP_AND_ABORT: _S.COMPLETE_ABORT,
    _A.START: _S.ONGOING,
    _A.ADD: _S.ONGOING,
    _A.WRITE: _S.ONGOING,
    _A.OFFSETS: _S.ONGOING,
    _A.END_COMMIT: _S.COMPLETE_COMMIT,
    _A.END_ABORT: _S.COMPLETE_ABORT,
    _A.TIME_OUT: _S.COMPLETE_ABORT,
    _A.SEE_ABORT: _S.COMPLETE_ABORT,
    _A.FORGET: _S.DEAD,
}
"""Actions that are not here leave the state as it is."""

_REFUSAL_OF: Final[dict[Action, TxnRefusal]] = {
    _A.REFUSE_INVALID_STATE: TxnRefusal.INVALID_STATE,
    _A.REFUSE_MAPPING: TxnRefusal.MAPPING,
    _A.REFUSE_CONCURRENT: TxnRefusal.CONCURRENT,
    _A.REFUSE_NOT_IN_TXN: TxnRefusal.NOT_IN_TXN,
}


# CPython 3.11 takes 0.1 µs to fetch an enum member from its class; what every call passes is fetched once.
_INIT, _TIMEOUT, _EXPIRE, _KILL = _E.INIT, _E.TIMEOUT, _E.EXPIRE, _E.KILL
_DEAD = _S.DEAD
_ADD, _WRITE, _OFFSETS, _TIME_OUT = _A.ADD, _A.WRITE, _A.OFFSETS, _A.TIME_OUT


def judge(
    txn: Txn | None,
    event: TxnEvent,
    *,
    producer_id: int,
    epoch: int,
    now_ns: int,
    txn_id: str | None = None,
    timeout_ms: int | None = None,
    reject_timeout: bool = False,
    timeouts: TxnTimeouts = DEFAULT_TIMEOUTS,
    fence_on_timeout: bool = True,
    streams: Collection[int] | None = None,
    groups: Collection[str] | None = None,
) -> TxnVerdict:
    """The verdict on one event. Identity is checked before the state, so a fenced caller learns nothing else (P5).

    `txn_id` is checked if given. `timeout_ms` is what INIT asks for; see `timeout_of`. `streams` and `groups`
    are what ADD names or what WRITE and OFFSETS touch; left out, membership is not looked at. Timers pass the identity
    that they saw; if the txn has moved on meanwhile, or is not due, the verdict is NOTHING.
    """
    if txn_id == "":
        return _refuse(txn, TxnRefusal.ID_EMPTY)
    state = None if txn is None else txn.state
    if event is _INIT:
        return _judge_init(txn, state, producer_id, epoch, timeout_of(timeout_ms, timeouts, reject=reject_timeout))
    if txn is None or state is _DEAD:
        return _from_table(txn, TABLE[state, event])
    if event is _TIMEOUT or event is _EXPIRE:
        due = is_timed_out(txn, now_ns) if event is _TIMEOUT else is_expired(txn, now_ns)
        if not due or producer_id != txn.producer_id or epoch != txn.epoch:
            return _from_table(txn, Action.NOTHING)
    elif producer_id != txn.producer_id:
        return _refuse(txn, TxnRefusal.MAPPING)
    elif epoch != txn.epoch:
        return _refuse(txn, TxnRefusal.FENCED)
    action = TABLE[state, event]
    if txn.abort_unseen:
        action = ABORT_UNSEEN_TABLE.get(event, action)
    if action is _TIME_OUT and (fence_on_timeout or event is _KILL):
        return _bumped(txn, action, None, identified=False)
    if action is _ADD and streams is not None and groups is not None and _holds(txn, streams, groups):
        action = Action.REPEAT
    elif (action is _WRITE or action is _OFFSETS) and not _holds(txn, streams or (), groups or ()):
        action = Action.REFUSE_NOT_IN_TXN
    return _from_table(txn, action)


def _judge_init(
    txn: Txn | None, state: TxnState | None, producer_id: int, epoch: int, timeout_ms: int | None
) -> TxnVerdict:
    """INIT: a newcomer takes the txn id over and fences; a holder that names itself moves on to its next epoch."""
    if timeout_ms is None:
        return _refuse(txn, TxnRefusal.TIMEOUT_OUT_OF_RANGE)
    action = TABLE[state, TxnEvent.INIT]
    if txn is None or action is Action.ALLOCATE:
        # Whatever identity the client names is forgotten here, and a fresh producer id cannot meet it.
        return TxnVerdict(action, None, TxnState.EMPTY, epoch=0, timeout_ms=timeout_ms)
    identified = producer_id != NO_PRODUCER_ID
    if identified and (producer_id, epoch) != (txn.producer_id, txn.epoch):
        if (producer_id, epoch) != (txn.previous_producer_id, txn.previous_epoch):
            return _refuse(txn, TxnRefusal.FENCED)
        if txn.epoch <= KAFKA_EPOCH_MAX:
            # The retry of an INIT that succeeded. Also when a txn is open by now: a delayed frame must not abort it.
            return _from_table(txn, Action.REPEAT)
        # Its own INIT aborted a txn at the last client epoch: the pair now stored only fences and is nobody's. It
        # goes on to a fresh producer id, and stays recognisable by the pair that it knows.
        verdict = _bumped(txn, action, timeout_ms, identified=True)
        verdict.previous_producer_id, verdict.previous_epoch = producer_id, epoch
        return verdict
    if action is Action.REFUSE_CONCURRENT:
        return _from_table(txn, action)
    verdict = _bumped(txn, action, timeout_ms, identified)
    if action is Action.BUMP_AND_ABORT:
        verdict.refusal = TxnRefusal.CONCURRENT
    return verdict


def _bumped(txn: Txn, action: Action, timeout_ms: int | None, identified: bool) -> TxnVerdict:
    """The verdict with the epoch after the row's.

    A fence may use KAFKA_FENCE_EPOCH_MAX, which no client ever holds; a client at KAFKA_EPOCH_MAX moves on to a fresh
    producer id instead. Only a holder that named itself is remembered as the previous one.
    """
    verdict = TxnVerdict(action, None, _STATE_AFTER[action], txn.producer_id, txn.epoch + 1)
    if action is Action.BUMP and txn.epoch >= KAFKA_EPOCH_MAX:
        verdict.producer_id, verdict.epoch = NO_PRODUCER_ID, 0
    else:
        assert txn.epoch <= KAFKA_EPOCH_MAX, "an open txn is never held at the fence epoch"
    if identified:
        verdict.previous_producer_id, verdict.previous_epoch = txn.producer_id, txn.epoch
    verdict.timeout_ms = txn.timeout_ms if timeout_ms is None else timeout_ms
    return verdict


def _from_table(txn: Txn | None, action: Action) -> TxnVerdict:
    """The verdict of an action that keeps the identity."""
    refusal = _REFUSAL_OF.get(action)
    if refusal is not None:
        return _refuse(txn, refusal)
    if txn is None:
        return TxnVerdict(action, None, None)
    return TxnVerdict(
        action,
        None,
        _STATE_AFTER.get(action, txn.state),
        txn.producer_id,
        txn.epoch,
        txn.previous_producer_id,
        txn.previous_epoch,
        txn.timeout_ms,
    )


def _refuse(txn: Txn | None, refusal: TxnRefusal) -> TxnVerdict:
    """Nothing changes; the answer carries the row's numbers, if there is a row."""
    if txn is None:
        return TxnVerdict(Action.REFUSE, refusal, None)
    return TxnVerdict(
        Action.REFUSE,
        refusal,
        txn.state,
        txn.producer_id,
        txn.epoch,
        txn.previous_producer_id,
        txn.previous_epoch,
        txn.timeout_ms,
    )


def _holds(txn: Txn, streams: Collection[int], groups: Collection[str]) -> bool:
    """Whether the txn already names all of these."""
    return all(stream in txn.streams for stream in streams) and all(group in txn.groups for group in groups)


def next_txn(
    txn: Txn | None,
    verdict: TxnVerdict,
    *,
    txn_id: str,
    now_ns: int,
    fresh_producer_id: int = NO_PRODUCER_ID,
    streams: Collection[int] = (),
    groups: Collection[str] = (),
    pending: Collection[tuple[str, int, int, str]] = (),
) -> Txn | None:
    """The row after a verdict: a new object that shares nothing changeable with `txn`. None: there is no row.

    `fresh_producer_id` is used when the verdict asks for one. WRITE changes no more than `updated_ns` here: `apply`
    puts the range into the row by `merge_range` once the batch has its offsets.
    """
    action = verdict.action
    if action in (Action.REFUSE, Action.NOTHING, Action.REPEAT):
        return txn
    if action is Action.FORGET:
        return None
    assert verdict.state is not None
    producer_id = verdict.producer_id if verdict.producer_id != NO_PRODUCER_ID else fresh_producer_id
    assert producer_id != NO_PRODUCER_ID
    row = Txn(
        txn_id=txn_id,
        producer_id=producer_id,
        epoch=verdict.epoch,
        previous_producer_id=verdict.previous_producer_id,
        previous_epoch=verdict.previous_epoch,
        timeout_ms=verdict.timeout_ms,
        state=verdict.state,
        started_ns=now_ns if txn is None or action is Action.START else txn.started_ns,
        updated_ns=now_ns,
    )
    if row.state is TxnState.ONGOING:
        assert txn is not None
        # START finds these empty: whatever ended the txn before left no row with anything open.
        row.streams = {stream: ranges.copy() for stream, ranges in txn.streams.items()}
        row.groups = txn.groups.copy()
        row.pending = txn.pending.copy()
        for stream in streams:
            row.streams.setdefault(stream, [])
        row.groups.extend(group for group in dict.fromkeys(groups) if group not in row.groups)
        row.pending.extend(pending)
        if action is not Action.START:
            row.patience_ms = txn.patience_ms
    row.abort_unseen = txn is not None and action is Action.TIME_OUT and row.epoch == txn.epoch
    return row


def timeout_of(asked_ms: int | None, timeouts: TxnTimeouts = DEFAULT_TIMEOUTS, *, reject: bool) -> int | None:
    """The timeout to store: clamped, or as Kafka does it, None for one out of (0, max_timeout_ms]."""
    least, most = timeouts.min_timeout_ms, timeouts.max_timeout_ms
    default = min(max(TXN_TIMEOUT_MS_DEFAULT, least), most)
    if reject:
        asked_ms = default if asked_ms is None else asked_ms
        return asked_ms if 0 < asked_ms <= most else None
    return min(max(asked_ms or default, least), most)


def merge_range(ranges: list[int], first: int, next_: int) -> list[int]:
    """Add [first, next_) to the flat ranges, in place. Offsets only rise, so it goes at the end or joins the last."""
    assert first < next_
    assert not ranges or ranges[-1] <= first
    if ranges and ranges[-1] == first:
        ranges[-1] = next_
    else:
        ranges += (first, next_)
    return ranges


def is_timed_out(txn: Txn, now_ns: int) -> bool:
    """Whether an open txn has had its time. A row in Prepare* is due at once: its end is decided."""
    if txn.state is TxnState.ONGOING:
        return now_ns >= txn.due_ns
    return txn.state is TxnState.PREPARE_COMMIT or txn.state is TxnState.PREPARE_ABORT


def is_expired(txn: Txn, now_ns: int) -> bool:
    """Whether the txn id has been idle for so long that it may be forgotten. Never while a txn is open."""
    if txn.state is TxnState.DEAD:
        return True
    if txn.state in (TxnState.EMPTY, TxnState.COMPLETE_COMMIT, TxnState.COMPLETE_ABORT):
        return now_ns - txn.updated_ns >= TXN_ID_EXPIRY_MS * NS_PER_MS
    return False
