"""Core NATS: who receives a message. Queue groups take turns; a connection may ask not to hear itself."""

import itertools
from collections.abc import Callable

from oncelog.protocols.nats import wire
from oncelog.protocols.nats.sublist import Sublist
from oncelog.servers.nats.connection import Connection, Subscription

Interest = Callable[[str], None]


class Router:
    """All subscriptions of the server."""

    def __init__(self) -> None:
        self.sublist: Sublist[Subscription] = Sublist()
        self._turn = itertools.count()
        self.on_interest: Interest = lambda _subject: None
        """Called with the subject of each new subscription: a consumer may wait for somebody to listen."""
        self.on_disinterest: Interest = lambda _subject: None

    def add(self, subscription: Subscription) -> None:
        """A new interest."""
        self.sublist.add(subscription.subject, subscription.queue, subscription)
        self.on_interest(subscription.subject)

    def remove(self, subscription: Subscription) -> None:
        """An interest that ended."""
        self.sublist.remove(subscription.subject, subscription.queue, subscription)
        self.on_disinterest(subscription.subject)

    def has_interest(self, subject: str) -> bool:
        """Whether somebody listens."""
        return self.sublist.has_interest(subject)

    def send(
        self,
        target: str,
        payload: bytes = b"",
        *,
        subject: str = "",
        reply: str = "",
        header: bytes = b"",
        origin: Connection | None = None,
    ) -> bool:
        """Deliver to everybody who listens to `target`; they see `subject` (or `target`). True if somebody does."""
        matched = self.sublist.match(target)
        subject = subject or target
        sent = False
        # Copies: a subscription that ends with this message leaves the lists.
        for subscription in tuple(matched.plain):
            sent |= self._deliver(subscription, subject, reply, header, payload, origin)
        for members in tuple(matched.queues):
            at = next(self._turn) % len(members)
            for subscription in (*members[at:], *members[:at]):
                if not subscription.connection.is_closing:
                    sent |= self._deliver(subscription, subject, reply, header, payload, origin)
                    break
        return sent

    def _deliver(
        self,
        subscription: Subscription,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        origin: Connection | None,
    ) -> bool:
        connection = subscription.connection
        if connection.is_closing or (connection is origin and not connection.options.echo):
            return False
        connection.deliver(subscription, subject, reply, header, payload)
        return True

    def receiver(self, subject: str) -> Connection | None:
        """One connection that listens, if any: consumers wait while it takes nothing."""
        matched = self.sublist.match(subject)
        for subscription in matched.plain:
            return subscription.connection
        return matched.queues[0][0].connection if matched.queues else None

    def no_responders(self, reply: str, subject: str) -> None:
        """Tell a requester that nobody listens."""
        self.send(reply, header=wire.status(503, "", [("Nats-Subject", subject)]))
