"""Back-pressure, once for all faces: connections that nothing is read from, because their client or the engine has too
much to do. They read on when there is room again."""

from typing import Protocol

from oncelog.engine.engine import Engine


class Paused(Protocol):
    """A connection that was paused."""

    def resume(self) -> None:
        """Read on, if nothing speaks against it."""
        ...


class BackPressure:
    """Every connection of every face that is paused."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.paused: set[Paused] = set()
        # A connection that waits for no answer of its own is resumed only by this.
        self._forget = engine.when_none_waits(self.resume_all)

    @property
    def overloaded(self) -> bool:
        """Commands wait for room in the engine: nobody should bring more."""
        return self._engine.overloaded

    def close(self) -> None:
        """The faces have stopped."""
        self._forget()

    def resume_all(self) -> None:
        """Let every paused connection look whether it may read on."""
        for connection in list(self.paused):
            connection.resume()
