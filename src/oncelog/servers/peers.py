"""Other zones that a server knows: what its settings say of each."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from oncelog.core import facts


class PeerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Another zone that may call the boundary of this one: one `[[peer]]` for each."""

    name: Annotated[
        str,
        Meta(
            pattern=facts.ZONE_PATTERN,
            title=f"1 to {facts.ZONE_CHARACTERS_MAX} letters, digits, '.', '_', '-'; the first a letter or digit",
            description="The name of the other zone",
        ),
    ]
    token_file: Annotated[Path | None, Meta(description="A file with the token that its calls carry")] = None
    append_subjects: Annotated[
        tuple[str, ...], Meta(description="Subjects of facts that it may append; `*` and a final `>` match any words")
    ] = ()
    fetch_streams: Annotated[tuple[str, ...], Meta(description="Streams that it may fetch facts of")] = ()
    consumers: Annotated[tuple[str, ...], Meta(description="Consumers that it may read and move")] = ()
    start: Annotated[
        str,
        Meta(
            pattern="first|next",
            title="first or next",
            description="Where its new consumers begin: at the first fact, or at those that come next",
        ),
    ] = "first"
    export: Annotated[
        tuple[str, ...],
        Meta(description="Subjects of facts that may leave this zone for it; `*` and a final `>` match"),
    ] = ()
