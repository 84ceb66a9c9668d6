"""What a query had read when a batch was published, as the server stores it beside the batch.

    {"sources": {"0": {"orders": {"0": 42, "created": 1700…}}, "1": …}}   by the names of the checkpoint's offset log

JSON, keys sorted, no spaces: equal places are equal bytes, and the server compares bytes. The offsets of sources that
are not ours are kept as they are; `topics_of` looks for ours, which any reader of the log can go on from.
"""

import json
from collections.abc import Collection, Mapping

from oncelog.spark.options import Offsets, Places, offsets_of, places_of
from oncelog.spark.planning import made_anew


def told(sources: Mapping[str, object]) -> bytes:
    """The bytes for the server."""
    return json.dumps({"sources": sources}, sort_keys=True, separators=(",", ":")).encode()


def sources_of(stored: bytes) -> dict[str, object]:
    """The sources, by name. ValueError if the bytes are somebody else's."""
    document = json.loads(stored)
    if not isinstance(document, dict) or not isinstance(document.get("sources"), dict):
        raise ValueError("the application stores source offsets in another form; its sink is not Spark's")
    sources: dict[str, object] = document["sources"]
    return sources


def topics_of(stored: bytes) -> Offsets:
    """The offsets of `places_in`."""
    return places_in(stored).offsets


def places_in(stored: bytes) -> Places:
    """Places of all sources together. ValueError if two sources read one stream and stand at two places."""
    merged: Offsets = {}
    created: dict[str, int] = {}
    for source in sources_of(stored).values():
        try:
            places = places_of(source)
        except ValueError:
            continue  # a source of another kind
        created.update(places.created)
        for topic, partitions in places.offsets.items():
            for partition, offset in partitions.items():
                known = merged.setdefault(topic, {}).setdefault(partition, offset)
                if known != offset:
                    raise ValueError(
                        f"two sources of the application read {topic!r} partition {partition}, to {known:,} and to "
                        f"{offset:,}: give startingOffsets as JSON for each"
                    )
    return Places(merged, created)


def continues(stored: bytes, resumed: Collection[str], end: Mapping[str, object]) -> bool:
    """Whether a query whose sources were `resumed` at `stored`, for these topics, has come from there to `end`.

    A source of another kind cannot have been resumed from the server, so nothing is proven for it.
    """
    try:
        before, created = places_in(stored)
        if not before.keys() <= set(resumed):
            return False
        after = [places_of(source) for source in end.values()]
        if len(sources_of(stored)) != len(after) or any(not _ours(source) for source in sources_of(stored).values()):
            return False
    except ValueError:
        return False
    reached: Offsets = {}
    reached_created: dict[str, int] = {}
    for places in after:
        reached_created.update(places.created)
        for topic, partitions in places.offsets.items():
            reached.setdefault(topic, {}).update(partitions)
    # A topic that was made anew is read from its start, if the source was told that this may be: see `planning`.
    return all(
        reached.get(topic, {}).get(partition, -1) >= offset
        for topic, partitions in before.items()
        if not made_anew(created.get(topic, 0), reached_created.get(topic, 0))
        for partition, offset in partitions.items()
    )


def _ours(source: object) -> bool:
    try:
        offsets_of(source)
    except ValueError:
        return False
    return True
