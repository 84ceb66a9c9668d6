"""A stored message: how a record becomes one, and how one becomes a record.

A stream made through NATS: subject = the record's key. A topic made through another face: subject = its prefix + the
key if that is a valid literal subject, else `<prefix>$raw` with the key in base64 in a header (DESIGN section 4).
"""

import base64
from typing import Final, NamedTuple

from oncelog import limits as bounds
from oncelog.protocols.nats import headers as header_blocks
from oncelog.protocols.nats import subject as subjects

RAW: Final = "$raw"
KEY_HEADER: Final = "oncelog-key-base64"
RECORD_BYTES: Final = 30
"""What the real server's file store counts beside subject, headers and payload; 4 more with headers."""


class Stored(NamedTuple):
    """One message of a stream."""

    sequence: int
    subject: str
    header: bytes
    payload: bytes
    time_ns: int

    @property
    def size(self) -> int:
        """As the real server counts it."""
        extra = 4 + len(self.header) if self.header else 0
        return RECORD_BYTES + len(self.subject.encode()) + len(self.payload) + extra


def subject_of(key: bytes | None, prefix: str, raw: str) -> str:
    """The subject of a record: `raw` if its key cannot be one."""
    if key:
        try:
            text = prefix + key.decode()
        except UnicodeDecodeError:
            return raw
        if len(text.encode()) <= bounds.NATS_STREAM_SUBJECT_BYTES_MAX and subjects.is_valid_literal(text):
            return text
    return raw


def header_of(
    stored: tuple[tuple[str, bytes | None], ...] | list[tuple[str, bytes | None]], key: bytes | None, *, is_raw: bool
) -> bytes:
    """The header block of a record. A header that no block can hold is left out; other faces still show it."""
    if not stored and not (is_raw and key):
        return b""
    found: header_blocks.Headers = []
    for name, content in stored:
        try:
            value = (content or b"").decode()
        except UnicodeDecodeError:
            continue
        if header_blocks.is_safe(name, value):
            found.append((name, value))
    if is_raw and key:
        found.append((KEY_HEADER, base64.b64encode(key).decode()))
    return header_blocks.encode(found) if found else b""
