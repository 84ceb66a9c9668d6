"""The command of an append, made here and nowhere else, whichever way its request was read."""

from collections.abc import Sequence

from oncelog.core.flat import Columns, ProducerClaim


def append_of_values(
    topic: str,
    partition: int,
    values: Sequence[bytes],
    digest: bytes,
    claim: ProducerClaim | None,
    message_id: bytes,
    content_type: str,
) -> Columns:
    """The values of one request: one, or several that are written all or not at all. Claim and id are those of the
    whole request."""
    claims = None if claim is None else (claim,)
    digests, ids = ((digest,), (message_id,)) if message_id else (None, None)
    return Columns(topic, partition, values, digests, claims, ids, content_type, len(values) > 1)


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
