"""How damage on the disk, or a read that failed, is told to whoever asked."""

from oncelog.core.outcome import Damaged
from oncelog.errors import Corruption, StorageError


def damaged(error: StorageError) -> Damaged:
    """A refusal: nothing was done, and the rest of the log is none the worse."""
    next_offset = error.next_offset if isinstance(error, Corruption) else -1
    return Damaged(error.what, error.file, error.position, next_offset)
