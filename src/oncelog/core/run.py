"""A run: appends of one record each, to one stream, that came together and are written as one batch.

Each stands or falls alone and means what it would mean alone, one after the other in their order; they only share an
entry, which costs less than one each. A run takes what is plain: new records of known producers or with new message
ids, for an open stream. Whatever else there is to say about an append ends the run before it, and that append is
decided alone (`append.decide_append`), so no rule stands here that does not stand there: this only asks whether a case
is the plain one. A test compares every run with the same commands decided one by one, and every run of one with
`decide_single`, the short way to the same.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from oncelog import limits
from oncelog.core import batch as codec
from oncelog.core.append import id_refused
from oncelog.core.command import AppendValue
from oncelog.core.content_type import ANY, is_same_type
from oncelog.core.entry import MANY_CLAIMS, PACKED_ID, Appended
from oncelog.core.fact_columns import holds_facts
from oncelog.core.flat import ProducerClaim, Stream
from oncelog.core.memory import surely_living
from oncelog.core.message_id import id_hashes
from oncelog.core.names import known_claim_refused
from oncelog.core.outcome import Confirmed
from oncelog.core.producer import is_next, judge
from oncelog.core.state import State
from oncelog.core.verdict import Accept

Claims = list[tuple[int, int, ProducerClaim]]
"""As in `Appended.claims`: each of another producer."""

_VALUE_BYTES_MAX: Final = limits.RUN_VALUE_BYTES_MAX
_BYTES_MAX: Final = limits.RUN_BYTES_MAX
_CLAIMS_BYTES_MAX: Final = limits.RUN_CLAIMS_BYTES_MAX

_CLAIM_BYTES: Final = 96
"""What a claim takes in an entry beside its texts: numbers of up to nine bytes, a digest, heads."""

assert _CLAIM_BYTES > 5 * 9 + limits.CLAIM_DIGEST_BYTES_MAX + 3 * 3 + 3


def open_stream(state: State, command: AppendValue) -> Stream | None:
    """The stream of a run that begins with this command; None if there cannot be one, or its rows are not loaded."""
    topic = state.topics.get(command.topic)
    if topic is None or not 0 <= command.partition < len(topic.stream_ids):
        return None
    stream = state.streams.get(topic.stream_ids[command.partition])
    if stream is None or stream.closed or stream.open_txns or holds_facts(stream) or stream.config.record_bytes_max:
        return None
    return stream


def shares_ids(state: State, commands: Iterable[AppendValue]) -> bool:
    """Whether an id may mean the same in two of the streams of these commands: which of two came first then counts."""
    for command in commands:
        topic = state.topics.get(command.topic)
        if topic is None or topic.config.id_zone:
            return True  # not loaded: it may be
    return False


def hashes_of(stream: Stream, commands: Sequence[AppendValue]) -> list[bytes]:
    """The hash of every command's message id, empty for those without; none at all if nobody has one. What the index
    knows of them must be loaded before `decide_run`."""
    message_ids = [command.message_id for command in commands]
    return id_hashes(stream, message_ids) if any(message_ids) else []


def decide_run(
    state: State, stream: Stream, commands: Sequence[AppendValue], hashes: list[bytes], now_ns: int
) -> tuple[Appended | None, list[Confirmed]]:
    """One entry for as many of the commands as are plain, from the first on, and their answers. None and no answer if
    the first one is not. All are for `stream`; changes nothing."""
    if now_ns < state.time_ns:
        now_ns = state.time_ns
    stream_id, offset, holds = stream.stream_id, stream.tail, stream.config.content_type
    values: list[bytes] = []
    answers: list[Confirmed] = []
    claims: Claims = []
    names: set[str] = set()
    ids: dict[bytes, bytes] = {}
    fits = "" if holds == ANY else holds  # the type that was last found to belong into the stream
    bytes_ = claims_bytes = 0
    for command in commands:
        value = command.value
        bytes_ += len(value)
        if len(value) > _VALUE_BYTES_MAX or bytes_ > _BYTES_MAX or type(value) is not bytes:
            break
        content_type = command.content_type
        if content_type != fits:
            if not content_type or not is_same_type(content_type, holds):
                break
            fits = content_type
        number = len(values)
        if command.message_id:
            hash_ = hashes[number]
            if hash_ in ids or state.find_id(hash_) is not None:
                break
            if id_refused(command.message_id, command.digest) is not None:
                break
            ids[hash_] = PACKED_ID.pack(hash_, command.digest, number, 1)
        epoch = sequence = -1
        claim = command.claim
        if claim is not None:
            claims_bytes += _CLAIM_BYTES + 4 * (len(claim.name) + len(claim.session))
            epoch = _plain_epoch(state, stream, claim)
            if epoch >= 0:
                names.add(claim.name)  # a second claim of one producer adds none
            if epoch < 0 or len(names) == len(claims) or claims_bytes > _CLAIMS_BYTES_MAX:
                if command.message_id:
                    del ids[hash_]
                break
            sequence = claim.last
            claims.append((number, epoch, claim))
        values.append(value)
        answers.append(Confirmed(stream_id, offset, offset + 1, now_ns, False, False, epoch, sequence))
        offset += 1
    if not values:
        return None, answers
    return _entry(stream, values, claims, ids, now_ns), answers


def decide_single(state: State, command: AppendValue, now_ns: int) -> tuple[Appended, Confirmed] | None:
    """A run of one, without a message id: as `decide_run`, with less ado. None if it is not plain."""
    stream = open_stream(state, command)
    value = command.value
    if stream is None or command.message_id or len(value) > _VALUE_BYTES_MAX or type(value) is not bytes:
        return None
    content_type, holds = command.content_type, stream.config.content_type
    if content_type != ("" if holds == ANY else holds) and (not content_type or not is_same_type(content_type, holds)):
        return None
    if now_ns < state.time_ns:
        now_ns = state.time_ns
    stream_id, first = stream.stream_id, stream.tail
    entry = Appended(stream_id, first, 1, codec.encode_one(value, now_ns // 1_000_000), now_ns)
    claim = command.claim
    if claim is None:
        return entry, Confirmed(stream_id, first, first + 1, now_ns, False, False, -1, -1)
    epoch = _plain_epoch(state, stream, claim)
    if epoch < 0:
        return None
    entry.epoch, entry.claim = epoch, claim
    return entry, Confirmed(stream_id, first, first + 1, now_ns, False, False, epoch, claim.last)


def _plain_epoch(state: State, stream: Stream, claim: ProducerClaim) -> int:
    """The epoch that the claim is accepted under, as the next of a producer that is loaded and surely not forgotten;
    -1 if it is anything else."""
    producer = state.producers.get((stream.stream_id, claim.name))
    if producer is None or not surely_living(stream, producer):
        return -1
    if is_next(producer, claim):
        return producer.epoch
    if known_claim_refused(claim) is not None:
        return -1
    verdict = judge(producer, claim)
    return verdict.epoch if type(verdict) is Accept and not verdict.new_epoch else -1


def _entry(
    stream: Stream,
    values: list[bytes],
    claims: Claims,
    ids: dict[bytes, bytes],
    now_ns: int,
) -> Appended:
    count = len(values)
    time_ms = now_ns // 1_000_000
    batch = codec.encode_one(values[0], time_ms) if count == 1 else codec.encode_values(values, time_ms)
    entry = Appended(stream.stream_id, stream.tail, count, batch, now_ns)
    if ids:
        entry.ids = b"".join(ids.values())
    if claims:
        if count == 1:
            _, entry.epoch, entry.claim = claims[0]
        else:
            entry.flags = MANY_CLAIMS
            entry.claims = tuple(claims)
    return entry
