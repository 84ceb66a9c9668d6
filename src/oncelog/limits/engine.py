"""Bounds of the engine: groups, queues, caches."""

from typing import Final

from oncelog.limits.units import KIB, MIB

# --- groups ------------------------------------------------------------------------------------------------------

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

# --- engine ------------------------------------------------------------------------------------------------------

HOLD_MS: Final = 5_000
"""How long a command waits for room or for the index before it is refused: clients give up after some seconds, and then
do not know what became of it."""

HOLD_SAID_MS: Final = 1_000
"""A wait that is longer than this is reported: a segment is written in well under a second."""

WAITING_BYTES_MAX: Final = 64 * MIB
"""Commands that wait for room or for the index, in all. Servers stop reading long before; this bounds the rest."""

READS_WAITING_BYTES_MAX: Final = 64 * MIB
"""Plans of reads that wait for the reader's thread, in all: a third of a million batches. Beyond it readers are told to
come back."""

HEAP_KEPT_BYTES: Final = 16 * MIB
"""Free memory that the allocator keeps at the end of its heap: enough for the bodies of the next few requests."""

INDEX_DEATHS_MAX: Final = 3
"""How often the index builder may die at one place before the server gives up: once may be a kill, three times is
not."""

INDEX_RESTART_MS_FIRST: Final = 500
"""How long after its first death the builder is started again; four times as long after the second."""

CLOCK_SETTLE_MS: Final = 600_000
"""How long a wall clock must stay ahead before the log takes it over: longer than any mistake that is mended."""

CLOCK_JUMP_MAX_MS: Final = 30 * 86_400_000
"""How far the log's time may be set forward at once. Ids are remembered for 7 days by default; a step beyond a month is
a wrong clock more often than a server that was off for so long."""

CLOCK_STEP_NS_MIN: Final = 1_000_000_000
"""A wall clock that is ahead by less is caught up with, at 1 ms per second."""

CLOCK_NOTE_INTERVAL_S: Final = 3_600
"""How often the log's time is written down beside the journal, for a start after a long silence."""

RETENTION_TOPICS_PER_CHECK: Final = 1_000
"""Topics that are looked through once a second after a start, until all of those with a limit are known: a
millisecond."""

RETENTION_STREAMS_PER_CHECK: Final = 500
"""Streams whose floor is worked out once a second: a few milliseconds. Others follow a second later."""

RETENTION_BATCHES_PER_CHECK: Final = 4_000
"""Batches whose sizes are added up once a second, of all streams with a limit in bytes: a few milliseconds."""

READ_PLANS_MAX: Final = 4
"""How often one read is planned anew because its records were moved or trimmed under it."""

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

ROWS_CACHED_BYTES: Final = 256 * MIB
"""All rows kept in memory although the index has them, of all tables together, if the settings say nothing else."""

ROWS_CACHED_MAX: Final = 300_000
"""Rows per table kept in memory although the index has them. About 400 bytes each."""

FREE_SLICE: Final = 2_000
"""Rows or ids freed in one go: freeing 60,000 at once stalled the loop by 100 ms."""

PROOF_IDLE_MS: Final = 1_000
"""A journal idle for this long appends an empty frame, so that its last group is followed by proof."""

TIMER_CHECK_MS: Final = 1_000
"""How often stages are looked at; P7 promises their end within their timeout plus this."""

# --- reads -------------------------------------------------------------------------------------------------------

READ_RECENT_BYTES: Final = 512 * MIB
"""Journal bytes from the end that are taken to be in the page cache and read on the loop; older ones on a thread. Of
what is written past the page cache, only those in the mirror."""
