"""What one connection remembers between requests: the runs and epochs that its X- producers last used.

A request that names neither session nor epoch belongs to the epoch last used on its connection. If a session was named
there, that is the epoch of the session, whatever it is by the time the request is decided: the request is taken as one
of that run, so it is fenced with it. Else the answers tell the epoch. A sequence 0 forgets both at once: it may open a
new epoch, and what follows it on the same connection belongs to that one. Answers that were still on their way then
name the old epoch, and are not remembered.
"""

from oncelog import limits

Key = tuple[str, int, str]
"""Topic, partition, producer."""

_NONE = -1


class Session:
    """One per connection."""

    __slots__ = ("_epochs", "_runs")

    def __init__(self) -> None:
        self._runs: dict[Key, str] | None = None
        """The session last named, of those that have named no epoch since."""
        self._epochs: dict[Key, tuple[int, int]] | None = None
        """Epoch last used (_NONE if unknown), and the one that a sequence 0 left behind."""

    def epoch_of(self, key: Key) -> int | None:
        """The epoch last used; None if the connection does not know."""
        epoch, _ = (_NONE, _NONE) if self._epochs is None else self._epochs.get(key, (_NONE, _NONE))
        return None if epoch == _NONE else epoch

    def run_of(self, key: Key) -> str:
        """The session last named; empty if there is none."""
        return "" if self._runs is None else self._runs.get(key, "")

    def named(self, key: Key, run: str) -> None:
        """A request has named its session; empty if it has named its epoch alone."""
        if self._runs is None:
            self._runs = {}
        self._runs.pop(key, None)
        if run:
            if len(self._runs) >= limits.HTTP_CONNECTION_EPOCHS_MAX:
                del self._runs[next(iter(self._runs))]
            self._runs[key] = run

    def forget(self, key: Key) -> None:
        """A sequence 0 is on its way."""
        if self._runs is not None:
            self._runs.pop(key, None)
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
