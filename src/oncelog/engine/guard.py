"""The guard: whatever goes wrong in the engine ends it.

An exception in a callback would otherwise be logged by the event loop and forgotten, with a command half applied or an
answer never given. A bug must be as final as a failed disk: nothing is confirmed after it.
"""

from collections.abc import Callable
from types import TracebackType

Fatal = Callable[[BaseException], object]

Post = Callable[..., object]
"""Runs a callback on the loop's thread: `loop.call_soon_threadsafe`."""


class Guard:
    """`with guard:` around everything that the loop or a thread runs for the engine. Raises on, after `failed`."""

    __slots__ = ("_failed",)

    def __init__(self, failed: Fatal) -> None:
        self._failed = failed

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._failed(error)
