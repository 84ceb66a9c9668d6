"""Bounds of the core: records, entries, streams, names, claims, transactions."""

from typing import Final

from oncelog.limits.units import KIB, MIB

# --- records and batches -----------------------------------------------------------------------------------------

BATCH_INFLATED_BYTES_MAX: Final = 64 * MIB
"""A compressed batch may inflate to this much. A 4 MiB batch of zeros could otherwise ask for gigabytes."""

BATCH_RECORDS_MAX: Final = 1 << 20
"""Records of one batch. The smallest record has 7 bytes, so 4 MiB hold 600,000; only compression could bring more, and
skimming 9 million records would hold the loop for seconds."""

# --- entries -----------------------------------------------------------------------------------------------------

ENTRY_BYTES_MAX: Final = 4 * MIB
"""One entry. Larger writes go through a stage, so that one client cannot make every other wait for its disk time."""

BATCH_BYTES_MAX: Final = ENTRY_BYTES_MAX - 8 * KIB
"""One batch. The rest of its entry is for what stands beside it: names, claim, order key, ids; 3 KiB at most."""

RUN_CLAIMS_BYTES_MAX: Final = 60 * KIB
"""Claims of one batch: their length has 16 bits in an entry."""

# --- streams, names and claims -----------------------------------------------------------------------------------

TOPIC_NAME_BYTES_MAX: Final = 400
"""An index key; longer than Kafka's 249 and than any sensible path."""

PARTITIONS_MAX: Final = 10_000
"""Partitions of one topic; each is a stream with its own row."""

PRODUCER_NAME_BYTES_MAX: Final = 400
"""Names are index keys; LMDB takes keys of up to 511 bytes."""

PRODUCER_SESSION_BYTES_MAX: Final = 400
"""Stands in every entry of its producer, so as short as a name."""

CLAIM_DIGEST_BYTES_MAX: Final = 32
"""A SHA-256; the digests that we make have 16 bytes."""

ORDER_KEY_BYTES_MAX: Final = 1024
"""`Stream-Seq` is a free string; it stands in the stream's row and in every entry that sets it."""

TOPIC_CONFIG_BYTES_MAX: Final = 16 * KIB
"""Content type, zone and attributes of a topic, which every partition's row repeats; the content type of a stage."""

MEDIA_TYPES_CACHED_MAX: Final = 1_024
"""Content types whose media type is kept: many times what any log uses."""

MEDIA_TYPE_CACHED_CHARS_MAX: Final = 256
"""A longer content type is taken apart each time: it is rare, and whoever sends long ones would fill memory."""

DELETE_OFFSETS_MAX: Final = 1 << 18
"""Offsets in one delete of single records: 64 chunks of holes, and one entry even if every second one is a hole."""

MESSAGE_ID_BYTES_MAX: Final = 1024
"""Ids are hashed before they are stored; the bound keeps a request header honest."""

SEQUENCE_MAX: Final = 2**53 - 1
"""What JSON and JavaScript carry exactly; the durable-streams protocol sets the same bound."""

KAFKA_SEQUENCE_MAX: Final = 2**31 - 1
"""Kafka's sequences are signed 32-bit and wrap to 0."""

KAFKA_EPOCH_MAX: Final = 32_766
"""The last epoch a client may hold; after it the producer id is rotated."""

KAFKA_FENCE_EPOCH_MAX: Final = 32_767
"""The largest 16-bit epoch: kept free so that even a client at KAFKA_EPOCH_MAX can be fenced by one more bump."""

PRODUCER_BATCHES_REMEMBERED: Final = 5
"""Batches per producer whose offsets a retry can ask for: Kafka's window, the most such a client has in flight."""

EARLY_AHEAD_MAX: Final = 5
"""How far ahead of its turn a request may come and still wait for those before it: what a client has in flight."""

PRODUCER_SESSIONS_DISPLACED: Final = 4
"""Sessions of earlier runs kept per producer, so that a zombie's first request is fenced and not taken for a restart.
A run that was displaced four times over has missed four restarts of its own service."""

DEDUPE_FLOOR_MS_DEFAULT: Final = 7 * 24 * 3600 * 1000
"""Ids and producers outlive their record by this much: longer than a weekend outage plus its repair."""

BYTE_MARK_BITS: Final = 20
"""A stream notes how many bytes lie below an offset once per MiB, and more rarely the larger it is."""

BYTE_MARKS_MAX: Final = 128
"""Such notes per stream: the size of any part of it is then known to about a hundredth of the whole."""

SUBJECT_BYTES_MAX: Final = 400
"""A subject is part of an index key beside a stream id. A longer key counts as no subject."""

SUBJECTS_PER_ENTRY_MAX: Final = 20_000
"""Different subjects that one write may have where subjects are indexed: each has a row that is changed at once."""

