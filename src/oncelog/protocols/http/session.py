"""What one connection remembers between requests: the epochs that its X- producers last used.

A request that names neither session nor epoch belongs to the epoch last used on its connection. A sequence 0 forgets
it at once: it may open a new epoch, and what follows it on the same connection belongs to that one.
"""

from oncelog import limits

Key = tuple[str, int, str]
"""Topic, partition, producer."""


class Session:
    """One per connection."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[Key, int] | None = None

    def epoch_of(self, key: Key) -> int | None:
        """The epoch last used; None if the connection does not know."""
        return None if self._epochs is None else self._epochs.get(key)

    def forget(self, key: Key) -> None:
        """A sequence 0 is on its way."""
        if self._epochs is not None:
            self._epochs.pop(key, None)

    def used(self, key: Key, epoch: int) -> None:
        """An answer named the epoch."""
        if self._epochs is None:
            self._epochs = {}
        self._epochs.pop(key, None)
        if len(self._epochs) >= limits.HTTP_CONNECTION_EPOCHS_MAX:
            del self._epochs[next(iter(self._epochs))]
        self._epochs[key] = epoch
