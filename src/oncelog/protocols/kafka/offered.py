"""Every API that this broker offers, and the versions it offers of each.

Produce is advertised from version 0 and Fetch from 4: older librdkafka concludes from a missing Produce 0 that the
broker knows no compression (KAFKA-18659). Produce 0 to 2 are refused when they come.
"""

from typing import Final

from oncelog.protocols.kafka.apis import groups, metadata, topics, txns
from oncelog.protocols.kafka.schema import Api

PRODUCE: Final = 0
FETCH: Final = 1
API_VERSIONS: Final = metadata.API_VERSIONS.key

TABLED: Final[dict[int, Api]] = {
    api.key: api for family in (metadata, groups, topics, txns) for api in vars(family).values() if isinstance(api, Api)
}
"""All but Produce and Fetch, which have code of their own."""

ADVERTISED: Final[dict[int, tuple[int, int]]] = {PRODUCE: (0, 11), FETCH: (4, 12)} | {
    key: api.versions for key, api in TABLED.items()
}

SERVED: Final = ADVERTISED | {PRODUCE: (3, 11)}

_FLEXIBLE_FROM: Final = {PRODUCE: 9, FETCH: 12} | {key: api.flexible_from for key, api in TABLED.items()}


def is_flexible(key: int, version: int) -> bool:
    """Whether request headers of this version have tagged fields."""
    return version >= _FLEXIBLE_FROM.get(key, 32_767)


def has_flexible_answer(key: int, version: int) -> bool:
    """Whether the response's header has tagged fields. That of ApiVersions never has: its reader knows no version."""
    return key != API_VERSIONS and is_flexible(key, version)


def is_served(key: int, version: int) -> bool:
    """Whether a request of this version can be answered."""
    versions = SERVED.get(key)
    return versions is not None and versions[0] <= version <= versions[1]
