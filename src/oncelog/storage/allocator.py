"""The C allocator, told what this process does all day: take large blocks and give them back."""

import ctypes
from typing import Final

from oncelog.limits import GROUP_BYTES_MAX

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
"""Names and numbers of glibc's malloc.h."""


def keep_large_blocks() -> None:
    """Let the allocator keep them. A body of 1 MB, or a group that is replayed, is otherwise mapped and unmapped each
    time, and every page of it is faulted in anew: half the CPU of a large append, in the server as in the index
    builder. Only glibc knows these switches; others go without."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, GROUP_BYTES_MAX)
        mallopt(M_TRIM_THRESHOLD, 8 * GROUP_BYTES_MAX)
