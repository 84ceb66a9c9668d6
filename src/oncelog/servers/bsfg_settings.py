"""What a server is told about its BSFG boundary: the table `[bsfg]`."""

from typing import Annotated

import msgspec
from msgspec import Meta

from oncelog.limits import KIB, MIB


class BsfgSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where facts go, and how much the boundary takes."""

    audit_subjects: Annotated[
        tuple[str, ...],
        Meta(description="Facts whose subject begins so go to `facts.audit`; the longest prefix of all decides"),
    ] = ()
    documents_subjects: Annotated[
        tuple[str, ...], Meta(description="Facts whose subject begins so go to `facts.documents`")
    ] = ()
    object_bytes_max: Annotated[
        int, Meta(ge=1 * KIB, le=1 << 40, description="Size of one object; a larger one is refused")
    ] = 1_024 * MIB
    backlog_bytes_max: Annotated[
        int,
        Meta(
            ge=64 * KIB,
            le=1 << 50,
            description="Unconfirmed bytes that one consumer may leave in a stream. Above 80 % of it, AppendFact "
            "answers resource_exhausted, and nothing is dropped",
        ),
    ] = 10 * 1_024 * MIB
