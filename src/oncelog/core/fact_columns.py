"""Fact topics: every record is a fact, whatever road it takes into a stream.

A topic with the digest `jcs` holds facts (`core.facts`). A record of it has its id and its digest from the fact itself,
not from the command that brings it, so that the same fact is one fact on every face. Here a command for such a topic
becomes one whose ids and digests are those of its facts, and which says of every other record what is wrong with it.
`needs` and `decide` ask the same, so what was found out about a command is kept with it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from oncelog.core import batch as codec
from oncelog.core import facts
from oncelog.core.command import Append
from oncelog.core.facts import CheckedFact
from oncelog.core.flat import Columns, Stream
from oncelog.core.outcome import BatchRefused, ClaimInvalid, EnvelopeInvalid, Refusal
from oncelog.core.rows import JCS
from oncelog.errors import BatchInvalid

Found = list[CheckedFact | str]
"""Of each record of a batch: its fact, or what is wrong with it."""

BATCHES_KEPT: Final = 16
"""Ready batches whose facts are kept: those of the command at hand, between `needs` and `decide`."""


def holds_facts(stream: Stream) -> bool:
    """Whether every record of the stream is a fact."""
    return stream.config.digest == JCS


def prepared(stream: Stream, command: Columns) -> Columns:
    """The command as its stream takes it: of a fact topic with the ids and digests of its facts."""
    if stream.config.digest != JCS:
        return command
    found = command.facts
    if found is None:
        found = command.facts = _checked(command)
    flaws = [_flaw(command, number, fact) for number, fact in enumerate(found)]
    is_sound = [not flaw for flaw in flaws]
    ids = [fact.message_id if sound else b"" for fact, sound in zip(found, is_sound, strict=True)]
    digests = [fact.digest if sound else b"" for fact, sound in zip(found, is_sound, strict=True)]
    return command.replaced(message_ids=ids, digests=digests, flaws=None if all(is_sound) else flaws)


def _checked(command: Columns) -> Found:
    keys, headers = command.keys, command.headers
    return [
        facts.checked(None if keys is None else keys[number], value, () if headers is None else headers[number])
        for number, value in enumerate(command.values)
    ]


def _flaw(command: Columns, number: int, fact: CheckedFact | str) -> str:
    if isinstance(fact, str):
        return fact
    ids = command.message_ids
    if not ids or not any(ids):
        return ""
    named = ids[number] if len(ids) == len(command.values) else ids[0]
    if named in (b"", fact.message_id):
        return ""
    return f"{facts.MESSAGE_ID_HEADER}: the request names another message id. Send the same, or none."


def as_columns(command: Append) -> Columns | Refusal:
    """A ready batch for a fact topic as values that come together."""
    if command.txn_id:
        return ClaimInvalid("a fact is not written inside a transaction: its id would outlive an abort")
    try:
        deltas, keys, times, values, headers, found = _records(command.batch)
    except BatchInvalid as error:
        return BatchRefused(str(error))
    count = len(values)
    if list(deltas) != list(range(count)) or count != command.count:
        return BatchRefused("the offsets of a batch are 0, 1, 2 and so on")
    columns = Columns(
        command.topic,
        command.partition,
        values,
        None,
        None if command.claim is None else [command.claim],
        [command.message_id] * count if command.message_id else None,
        command.content_type,
        True,
        keys,
        headers,
        times,
        None if command.expected_tail < 0 else [command.expected_tail],
        [command.order_key] if command.order_key else None,
        command.close,
    )
    columns.facts = list(found)
    return columns


@lru_cache(maxsize=BATCHES_KEPT)
def _records(
    batch: bytes,
) -> tuple[
    Sequence[int],
    list[bytes | None],
    list[int],
    list[bytes | None],
    list[tuple[tuple[str, bytes | None], ...]],
    tuple[CheckedFact | str, ...],
]:
    """The columns of a batch and the facts in it. Raises BatchInvalid."""
    deltas, times, keys, values, headers = codec.decode_columns(batch)
    found = tuple(facts.checked(key, value, pairs) for key, value, pairs in zip(keys, values, headers, strict=True))
    return deltas, list(keys), list(times), list(values), list(headers), found


def facts_in(batch: bytes) -> list[tuple[int, bytes, bytes]] | Refusal:
    """(record number, message id, digest) of every record of a ready batch, or what refuses it."""
    try:
        found = _records(batch)[-1]
    except BatchInvalid as error:
        return BatchRefused(str(error))
    ids: list[tuple[int, bytes, bytes]] = []
    for number, fact in enumerate(found):
        if isinstance(fact, str):
            return EnvelopeInvalid(f"record {number}: {fact}")
        ids.append((number, fact.message_id, fact.digest))
    return ids
