"""Who wrote a record: found in the entry that holds it. Nothing of this is kept beside the journal."""

from typing import NamedTuple

from oncelog.core.entry import Appended, Claimed, Compound, Entry
from oncelog.storage.entry_codec import decode_group


class WrittenBy(NamedTuple):
    """The producer of a record: its scoped name, epoch and last sequence."""

    name: str
    epoch: int
    sequence: int


def written_by(payload: bytes, batch_at: int, number: int) -> WrittenBy | None:
    """The producer of record `number` of the batch at byte `batch_at` of a group; None if it had none."""
    holder: Entry | None = None
    for _, entry_at, entry in decode_group(payload):
        if entry_at > batch_at:
            break
        holder = entry
    if isinstance(holder, Appended):
        for of_record, epoch, claimed in holder.claims:
            if of_record == number:
                return WrittenBy(claimed.name, epoch, claimed.last)
        claim = holder.claim
        return None if claim is None else WrittenBy(claim.name, holder.epoch, claim.last)
    if isinstance(holder, Compound):
        for operation in holder.operations:
            if isinstance(operation, Claimed):
                return WrittenBy(operation.claim.name, operation.epoch, operation.claim.last)
    return None
