"""What one connection remembers between requests: the epochs that its X- producers last used.

A request that names neither session nor epoch belongs to the epoch last used on its connection. A sequence 0 forgets
it at once: it may open a new epoch, and what follows it on the same connection belongs to that one. Answers that were
still on their way then name the old epoch, and are not remembered.
"""

from oncelog import limits

Key = tuple[str, int, str]
"""Topic, partition, producer."""

_NONE = -1


class Session:
    """One per connection."""

    __slots__ = ("_epochs",)

    def __init__(self) -> None:
        self._epochs: dict[Key, tuple[int, int]] | None = None
        """Epoch last used (_NONE if unknown), and the one that a sequence 0 left behind."""

    def epoch_of(self, key: Key) -> int | None:
        """The epoch last used; None if the connection does not know."""
        epoch, _ = (_NONE, _NONE) if self._epochs is None else self._epochs.get(key, (_NONE, _NONE))
        return None if epoch == _NONE else epoch

    def forget(self, key: Key) -> None:
        """A sequence 0 is on its way."""
        if self._epochs is not None and key in self._epochs:
            self._epochs[key] = (_NONE, max(self._epochs[key]))

    def used(self, key: Key, epoch: int) -> None:
        """An answer named the epoch."""
        if self._epochs is None:
            self._epochs = {}
        known, left = self._epochs.pop(key, (_NONE, _NONE))
        if len(self._epochs) >= limits.HTTP_CONNECTION_EPOCHS_MAX:
            del self._epochs[next(iter(self._epochs))]
        self._epochs[key] = (max(known, epoch) if epoch > left else known, left)
