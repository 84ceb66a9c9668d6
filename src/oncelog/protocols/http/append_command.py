"""The command of an append, made here and nowhere else, whichever way its request was read."""

from oncelog.core.command import Append
from oncelog.core.flat import AppendValue, ProducerClaim


def append_of_one(
    topic: str,
    partition: int,
    value: bytes | bytearray,
    digest: bytes,
    claim: ProducerClaim | None,
    message_id: bytes,
    content_type: str,
) -> AppendValue:
    """The command of nearly every request: one record, no condition, no close. A digest belongs to a claim
    or an id: without either it is left out."""
    if claim is None and not message_id:
        digest = b""
    return AppendValue(topic, partition, value, digest, claim, message_id, content_type)


def append_of_batch(
    topic: str,
    partition: int,
    batch: bytes,
    count: int,
    digest: bytes,
    claim: ProducerClaim | None,
    message_id: bytes,
    content_type: str,
) -> Append:
    """Any other append: several records, or one that conditions or a close come with. The digest as above."""
    if claim is None and not message_id:
        digest = b""
    return Append(topic, partition, batch, count, digest, claim, message_id, -1, "", content_type)


def following(claim: ProducerClaim, sequence: int, digest: bytes) -> ProducerClaim:
    """The same producer's claim to another sequence."""
    return ProducerClaim(
        claim.name,
        claim.epoch,
        sequence,
        sequence,
        claim.mode,
        digest,
        claim.managed,
        claim.session,
        claim.start_any,
    )
