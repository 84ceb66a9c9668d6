"""Exception families. A leaf: anyone may import it, it imports nothing of ours.

Refusals are not here: they are values (`core.outcome`), because a refused command is an ordinary answer. What is
here either stops the process (storage) or tells a caller that its bytes cannot be read (codec).
"""


class OncelogError(Exception):
    """Base of every exception that oncelog raises on purpose."""


class StorageError(OncelogError):
    """The disk did not do what it was told. Carries where, and what an operator can do."""

    next_offset: int = -1
    """Behind a batch that cannot be read, in the stream that it was read for; -1 if it is not that, or nobody knows."""

    def __init__(self, what: str, *, file: str = "", position: int = -1, hint: str = "") -> None:
        self.what = what
        self.file = file
        self.position = position
        self.hint = hint
        where = f" in {file}" if file else ""
        where += f" at byte {position}" if position >= 0 else ""
        super().__init__(f"{what}{where}" + (f" ({hint})" if hint else ""))


class DiskFault(StorageError):
    """A call to the disk failed. If it was to write or sync, nothing after it may be confirmed and the process ends; a
    failed read is told to its reader."""


class DiskFull(StorageError):
    """No room for another segment. Writes are refused, reads go on."""


class JournalPoisoned(StorageError):
    """A write or sync failed earlier: this journal object confirms nothing any more."""


class Corruption(StorageError):
    """Bytes on disk are not what was written. Never served, never repaired silently."""


class DirectoryInUse(StorageError):
    """Another process holds this data directory."""


class BatchInvalid(OncelogError):
    """A record batch cannot be accepted: says what is wrong and at which byte."""

    def __init__(self, reason: str, position: int = 0) -> None:
        self.reason = reason
        self.position = position
        super().__init__(f"{reason} (byte {position} of the batch)")
