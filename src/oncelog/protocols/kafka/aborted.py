"""The list of aborted transactions in a Fetch answer: one entry for each, however its records lie.

A client keeps a producer id as aborted from the entry's offset up to the abort marker of that id, and takes one entry
off per marker. Records of one transaction lie in several stretches when others write in between. An entry for each
stretch would leave some of them behind the marker, and the client would drop what the producer commits later.
"""

from collections.abc import Iterable, Sequence

from oncelog.core import batch as codec
from oncelog.protocols.kafka.log import StoredBatch


def one_for_each(stretches: Iterable[tuple[int, int]], batches: Sequence[StoredBatch]) -> tuple[tuple[int, int], ...]:
    """(producer id, first offset) of every aborted transaction, from those of its stretches among the batches."""
    events = [(first, False, producer_id) for producer_id, first in stretches]
    if len(events) < 2:
        return tuple((producer_id, first) for first, _, producer_id in events)
    for base_offset, batch in batches:
        header = codec.read_header(batch)
        if header.attributes & codec.CONTROL:
            events.append((base_offset, True, header.producer_id))
    events.sort()
    kept: list[tuple[int, int]] = []
    aborted: set[int] = set()
    for offset, is_marker, producer_id in events:
        if is_marker:
            aborted.discard(producer_id)
        elif producer_id not in aborted:
            aborted.add(producer_id)
            kept.append((producer_id, offset))
    return tuple(kept)
