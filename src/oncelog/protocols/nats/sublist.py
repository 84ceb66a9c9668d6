"""Who receives what: a trie of subscriptions by token, with queue groups.

A match gives every plain subscription and, per queue group, all members; the caller chooses one of each group.
"""

from typing import Generic, NamedTuple, TypeVar

from oncelog.limits import NATS_ROUTES_CACHED_MAX

S = TypeVar("S")


class Matched(NamedTuple, Generic[S]):
    """The receivers of one subject."""

    plain: list[S]
    queues: list[list[S]]


class _Node(Generic[S]):
    __slots__ = ("below", "plain", "queues", "rest")

    def __init__(self) -> None:
        self.below: dict[str, _Node[S]] = {}
        self.plain: dict[S, None] = {}
        self.queues: dict[str, dict[S, None]] = {}
        self.rest: _Node[S] | None = None
        """Those that end with `>` here."""

    @property
    def is_empty(self) -> bool:
        return not (self.below or self.plain or self.queues or self.rest)


class Sublist(Generic[S]):
    """Subscriptions of one server."""

    def __init__(self) -> None:
        self._root: _Node[S] = _Node()
        self._cache: dict[str, Matched[S]] = {}
        self.count = 0

    def add(self, pattern: str, queue: str, subscription: S) -> None:
        """`pattern` is a valid subject."""
        node = self._root
        for token in pattern.split("."):
            if token == ">":
                if node.rest is None:
                    node.rest = _Node()
                node = node.rest
            else:
                below = node.below.get(token)
                if below is None:
                    below = node.below[token] = _Node()
                node = below
        if queue:
            node.queues.setdefault(queue, {})[subscription] = None
        else:
            node.plain[subscription] = None
        self.count += 1
        self._cache.clear()

    def remove(self, pattern: str, queue: str, subscription: S) -> None:
        """One that was added."""
        path: list[tuple[_Node[S], str]] = []
        node = self._root
        for token in pattern.split("."):
            path.append((node, token))
            below = node.rest if token == ">" else node.below.get(token)
            if below is None:
                return
            node = below
        if queue:
            members = node.queues.get(queue)
            if members is None or subscription not in members:
                return
            del members[subscription]
            if not members:
                del node.queues[queue]
        else:
            if subscription not in node.plain:
                return
            del node.plain[subscription]
        self.count -= 1
        for parent, token in reversed(path):
            if not node.is_empty:
                break
            if token == ">":
                parent.rest = None
            else:
                del parent.below[token]
            node = parent
        self._cache.clear()

    def match(self, subject: str) -> Matched[S]:
        """The receivers of a literal subject. Inboxes are not kept: each is used once."""
        found = self._cache.get(subject)
        if found is not None:
            return found
        found = Matched([], [])
        groups: dict[str, list[S]] = {}
        nodes = [self._root]
        ends: list[_Node[S]] = []
        for token in subject.split("."):
            after: list[_Node[S]] = []
            for node in nodes:
                if node.rest is not None:
                    ends.append(node.rest)
                if (below := node.below.get(token)) is not None:
                    after.append(below)
                if (star := node.below.get("*")) is not None and token != "*":
                    after.append(star)
            nodes = after
            if not nodes:
                break
        for node in (*ends, *nodes):
            found.plain.extend(node.plain)
            for queue, members in node.queues.items():
                groups.setdefault(queue, []).extend(members)
        found.queues.extend(groups.values())
        if not subject.startswith("_INBOX."):
            if len(self._cache) >= NATS_ROUTES_CACHED_MAX:
                self._cache.clear()
            self._cache[subject] = found
        return found

    def has_interest(self, subject: str) -> bool:
        """Whether somebody receives `subject`."""
        found = self.match(subject)
        return bool(found.plain or found.queues)
