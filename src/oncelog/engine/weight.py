"""What a command that waits keeps in memory: the bound on waiting commands is one of bytes, not of counts."""

from sys import getsizeof
from typing import Final

import msgspec

from oncelog import limits
from oncelog.core.command import Command
from oncelog.core.flat import Flat

_INT_BYTES: Final = getsizeof(2**59)


def size_of(command: Command) -> int:
    """Roughly what a waiting command keeps in memory, whatever kind it is."""
    return limits.ENTRY_OVERHEAD_BYTES + _bytes_of(command)


def _bytes_of(value: object) -> int:
    """All that hangs on it. What several share counts for each."""
    size = getsizeof(value)
    if isinstance(value, msgspec.Struct):
        size += sum(_bytes_of(getattr(value, name)) for name in value.__struct_fields__)
    elif isinstance(value, Flat):
        size += sum(map(_bytes_of, value.fields()))
    elif isinstance(value, list) and value and type(value[0]) is int:
        size += len(value) * _INT_BYTES  # of stages or offsets, and there may be a great many
    elif isinstance(value, list | tuple):
        size += sum(map(_bytes_of, value))
    elif isinstance(value, dict):
        size += sum(map(_bytes_of, value)) + sum(map(_bytes_of, value.values()))
    return size
