"""Publishes large objects: stages of one application, published one at a time.

A publish names the application's fence and the number of its batch, so the publishes of a server follow each other in a
queue. The receipt of the key is asked for in the same step: an object that is there already takes no room twice.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from oncelog.core.command import CreateTopic, DropStages, GetReceipt, OpenApplication, Publish, PublishItem
from oncelog.core.outcome import ApplicationDone, CommitConfirmed, IdConflict, ReceiptFound
from oncelog.protocols.bsfg import objects
from oncelog.protocols.bsfg.connect import Answer
from oncelog.protocols.bsfg.refusal_map import error_of
from oncelog.protocols.bsfg.zone import Steps
from oncelog.servers.bsfg.boundary import Boundary

APPLICATION: Final = "bsfg:objects"
QUERY: Final = "objects"

OnResult = Callable[[Any], None]
OnError = Callable[[Answer], None]


class ObjectPublisher:
    """One per server."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary
        self._queue: deque[tuple[Steps, OnResult, OnError]] = deque()
        self._is_busy = False
        self._batch = -1
        self.fence = 0
        """0 until the first large object."""

    def enqueue(self, steps: Steps, on_result: OnResult, on_error: OnError) -> None:
        """Carry out these steps when those before them are done."""
        self._queue.append((steps, on_result, on_error))
        self._next()

    def _next(self) -> None:
        if self._is_busy or not self._queue:
            return
        self._is_busy = True
        steps, on_result, on_error = self._queue.popleft()

        def ended(told: Callable[[Any], None], what: Any) -> None:
            self._is_busy = False
            told(what)
            self._next()

        self._boundary.run(
            "objects", steps, lambda result: ended(on_result, result), lambda answer: ended(on_error, answer)
        )

    def opened(self) -> Steps:
        """Steps that make this server the one that publishes."""
        if not self.fence:
            done = yield OpenApplication(APPLICATION)
            if not isinstance(done, ApplicationDone):
                raise error_of(done, "objects cannot be staged")
            self.fence, self._batch = done.fence, done.batch
        return {}

    def published(self, stage_id: int, chunks: int, name: tuple[str, str], stated: tuple[str, int]) -> Steps:
        """Steps that put a staged object into its bucket. `name` is bucket and key, `stated` digest and
        size; the stage holds the chunks and the manifest behind them."""
        bucket, key = name
        topic, claimed = objects.topic_of(bucket), objects.claimed_digest(*stated)
        answer = {"digest": stated[0], "size": stated[1], "duplicate": False}
        receipt = yield GetReceipt(topic, 0, key.encode())
        if isinstance(receipt, ReceiptFound):
            yield DropStages([stage_id])
            if receipt.digest != claimed:
                raise objects.taken(bucket, key)
            return answer | {"duplicate": True}
        yield CreateTopic(topic, config=objects.OBJECT_CONFIG)
        item = PublishItem(stage_id, topic, 0, chunks + 1, ids=[(chunks, key.encode(), claimed)])
        done = yield Publish([item], APPLICATION, self.fence, QUERY, self._batch + 1)
        if isinstance(done, IdConflict):
            raise objects.taken(bucket, key)
        if not isinstance(done, CommitConfirmed):
            raise error_of(done, f"the object {bucket}/{key} was not stored")
        self._batch += 1
        return answer
