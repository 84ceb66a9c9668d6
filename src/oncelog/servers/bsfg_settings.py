"""What a server is told about its BSFG boundary: the table `[bsfg]`."""

from typing import Annotated

import msgspec
from msgspec import Meta


class BsfgSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where facts go."""

    audit_subjects: Annotated[
        tuple[str, ...],
        Meta(description="Facts whose subject begins so go to `facts.audit`; the longest prefix of all decides"),
    ] = ()
    documents_subjects: Annotated[
        tuple[str, ...], Meta(description="Facts whose subject begins so go to `facts.documents`")
    ] = ()
