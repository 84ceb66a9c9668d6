"""The end of a connection: its last answer is out, its sending side is shut, and what comes is thrown away.

Closing a socket that has unread input, or that is still sent to, makes the kernel send a reset, and a reset takes
answers with it that the client has not read. So a server that ends a connection shuts its own side and reads on until
the client has ended the other, or for as long as it may wait for that (RFC 9112, 9.6). There is no timer for each:
whoever looks at all connections asks whether this one is over.
"""

import asyncio
import fcntl
import sys
import termios
from typing import Final

from oncelog import limits

QUIET_MS: Final = 250
"""A client that says nothing for so long, and has what it was sent, is not waited for when the server stops: one that
is busy sends more, or sees the end and closes, within a round trip."""


class Ending:
    """One connection's, from its last answer on."""

    __slots__ = ("_at", "_transport")

    def __init__(self, transport: asyncio.Transport, now: float) -> None:
        self._transport = transport
        self._at = now
        """Since when everything may have been handed to the kernel."""

    def is_over(self, now: float, heard_at: float, *, is_stopping: bool) -> bool:
        """Whether to close, although the client has not. `heard_at` is when something last came from it. In a stop only
        a client that is silent and has its answers; the others for as long as the stop may take."""
        if self._transport.is_closing():
            return False  # it has, and its socket may be gone: a look at many connections takes more than one turn
        if self._transport.get_write_buffer_size():
            self._at = now
            return False
        if is_stopping:
            return (now - heard_at) * 1000 > QUIET_MS and _has_all(self._transport)
        return (now - self._at) * 1000 > limits.LINGER_MS


def _has_all(transport: asyncio.Transport) -> bool:
    """The client's kernel has acknowledged every byte. Also if ours does not tell: then silence must do."""
    try:
        unacknowledged = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
    except OSError:
        return True
    return int.from_bytes(unacknowledged, sys.byteorder) == 0
