"""Bounds of the NATS face."""

from typing import Final

from oncelog.limits.units import KIB, MIB

# --- NATS --------------------------------------------------------------------------------------------------------

NATS_CONTROL_LINE_BYTES_MAX: Final = 4 * KIB
"""One control line: the real server's default. Longer lines end the connection."""

NATS_CONNECT_BYTES_MAX: Final = 64 * KIB
"""A CONNECT line carries JSON; the real server allows it the same line, tokens of some clients are longer."""

NATS_PAYLOAD_BYTES_MAX_DEFAULT: Final = 1 * MIB
"""Headers and payload of one message: the real server's default `max_payload`."""

NATS_SUBJECT_BYTES_MAX: Final = 2 * KIB
"""One subject; two of them and the sizes fit a control line."""

NATS_STREAM_SUBJECT_BYTES_MAX: Final = 400
"""A subject that is stored: it becomes an index key."""

NATS_HEADER_BYTES_MAX: Final = 64 * KIB
"""The header block of a stored message: JetStream's bound (error 10097)."""

NATS_SUBSCRIPTIONS_MAX: Final = 200_000
"""Subscriptions of one connection: about 100 MB of memory."""

NATS_ROUTES_CACHED_MAX: Final = 8_192
"""Subjects whose receivers are kept; the cache is emptied when it is full."""

NATS_NAME_BYTES_MAX: Final = 255
"""Names of streams and consumers: JetStream's bound."""

NATS_DESCRIPTION_BYTES_MAX: Final = 4 * KIB
"""JetStream's bound."""

NATS_METADATA_BYTES_MAX: Final = 8 * KIB
"""Metadata of a stream; JetStream allows 128 KiB, but a topic's settings are repeated in every partition's row."""

NATS_API_REQUEST_BYTES_MAX: Final = 256 * KIB
"""JSON of one API request: a configuration has a few KiB."""

NATS_BATCH_ID_CHARACTERS_MAX: Final = 64
"""Seed 000: the id of an atomic batch, in Unicode code points."""

NATS_BATCH_MESSAGES_MAX: Final = 1_000
"""Seed 000: messages of one atomic batch."""

NATS_BATCHES_PER_STREAM_MAX: Final = 50
"""Seed 000: atomic batches open at once on one stream."""

NATS_BATCHES_MAX: Final = 1_000
"""Seed 000: atomic batches open at once on the server."""

NATS_BATCH_TIMEOUT_MS: Final = 10_000
"""Seed 000: an atomic batch without a message for this long is abandoned."""

NATS_BATCH_BYTES_MAX: Final = 4 * MIB - 64 * KIB
"""Bytes of one atomic batch: it is one journal entry, of at most 4 MiB."""

NATS_BATCHES_OPEN_BYTES_MAX: Final = 256 * MIB
"""Bytes of all open atomic batches: a thousand open ones could otherwise hold 4 GiB."""

NATS_LIST_PAGE: Final = 256
"""Streams or consumers in one listing with details: the real server's page."""

NATS_NAMES_PAGE: Final = 1_024
"""Names in one listing: the real server's page."""

NATS_SUBJECTS_PAGE: Final = 100_000
"""Subjects of one stream in one answer: the real server's page."""
