"""Every bound, with its unit and its reason. A leaf. Relations between bounds are asserted at import.

`docs/limits.md` lists them; a test compares the two.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# --- records and batches ---------------------------------------------------------------------------------------

BATCH_INFLATED_BYTES_MAX: Final = 64 * MIB
"""A compressed batch may inflate to this much. A 4 MiB batch of zeros could otherwise ask for gigabytes."""

BATCH_RECORDS_MAX: Final = 1 << 20
"""Records of one batch. The smallest record has 7 bytes, so 4 MiB hold 600,000; only compression could bring more, and
skimming 9 million records would hold the loop for seconds."""

# --- entries and groups ----------------------------------------------------------------------------------------

ENTRY_BYTES_MAX: Final = 4 * MIB
"""One entry. Larger writes go through a stage, so that one client cannot make every other wait for its disk time."""

BATCH_BYTES_MAX: Final = ENTRY_BYTES_MAX - 8 * KIB
"""One batch. The rest of its entry is for what stands beside it: names, claim, order key, ids; 3 KiB at most."""

GROUP_BYTES_MAX: Final = 8 * MIB
"""What one fdatasync covers. Above 4 MiB a larger group no longer gains throughput, it only adds latency."""

GROUP_HOLD_EACH_US_MAX: Final = 500
"""How long a group may wait for the next of those who were just answered, in microseconds: about two syncs of a quick
disk. On a slow one they join while the group before is being written."""

GROUP_HOLD_US_MAX: Final = 1_500
"""The same for all of them: what the loop takes for some 64 requests, which it reads meanwhile."""

POLL_US_MAX: Final = 200
"""How long the loop looks for the next request, in microseconds, instead of sleeping, after one that came so soon. To
sleep and wake up takes 30 to 60, so what comes within a few times that costs no more processor time this way."""

POLL_WRITE_US_MAX: Final = 500
"""How long a write may take that the loop looks for: about what waking up three times costs. A disk that takes longer
is waited for by a thread, asleep."""

POLL_HANG_MS: Final = 5
"""A write that takes so long all of a sudden is looked for no more than once in this time."""

POLL_REST_MS_MIN: Final = 10
"""For how long the loop looks for nothing after a write that took too long, or after another process had its processor
for as long: on a machine that is busy, whoever does not sleep is let in last. Every disk is slow once in a while."""

POLL_REST_MS_MAX: Final = 1_000
"""The same where it is the rule: the rest becomes twice as long each time. One write a second may be a try."""

POLL_WRITES_MIN: Final = 100
"""Writes between two that are too slow, so that they count as exceptions."""

RUN_VALUE_BYTES_MAX: Final = 16 * KIB
"""A larger value is a batch of its own: what is saved by sharing one is nothing beside copying it."""

RUN_BYTES_MAX: Final = 256 * KIB
"""Values that share a batch because they came together. A reader that wants one of them takes all: a larger batch would
save no more."""

RUN_RECORDS_MAX: Final = 1_024
"""Appends looked at for one run: what is behind them is looked at for the next, so that a long line of them, each of
which ends a run, is not copied again and again."""

TURN_RECORD_BYTES: Final = 1_280
"""What one append of a turn may need beside its value: the longest name and session of a claim, an id, and the heads of
an entry and a batch of its own."""

TURN_BYTES_MAX: Final = 4 * MIB
"""Appends that wait to be decided together, when their group leaves. Beyond it they are decided at once; half of what a
group holds, so that they fit an empty one."""

RUN_CLAIMS_BYTES_MAX: Final = 60 * KIB
"""Claims of one batch: their length has 16 bits in an entry."""

# --- journal ---------------------------------------------------------------------------------------------------

FRAME_ALIGN_BYTES: Final = 512
"""Frames start and end on sectors, the unit that a disk writes whole: a confirmed sector is never written again."""

SEGMENT_BYTES_DEFAULT: Final = 64 * MIB
"""One segment file. Large enough that changing over is rare, small enough to pre-write in well under a second."""

SEGMENT_BYTES_MIN: Final = 16 * KIB
"""Tests use tiny segments so that every change-over is reached by a handful of entries."""

SPARES_WANTED: Final = 3
"""Pre-written segments kept ready: one reserve for timers, aborts and cleaning, two that absorb a burst meanwhile."""

SPARE_PIECE_BYTES: Final = 4 * MIB
"""A spare is zero-filled and synced in pieces, so that a group never queues behind a whole segment of zeros."""

SEGMENT_FILES_OPEN_MAX: Final = 256
"""Descriptors kept open for reading old segments; a quarter of the usual soft limit, the rest is for sockets."""

READ_AHEAD_BYTES: Final = 1 * MIB
"""What replay reads at once: small frames then cost no system call each, and a disk that has to be asked is asked for
much."""

MIRROR_BYTES: Final = 64 * MIB
"""The newest bytes of a journal that is written past the page cache, kept in memory for those who follow it: two
checkpoints of the index, so that one is read from here while the next fills up."""

READ_GAP_BYTES: Final = 4 * KIB
"""What may lie between two batches that are read in one go: copying it costs less than another system call."""

READ_RUN_BYTES: Final = 4 * MIB
"""Batches read in one go: bounds the buffer when a reader asks for much."""

KERNEL_WRITE_BYTES_MAX: Final = 256 * KIB
"""Of a group that the kernel is left to write by itself. Of a larger one the disk takes most of the time anyway, and
handing over many requests may wait for room in the device's queue."""

