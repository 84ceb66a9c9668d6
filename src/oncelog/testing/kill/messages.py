"""Messages between an engine process and whoever drives it: a length (u32) and a pickle of (number, content)."""

import pickle
import struct
from typing import Final, NamedTuple

LENGTH: Final = struct.Struct("<I")

READY: Final = "ready"


class Read(NamedTuple):
    """Ask for the records of one stream from `offset` on."""

    topic: str
    partition: int
    offset: int


class ReadDone(NamedTuple):
    """What a read found."""

    records: list[tuple[int, bytes]]
    """(offset, value)"""
    next_offset: int
    stable: int


def packed(number: int, content: object) -> bytes:
    """One message."""
    body = pickle.dumps((number, content), pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


def take_messages(data: bytearray) -> list[tuple[int, object]]:
    """Take every whole message off the front; what is left is the beginning of one."""
    messages = []
    at = 0
    while len(data) - at >= LENGTH.size:
        (length,) = LENGTH.unpack_from(data, at)
        if len(data) - at - LENGTH.size < length:
            break
        at += LENGTH.size
        messages.append(pickle.loads(data[at : at + length]))
        at += length
    del data[:at]
    return messages
