"""Bounds of the storage: the journal and its index."""

from typing import Final

from oncelog.limits.units import KIB, MIB

# --- journal -----------------------------------------------------------------------------------------------------

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

# --- storage index -----------------------------------------------------------------------------------------------

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

INDEX_ROWS_CACHED_BYTES: Final = 64 * MIB
"""The same in bytes, for rows that are larger than most."""

INDEX_ROWS_CACHED_MAX: Final = 100_000
"""Rows that the index builder keeps between commits, some 50 MB: beyond it they are read again when needed."""