PWRITEV_BUFFERS_MAX: Final = 1024
"""IOV_MAX of Linux: a longer list of buffers is refused by the kernel."""

# --- streams, names and claims ---------------------------------------------------------------------------------

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

PRODUCER_SESSIONS_DISPLACED: Final = 4
"""Sessions of earlier runs kept per producer, so that a zombie's first request is fenced and not taken for a restart.
A run that was displaced four times over has missed four restarts of its own service."""

DEDUPE_FLOOR_MS_DEFAULT: Final = 7 * 24 * 3600 * 1000
"""Ids and producers outlive their record by this much: longer than a weekend outage plus its repair."""

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

# --- txns ------------------------------------------------------------------------------------------------------

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

# --- engine ----------------------------------------------------------------------------------------------------

WAITING_BYTES_MAX: Final = 64 * MIB
"""Commands that wait for room or for the index, in all. Servers stop reading long before; this bounds the rest."""

READS_WAITING_BYTES_MAX: Final = 64 * MIB
"""Plans of reads that wait for the reader's thread, in all: a third of a million batches. Beyond it readers are told to
come back."""

HEAP_KEPT_BYTES: Final = 16 * MIB
"""Free memory that the allocator keeps at the end of its heap: enough for the bodies of the next few requests."""

RECORD_TIME_AHEAD_MS: Final = 3_600_000
"""How far the timestamp of a record may lie ahead of its append for a search by record time to find it for certain:
what Kafka allows by default (`message.timestamp.after.max.ms`)."""

READ_PLANNED_BYTES: Final = 200
"""What one batch of a planned read takes in memory."""

CHECKPOINT_BYTES: Final = 32 * MIB
"""Journal bytes between two checkpoints of the index: the tail that a restart replays, and the memory for what is
newer than the index, are a few times this. Half of the mirror, from which the index reads them."""

INDEX_LAG_BYTES_MAX: Final = 256 * MIB
"""If the index falls further behind, commands wait: memory is bounded by journal bytes."""

MERGE_LAG_BYTES_MAX: Final = 64 * MIB
"""If the index is further behind, merging runs of ids gives way to it, but for a step per commit: the largest merge
takes most of a minute, and commands must not wait for it."""

ROWS_CACHED_MAX: Final = 300_000
"""Rows per table kept in memory although the index has them. About 400 bytes each."""

FREE_SLICE: Final = 2_000
"""Rows or ids freed in one go: freeing 60,000 at once stalled the loop by 100 ms."""

