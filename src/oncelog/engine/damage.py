"""How damage on the disk, or a read that failed, is told to whoever asked."""

from oncelog.core.outcome import Damaged
from oncelog.errors import StorageError


def damaged(error: StorageError) -> Damaged:
    """A refusal: nothing was done, and the rest of the log is none the worse."""
    what = f"{error.what} ({error.hint})" if error.hint else error.what
    return Damaged(what, error.file, error.position, error.next_offset)
