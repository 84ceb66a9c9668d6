"""Which connection a transactional producer uses now: a newer one replaces the older, which then does nothing more.

Version 1 of the transaction protocol cannot tell a delayed EndTxn from one of the next transaction (Jepsen 2024,
KAFKA-17754). A client opens a new connection only after it gave the old one up, so what the old one still holds unread
is a delayed request: it is dropped together with the connection.

A producer has one connection in each of three roles: for coordinator requests, for offsets, which clients may send
to the group's coordinator over another connection, and for records.
"""

from enum import IntEnum
from typing import Protocol


class Role(IntEnum):
    """What a connection is used for."""

    COORDINATOR = 0
    OFFSETS = 1
    RECORDS = 2


class Replaceable(Protocol):
    """A connection."""

    number: int
    """Rises from connection to connection of a server."""

    def end(self) -> None:
        """Close it, unread requests and all."""
        ...


class Connections:
    """By transactional id and epoch and role: the newest connection that sent such a request."""

    def __init__(self) -> None:
        self._newest: dict[tuple[str, int, Role], Replaceable] = {}
        self._keys: dict[Replaceable, set[tuple[str, int, Role]]] = {}

    def may_act(self, connection: Replaceable, txn_id: str, epoch: int, role: Role) -> bool:
        """Whether a request in this role may be carried out. If a newer connection has sent one, this connection is
        closed, and the answer is no; if an older one has, that is closed."""
        key = (txn_id, epoch, role)
        before = self._newest.get(key)
        if before is connection:
            return True
        if before is not None and before.number > connection.number:
            connection.end()
            return False
        self._newest[key] = connection
        self._keys.setdefault(connection, set()).add(key)
        if before is not None:
            self._keys.get(before, set()).discard(key)
            before.end()
        return True

    def left(self, connection: Replaceable) -> None:
        """A connection is closed."""
        for key in self._keys.pop(connection, ()):
            if self._newest.get(key) is connection:
                del self._newest[key]