PROOF_IDLE_MS: Final = 1_000
"""A journal idle for this long appends an empty frame, so that its last group is followed by proof."""

TIMER_CHECK_MS: Final = 1_000
"""How often stages are looked at; P7 promises their end within their timeout plus this."""

# --- storage index ---------------------------------------------------------------------------------------------

ID_RUN_IDS_MAX: Final = 50_000_000
"""Ids in one run. Merging one rewrites 2.8 GB at 0.4 CPU-µs per id; a larger one would save a filter per 50 M ids."""

ID_RUNS_MAX: Final = 20
"""Runs of message ids beyond which even runs of unlike size are merged: every look-up may have to ask each of them."""

INDEX_COMMIT_JOURNAL_BYTES: Final = 64 * MIB
"""Journal bytes that one commit of the index covers at most: the builder's memory, and what a crash makes it repeat."""

INDEX_COMMIT_ENTRIES: Final = 200_000
"""Entries that one commit of the index covers at most, when they are small."""

INDEX_COMMIT_IDS: Final = 500_000
"""Message ids that one commit of the index covers at most: an entry can bring thousands, each takes 200 bytes."""

STAGE_READ_BYTES: Final = 4 * MIB
"""Bytes of a stage that are in memory at once while its message ids are read: one batch of the largest kind."""

SEEKS_PER_SLICE: Final = 16
"""Streams that one look at the past halves before others have their turn: some twenty look-ups for each."""

INDEX_ROWS_CACHED_MAX: Final = 100_000
"""Rows that the index builder keeps between commits, some 50 MB: beyond it they are read again when needed."""

# --- HTTP ------------------------------------------------------------------------------------------------------

HTTP_DISCARD_BYTES_MAX: Final = 64 * MIB
"""An oversize body is read to its end up to this, so that its sender hears the answer; a larger one is cut off."""

HTTP_DIGITS_MAX: Final = 19
"""Digits of a number in a header or query: what 64 bits hold. Longer texts are refused before they become numbers."""

HTTP_TEMPLATE_HEAD_BYTES_MAX: Final = 1 * KIB
"""Of a head that a connection keeps, to know the next one by: twenty thousand connections may each keep one."""

HTTP_TEMPLATE_ID_BYTES_MAX: Final = 256
"""Of a message id that may stand in the place of another one in such a head. A request with a longer one is read whole,
as if no head were kept."""

HTTP_LIST_MAX: Final = 1_000
"""Rows of one page of a listing."""

HTTP_LIST_DEFAULT: Final = 100
"""Rows of a page that names no limit: a screen or two."""

HTTP_EARLY_AHEAD_MAX: Final = 5
"""How far ahead of its turn a request may come and still wait for those before it: what a client has in flight."""

HTTP_EARLY_BYTES_MAX: Final = 64 * MIB
"""Bytes of all requests that wait for their turn. Beyond it a gap is answered at once."""

HTTP_CONNECTION_EPOCHS_MAX: Final = 64
"""Producers whose epoch, and whose session, a connection remembers for requests that name neither."""

HTTP_LINGER_MS: Final = 2_000
"""How long a connection is read on after its last answer, if the client does not end it: some round trips, in which it
hears that nothing more is wanted. Whoever is refused and stays holds a connection for no longer."""

HTTP_RECEIVE_BYTES: Final = 256 * KIB
"""What one read of a socket brings at most: uvloop's buffer. An unfinished head may exceed its bound by this."""

HTTP_BACKLOG_MAX: Final = 4_096
"""Connections that wait to be accepted: what Linux grants. All of them may be accepted before the first is counted, so
descriptors are kept for them beside `http.connections_max`."""

HTTP_BODIES_BYTES_MAX: Final = 1024 * MIB
"""Bodies above 64 KiB of all connections, chunked or not, while they come in. Beyond it the next one is told to try
again."""

