"""Bounds of what all faces share."""

from typing import Final

from oncelog.limits.units import MIB

# --- what all faces share ----------------------------------------------------------------------------------------

LINGER_MS: Final = 2_000
"""How long a connection is read on after its last answer, if the client does not end it: some round trips, in which it
hears that nothing more is wanted. Whoever is refused and stays holds a connection for no longer."""

BACKLOG_MAX: Final = 4_096
"""Connections that wait to be accepted: what Linux grants. All of them may be accepted before the first is counted, so
descriptors are kept for them beside `http.connections_max`."""

UNSENT_BYTES_MAX: Final = 64 * MIB
"""Answers to reads that clients have not taken yet, of all connections: 64 answers of the default size. Beyond it a
read waits until others have taken theirs."""

UNSENT_STALL_MS: Final = 5_000
"""While reads wait for that room, a client that takes nothing for so long is cut: it keeps others from reading."""