TRIM_MARKS_MAX: Final = 32
"""Removal times kept per stream. Older ones are joined to the later time, which only remembers ids longer."""

HOLE_CHUNK_BITS: Final = 12
"""4,096 offsets share one row of holes: one txn marker rewrites at most a few KB, one look-up serves many records."""

COMMIT_APPENDS_MAX: Final = 10_000
"""Streams and conditions in one commit: more would hold up every other writer for tens of milliseconds."""

TXN_RANGES_MAX: Final = 50_000
"""Separate stretches one txn may write before it must end: its end is one entry and has to fit."""

CURSOR_CONFIRMED_RANGES_MAX: Final = 10_000
"""Ranges confirmed above a cursor's frontier. Beyond it the consumer must close gaps first."""

STAGE_TTL_MS_DEFAULT: Final = 24 * 3600 * 1000
"""A stage nobody publishes is freed after a day: longer than any sane Spark batch, shorter than a full disk."""

STAGE_TTL_MS_MAX: Final = 30 * 24 * 3600 * 1000
"""A month: beyond it an abandoned stage is a leak."""

STAGES_PER_PUBLISH_MAX: Final = 50_000
"""Stages in one publish or one drop; each costs up to 44 bytes of one entry."""

PUBLISHED_STAGE_BYTES: Final = 76
"""What one stage of a publish may need: its own operation, and its stream's place in the application's outcome."""

PUBLISH_IDS_MAX: Final = 20_000
"""Message ids in one publish: they are judged at once, while every other writer waits."""

PUBLISHED_ID_BYTES: Final = 120
"""What one message id of a publish may need: 40 bytes if fresh; a hole and its old value if its record is gone."""

QUERY_NAME_BYTES_MAX: Final = 400
"""Spark's query ids have 36 bytes; as long as any other name."""

APPLICATION_SOURCE_BYTES_MAX: Final = 1 * MIB
"""Source offsets that an application stores: a JSON object with 20,000 partitions."""

ENTRY_OVERHEAD_BYTES: Final = 512
"""What an entry may need beside its batches, names and claims when space is reserved for it."""

# --- txns --------------------------------------------------------------------------------------------------------

TXN_TIMEOUT_MS_MIN: Final = 1_000
"""A shorter timeout would abort healthy clients over one slow round trip."""

TXN_TIMEOUT_MS_MAX: Final = 15 * 60 * 1_000
"""An abandoned txn holds back every read-committed reader of its streams for this long at most; Kafka's bound."""

TXN_TIMEOUT_MS_DEFAULT: Final = 60_000
"""When a client names none; the default of Kafka's clients."""

TXN_CHECK_INTERVAL_MS: Final = 10_000
"""How often txns are looked at by default; P7 promises the end of an abandoned txn within its
timeout plus this."""

TXN_ID_EXPIRY_MS: Final = 7 * 24 * 60 * 60 * 1_000
"""An unused txn id is forgotten after this, as in Kafka; as long as the dedupe floor, so that no fence goes early."""

CURSOR_NAME_BYTES_MAX: Final = 400
"""An index key holds the name and a stream id, and LMDB takes keys of up to 511 bytes."""

CURSOR_METADATA_BYTES_MAX: Final = 4096
"""Kafka's default bound for the text that a consumer stores beside its offset."""

CONSUMER_WAITING_MAX: Final = 100_000
"""Records that were delivered to a consumer and wait to be confirmed: a hundred times what a NATS consumer has unless
it asks for more. Its row holds them all."""

CONSUMER_CONFIG_BYTES_MAX: Final = 64 * KIB
"""Settings that a face keeps with a consumer: a JSON object with some hundred filters."""

CONSUMER_GATE_BYTES_MAX: Final = 64
"""A gate is a word such as `closed`."""

CONSUMER_UPDATE_BYTES: Final = 128
"""What one update of a consumer may need in an entry beside its name and its numbers."""

COMMIT_ID_BYTES_MAX: Final = 400
"""An index key, like a cursor name."""

CLAIM_SCOPE_BYTES_MAX: Final = 64
"""Part of an index key beside a commit id."""

COMMIT_APPEND_BYTES: Final = 256
"""What one append or cursor move of a commit may need beside its batch and names when its size is estimated: header,
id, and its place in two remembered outcomes."""

TXN_STREAM_BYTES: Final = 256
"""What one stream of a txn may need in the entry that ends it: marker, fence, release, head of the aborted ranges."""

TXN_RANGE_BYTES: Final = 20
"""What one stretch of a txn may need in the entry that ends it."""

APPLICATION_NAME_BYTES_MAX: Final = 400
"""An index key, like a cursor name."""

TXN_ID_BYTES_MAX: Final = 400
"""An index key, like a cursor name."""