HTTP_BODIES_KEPT_BYTES: Final = 32 * MIB
"""Bodies of catch-up reads kept for the next reader of the same stretch, which need not be read and joined again. Small
beside the memory of the server: a reader of the whole log fills it with bodies that nobody asks for again."""

UNSENT_BYTES_MAX: Final = 64 * MIB
"""Answers to reads that clients have not taken yet, of all connections: 64 answers of the default size. Beyond it a
read waits until others have taken theirs."""

UNSENT_STALL_MS: Final = 5_000
"""While reads wait for that room, a client that takes nothing for so long is cut: it keeps others from reading."""

HTTP_READ_RECENT_BYTES: Final = 512 * MIB
"""Journal bytes from the end that are taken to be in the page cache and read on the loop; older ones on a thread. Of
what is written past the page cache, only those in the mirror."""

# --- Kafka -----------------------------------------------------------------------------------------------------

KAFKA_FRAME_BYTES_MAX: Final = 16 * MIB
"""One request. Clients send at most 1 MiB of records in a request unless told otherwise; with BATCH_BYTES_MAX for each
of a few partitions there is room, and a length prefix of 2 GB is refused before anything is allocated."""

KAFKA_ELEMENTS_MAX: Final = 100_000
"""Elements of all arrays in one request. A request that names 10,000 partitions needs 20,000; each element becomes an
object, and a hundred times more than its bytes."""

KAFKA_REQUESTS_WAITING_MAX: Final = 256
"""Requests of one connection that wait for their answer, before nothing more is read from it. Clients keep 5 or 6."""

KAFKA_FETCH_BYTES_MAX: Final = 16 * MIB
"""Records of one Fetch answer, whatever the client asks for. librdkafka asks for 50 MiB by default; what does not fit
comes with its next request."""

KAFKA_FETCH_WAIT_MS_MAX: Final = 5 * 60 * 1_000
"""How long a Fetch waits, whatever the client asks for: below the time after which an idle connection is closed."""

KAFKA_PARTITIONS_MAX: Final = 10_000
"""Partitions of one topic, of one CreateTopics and of one CreatePartitions request: each is a stream with its row."""

KAFKA_GROUP_MEMBERS_MAX: Final = 1_000
"""Members of one consumer group: the leader gets the subscriptions of all of them in one answer."""

KAFKA_GROUP_BYTES_MAX: Final = 4 * MIB
"""Subscriptions and assignments that one group holds in memory."""

KAFKA_GROUPS_MAX: Final = 20_000
"""Groups with members, in memory. Saved offsets are rows and do not count."""

KAFKA_SESSION_MS_MIN: Final = 1_000
"""The shortest session timeout that a member may ask for. Kafka's own bound is 6 s; tests of clients ask for less."""

KAFKA_SESSION_MS_MAX: Final = 30 * 60 * 1_000
"""The longest, as in Kafka: a member that died holds its partitions for so long."""

assert ENTRY_BYTES_MAX < GROUP_BYTES_MAX < SEGMENT_BYTES_DEFAULT
assert TXN_RANGES_MAX * TXN_RANGE_BYTES + COMMIT_APPENDS_MAX * TXN_STREAM_BYTES < BATCH_BYTES_MAX
assert STAGES_PER_PUBLISH_MAX * PUBLISHED_STAGE_BYTES < BATCH_BYTES_MAX
assert CHECKPOINT_BYTES + 2 * GROUP_BYTES_MAX <= MIRROR_BYTES
assert TURN_RECORD_BYTES > PRODUCER_NAME_BYTES_MAX + PRODUCER_SESSION_BYTES_MAX + CLAIM_DIGEST_BYTES_MAX + 256
assert SEGMENT_BYTES_MIN % FRAME_ALIGN_BYTES == 0
assert KAFKA_FENCE_EPOCH_MAX == KAFKA_EPOCH_MAX + 1
assert TXN_TIMEOUT_MS_MIN <= TXN_TIMEOUT_MS_DEFAULT <= TXN_TIMEOUT_MS_MAX < TXN_ID_EXPIRY_MS
