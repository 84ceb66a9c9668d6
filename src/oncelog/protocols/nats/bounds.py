"""Bounds of the NATS face, each with its unit and its reason."""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

CONTROL_LINE_BYTES_MAX: Final = 4 * KIB
"""One control line: the real server's default. Longer lines end the connection."""

CONNECT_BYTES_MAX: Final = 64 * KIB
"""A CONNECT line carries JSON; the real server allows it the same line, tokens of some clients are longer."""

PAYLOAD_BYTES_MAX_DEFAULT: Final = 1 * MIB
"""Headers and payload of one message: the real server's default `max_payload`."""

SUBJECT_BYTES_MAX: Final = 2 * KIB
"""One subject; two of them and the sizes fit a control line."""

STREAM_SUBJECT_BYTES_MAX: Final = 400
"""A subject that is stored: it becomes an index key."""

HEADER_BYTES_MAX: Final = 64 * KIB
"""The header block of a stored message: JetStream's bound (error 10097)."""

SUBSCRIPTIONS_MAX: Final = 200_000
"""Subscriptions of one connection: about 100 MB of memory."""

ROUTES_CACHED_MAX: Final = 8_192
"""Subjects whose receivers are kept; the cache is emptied when it is full."""

NAME_BYTES_MAX: Final = 255
"""Names of streams and consumers: JetStream's bound."""

DESCRIPTION_BYTES_MAX: Final = 4 * KIB
"""JetStream's bound."""

METADATA_BYTES_MAX: Final = 8 * KIB
"""Metadata of a stream; JetStream allows 128 KiB, but a topic's settings are repeated in every partition's row."""

API_REQUEST_BYTES_MAX: Final = 256 * KIB
"""JSON of one API request: a configuration has a few KiB."""

BATCH_ID_CHARACTERS_MAX: Final = 64
"""Seed 000: the id of an atomic batch, in Unicode code points."""

BATCH_MESSAGES_MAX: Final = 1_000
"""Seed 000: messages of one atomic batch."""

BATCHES_PER_STREAM_MAX: Final = 50
"""Seed 000: atomic batches open at once on one stream."""

BATCHES_MAX: Final = 1_000
"""Seed 000: atomic batches open at once on the server."""

BATCH_TIMEOUT_MS: Final = 10_000
"""Seed 000: an atomic batch without a message for this long is abandoned."""

BATCH_BYTES_MAX: Final = 4 * MIB - 64 * KIB
"""Bytes of one atomic batch: it is one journal entry, of at most 4 MiB."""

BATCHES_OPEN_BYTES_MAX: Final = 256 * MIB
"""Bytes of all open atomic batches: a thousand open ones could otherwise hold 4 GiB."""

LIST_PAGE: Final = 256
"""Streams or consumers in one listing with details: the real server's page."""

NAMES_PAGE: Final = 1_024
"""Names in one listing: the real server's page."""

SUBJECTS_PAGE: Final = 100_000
"""Subjects of one stream in one answer: the real server's page."""

API_LEVEL: Final = 3
"""JetStream's API level: 3 has `Nats-Batch-Commit: eob`."""

VERSION: Final = "2.14.0"
"""The server version that clients compare with: what they may use of JetStream."""
