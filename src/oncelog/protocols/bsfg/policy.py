"""Who may do what: peers, their tokens, and what each may append, fetch and confirm.

Without a peer everybody may do everything. With one, a call has the rights of the zone that its bearer token names. A
call without a token is one of this zone's own producers and consumers, unless a peer has the name of this zone: then
they need its token. `from_zone` of a fact is the caller's own zone, so that no zone can speak for another.

A list that is left out allows everything, but for consumers: a peer has those named `forward:<peer>` and those whose
names begin with `<peer>:`.
"""

import hmac
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec

from oncelog.protocols.bsfg.connect import RpcError

_BEARER: Final = b"bearer "


class Peer(msgspec.Struct, frozen=True):
    """Another zone, and its rights here."""

    name: str
    token: bytes = b""
    """Empty: no call can name it."""
    append_subjects: tuple[str, ...] = ()
    fetch_streams: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    export: tuple[str, ...] = ()
    """Subjects of facts that it gets."""
    start: str = "first"
    """Where its consumers begin: `first`, or `next` for facts that come after they are made."""


class Caller(msgspec.Struct, frozen=True):
    """Whom a call speaks for."""

    zone: str
    peer: Peer | None = None
    """None for this zone itself, or if there are no peers."""
    is_checked: bool = False
    """There are peers, so the rights of the caller count."""


@lru_cache(maxsize=4_096)
def pattern_of(text: str) -> re.Pattern[str]:
    """`*` stands for any characters but `/` and `:`, a final `>` for everything."""
    body, rest = (text[:-1], ".*") if text.endswith(">") else (text, "")
    return re.compile(re.escape(body).replace(r"\*", "[^/:]*") + rest)


def matches(patterns: Sequence[str], subject: str) -> bool:
    """Whether a subject matches one of the patterns; without patterns every one does."""
    return not patterns or any(pattern_of(text).fullmatch(subject) is not None for text in patterns)


def caller_of(zone: str, peers: Sequence[Peer], authorization: bytes | None) -> Caller:
    """Whom the header speaks for. Raises RpcError."""
    if not peers:
        return Caller(zone)
    if authorization is None:
        if any(peer.name == zone for peer in peers):
            raise RpcError(
                "unauthenticated", f"zone {zone} asks for a token: send Authorization: Bearer and the token."
            )
        return Caller(zone, None, True)
    token = authorization[len(_BEARER) :].strip() if authorization[: len(_BEARER)].lower() == _BEARER else b""
    found: Peer | None = None
    for peer in peers:  # all of them, so that the time does not tell which one is near
        if peer.token and hmac.compare_digest(peer.token, token) and token:
            found = peer
    if found is None:
        raise RpcError("unauthenticated", f"zone {zone} knows no such token. Check the token file of the peer.")
    return Caller(found.name, found, True)


def may_append(caller: Caller, from_zone: str, subject: str) -> None:
    """Raise RpcError unless the caller may append this fact."""
    if not caller.is_checked:
        return
    if from_zone != caller.zone:
        text = f"envelope.from_zone: {from_zone!r}; the caller is zone {caller.zone!r} and speaks for no other."
        raise RpcError("permission_denied", text)
    if caller.peer is not None and not matches(caller.peer.append_subjects, subject):
        raise RpcError("permission_denied", f"fact.subject: zone {caller.zone!r} may not append {subject!r} here.")


def may_consume(caller: Caller, consumer: str, stream: str) -> None:
    """Raise RpcError unless the caller may use this consumer; an empty stream stands for all of them."""
    peer = caller.peer
    if peer is None:
        return
    if stream and peer.fetch_streams and stream not in peer.fetch_streams:
        raise RpcError("permission_denied", f"stream: zone {peer.name!r} may not fetch {stream!r} here.")
    named = peer.consumers or (f"forward:{peer.name}", f"{peer.name}:>")
    if not matches(named, consumer):
        text = f"consumer_name: {consumer!r} is not one of zone {peer.name!r}; it has {', '.join(named)}."
        raise RpcError("permission_denied", text)


def may_get(caller: Caller, subject: str) -> bool:
    """Whether a fact about this subject leaves the zone for the caller."""
    return caller.peer is None or matches(caller.peer.export, subject)
