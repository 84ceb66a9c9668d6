"""Settings of the C allocator: large blocks are kept for the next one, but free memory goes back to the system.

`malloc_trim` returns every free page of the heap, also between blocks that are in use. It costs a walk over the free
blocks, so it is called about once a second, and only if enough was read since the last call.
"""

import ctypes
from typing import Final

from oncelog.limits import GROUP_BYTES_MAX, HEAP_KEPT_BYTES

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
"""Names and numbers of glibc's malloc.h."""


def keep_large_blocks() -> None:
    """Let the allocator keep them. A body of 1 MB, or a group that is replayed, is otherwise mapped and unmapped each
    time, and every page of it is faulted in anew: half the CPU of a large append, in the server as in the index
    builder. Only glibc knows these switches; others go without."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, GROUP_BYTES_MAX)
        mallopt(M_TRIM_THRESHOLD, HEAP_KEPT_BYTES)
        # One heap for all threads: what the reader's thread takes and the loop frees serves both of them again.
        mallopt(M_ARENA_MAX, 1)


def give_back() -> None:
    """Return free memory to the system."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(HEAP_KEPT_BYTES)
