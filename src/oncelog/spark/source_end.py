"""What a query had read when a batch was published, as the server stores it beside the batch.

    {"sources": {"0": {"orders": {"0": 42}}, "1": …}}      by the names of the checkpoint's offset log

JSON, keys sorted, no spaces: equal places are equal bytes, and the server compares bytes. The offsets of sources that
are not ours are kept as they are; `topics_of` looks for ours, which any reader of the log can go on from.
"""

import json
from collections.abc import Collection, Mapping

from oncelog.spark.options import Offsets, offsets_of


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
    """Topic offsets of all sources together. ValueError if two sources read one stream and stand at two places."""
    merged: Offsets = {}
    for source in sources_of(stored).values():
        try:
            offsets = offsets_of(source)
        except ValueError:
            continue  # a source of another kind
        for topic, partitions in offsets.items():
            for partition, offset in partitions.items():
                known = merged.setdefault(topic, {}).setdefault(partition, offset)
                if known != offset:
                    raise ValueError(
                        f"two sources of the application read {topic!r} partition {partition}, to {known:,} and to "
                        f"{offset:,}: give startingOffsets as JSON for each"
                    )
    return merged


def continues(stored: bytes, resumed: Collection[str], end: Mapping[str, object]) -> bool:
    """Whether a query whose sources were `resumed` at `stored`, for these topics, has come from there to `end`.

    A source of another kind cannot have been resumed from the server, so nothing is proven for it.
    """
    try:
        before = topics_of(stored)
        if not before.keys() <= set(resumed):
            return False
        after = [offsets_of(source) for source in end.values()]
        if len(sources_of(stored)) != len(after) or any(not _ours(source) for source in sources_of(stored).values()):
            return False
    except ValueError:
        return False
    reached: Offsets = {}
    for offsets in after:
        for topic, partitions in offsets.items():
            reached.setdefault(topic, {}).update(partitions)
    return all(
        reached.get(topic, {}).get(partition, -1) >= offset
        for topic, partitions in before.items()
        for partition, offset in partitions.items()
    )


def _ours(source: object) -> bool:
    try:
        offsets_of(source)
    except ValueError:
        return False
    return True
