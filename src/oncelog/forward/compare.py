"""Two zones against each other: every fact that is confirmed at the source is in the target, once, with its content.

1. The consumer at the source is asked first: what it has confirmed by then is what is compared.
2. The source's facts that the consumer has confirmed and that are for the target are read, as raw records.
3. All facts of the target are read, after that. A fact is known there by its message id, whatever its stream.

Contents are compared by the identity, worked out anew from each record: a stored digest proves nothing. 16 bytes are
kept for each fact, so 20 million take 700 MB on both sides together with what sorting needs.
"""

from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from oncelog.client.client import AsyncClient
from oncelog.client.errors import NotFound
from oncelog.client.models import CursorInfo
from oncelog.core import facts
from oncelog.forward.daemon import STREAMS

EXAMPLES_MAX: Final = 5
"""Of each kind of fault. The counts are whole."""

SCOPE: Final = "bsfg:"

Numbers = NDArray[np.uint64]


class Comparison(msgspec.Struct):
    """What was found."""

    source_zone: str
    target_zone: str
    consumer: str
    confirmed: int = 0
    """Facts that the consumer has confirmed and that are for the target."""
    other_zones: int = 0
    """Facts that it has confirmed and that are for other zones."""
    target_facts: int = 0
    """All facts of the target, whoever sent them."""
    missing: int = 0
    doubled: int = 0
    """Message ids that the target has more than once, counted once for each copy too many."""
    different: int = 0
    """Message ids with other content in the target."""
    out_of_order: int = 0
    """Facts that stand in the target before one that precedes them in their stream of the source."""
    examples: list[str] = []

    @property
    def is_sound(self) -> bool:
        """No fault of any kind."""
        return not (self.missing or self.doubled or self.different or self.out_of_order)


class ZoneFacts:
    """The facts of one zone: 64 bits of the message id and of the identity, and where each is."""

    def __init__(self) -> None:
        self._ids = array("Q")
        self._contents = array("Q")
        self._places = array("Q")
        """Stream number and sequence in one word."""

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, stream: int, sequence: int, fact: facts.Fact) -> None:
        """One more, in the order of its stream."""
        self._ids.append(xxh3_64_intdigest(fact.message_id.encode()))
        self._contents.append(int(facts.sha256_of(fact)[:16], 16))
        self._places.append(stream << 60 | sequence)

    @property
    def ids(self) -> Numbers:
        return np.frombuffer(self._ids, dtype=np.uint64)

    @property
    def contents(self) -> Numbers:
        return np.frombuffer(self._contents, dtype=np.uint64)

    @property
    def places(self) -> Numbers:
        return np.frombuffer(self._places, dtype=np.uint64)


def place_name(place: int) -> str:
    """`facts.operational 17`."""
    return f"{STREAMS[place >> 60]} {place & (1 << 60) - 1:,}"


async def compare(
    source: AsyncClient,
    target: AsyncClient,
    zones: tuple[str, str],
    consumer: str,
    carries: Callable[[str, str], bool],
    progress: Callable[[str, int], None],
) -> Comparison:
    """Read both zones. `carries(from zone, to zone)` says whether a fact goes to the target."""
    found = Comparison(*zones, consumer, examples=[])
    ours, theirs = ZoneFacts(), ZoneFacts()
    cursors = [await _cursor(source, consumer, stream) for stream in STREAMS]
    for number, (stream, cursor) in enumerate(zip(STREAMS, cursors, strict=True)):
        if cursor is None:
            continue
        async for sequence, fact in _facts(source, stream):
            if not _is_confirmed(cursor, sequence - 1):
                continue
            if carries(fact.from_zone, fact.to_zone):
                ours.add(number, sequence, fact)
            else:
                found.other_zones += 1
            progress("source", len(ours))
    for number, stream in enumerate(STREAMS):
        async for sequence, fact in _facts(target, stream):
            theirs.add(number, sequence, fact)
            progress("target", len(theirs))
    found.confirmed, found.target_facts = len(ours), len(theirs)
    judge(ours, theirs, found)
    return found


def judge(ours: ZoneFacts, theirs: ZoneFacts, found: Comparison) -> None:
    """Count the faults."""
    order = np.argsort(theirs.ids, kind="stable")
    ids, contents, places = theirs.ids[order], theirs.contents[order], theirs.places[order]
    doubled = np.flatnonzero(ids[1:] == ids[:-1]) + 1
    found.doubled = len(doubled)
    _name(found, "the target has twice, also at", places[doubled])
    if not len(ours):
        return
    at = np.searchsorted(ids, ours.ids)
    at_known = np.minimum(at, max(0, len(ids) - 1))
    is_there = (ids[at_known] == ours.ids) if len(ids) else np.zeros(len(ours), dtype=bool)
    found.missing = int(np.count_nonzero(~is_there))
    _name(found, "the target does not have, from the source's", ours.places[~is_there])
    differs = is_there.copy()
    if len(ids):
        differs &= contents[at_known] != ours.contents
    found.different = int(np.count_nonzero(differs))
    _name(found, "the target has with other content, from the source's", ours.places[differs])
    for stream in range(len(STREAMS)):
        mine = is_there & (ours.places >> np.uint64(60) == stream)
        there = places[at_known[mine]] if len(ids) else places[:0]
        # Behind the highest one so far: whatever stands before it came too late.
        late = np.flatnonzero(there < np.maximum.accumulate(there)) if len(there) else np.empty(0, dtype=np.int64)
        found.out_of_order += len(late)
        _name(found, "the target has behind a later one, at its", there[late])


def _name(found: Comparison, what: str, places: Sequence[int] | Numbers) -> None:
    found.examples += [f"{what} {place_name(int(place))}" for place in places[:EXAMPLES_MAX]]


async def _cursor(zone: AsyncClient, consumer: str, stream: str) -> CursorInfo | None:
    try:
        return await zone.cursor(SCOPE + consumer, stream)
    except NotFound:
        return None


def _is_confirmed(cursor: CursorInfo, offset: int) -> bool:
    return offset < cursor.frontier or any(first <= offset < next_ for first, next_ in cursor.confirmed)


async def _facts(zone: AsyncClient, stream: str) -> AsyncIterator[tuple[int, facts.Fact]]:
    """(sequence, fact) of every record of a stream; nothing if the zone has no such stream."""
    async with zone.reader(stream, live=False, on_gone="skip") as reader:
        try:
            async for record in reader:
                yield record.offset + 1, facts.fact_of(record.key, record.value, record.headers)
        except NotFound:
            return
